# SPDX-License-Identifier: MIT OR Apache-2.0
"""The first screen: three charts and the losses that matter, from the summary of a session.

A session whose runs are kept and one of which the summary alone is left begin alike.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import geometric_mean

from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_AGAIN, is_peer
from ebbtide_lab.results.summary import ALONE, LOSES, NOISE, WINS, Ratio, Series, Summary, Workload
from ebbtide_lab.scenarios.described import Description
from ebbtide_lab.show.report import charts, strips
from ebbtide_lab.show.report.cells import written
from ebbtide_lab.show.report.strips import Span
from ebbtide_lab.show.units import DIRECTION, short

COST_AT_LEAST = 1.05  # from here on a loss of cost is on the first screen
MEMORY_AT_LEAST_MB = 1.0
ITSELF = "A/A"  # the heading of Ebbtide against itself
HOW = {"cost": "Ebbtide's cost", "peak": "Ebbtide's"}
Key = tuple[str, str]  # set and name
Describe = Callable[[Key], Description]


@dataclass(frozen=True)
class Drawing:
    title: str
    how: str  # how it is read
    svg: str
    words: str  # what it shows, for who cannot see it


@dataclass(frozen=True)
class Loss:
    workload: str
    anchor: str
    figure: str
    why: str


@dataclass(frozen=True)
class Losses:
    title: str
    found: list[Loss]
    smaller: int  # losses beyond noise that are below the limit
    untold: int  # comparisons of too few runs


@dataclass(frozen=True)
class Entry:
    """A line in the list of workloads."""

    anchor: str
    name: str
    group: str
    imitates: str
    cost: Ratio | None  # over the peer that is the hardest to beat
    cost_peer: str
    memory_mb: float | None  # above the leanest peer
    memory_peer: str
    lost: list[str]


@dataclass(frozen=True)
class Overview:
    verdict: list[str]
    drawings: list[Drawing]
    losses: list[Losses]
    entries: list[Entry]


@dataclass(frozen=True)
class _Best:
    arm: str
    ratio: Ratio


def overview(
    summary: Summary, anchors: dict[Key, str], describe: Describe, failed: list[Key]
) -> Overview:
    """Of a summary whose rows all name their set. `failed` are workloads that Ebbtide failed in."""
    told = {_key(each): describe(_key(each)) for each in summary.workloads}
    return Overview(
        _verdict(summary),
        _drawings(summary, told),
        _losses(summary, anchors, failed),
        [_entry(each, anchors, told[_key(each)].imitates) for each in summary.workloads],
    )


def with_sets(summary: Summary) -> Summary:
    """A report on one set does not name it in each row."""
    rows = [replace(each, group=each.group or summary.sets[0]) for each in summary.workloads]
    return replace(summary, workloads=rows)


def _key(row: Workload) -> Key:
    return row.group, row.name


def _ratios(workload: Workload, kind: str) -> dict[str, Ratio]:
    """To the peers."""
    found: dict[str, Ratio] = getattr(workload, kind)
    return {arm: each for arm, each in found.items() if arm != ITSELF and is_peer(arm)}


def _hardest(workload: Workload, kind: str, lost: bool = False) -> _Best | None:
    """The peer with the largest ratio; with `lost`, among those that win beyond noise."""
    found = _ratios(workload, kind)
    compared = [arm for arm in found if not lost or found[arm].state == LOSES]
    if not compared:
        return None
    arm = max(compared, key=lambda each: found[each].value)
    return _Best(arm, found[arm])


# --- in words -----------------------------------------------------------------------


def _verdict(summary: Summary) -> list[str]:
    kinds = (("Cost (CPU time, or what a workload is judged by)", "cost"), ("Peak memory", "peak"))
    told = [_counted(summary, name, kind) for name, kind in kinds]
    return [*(each for each in told if each), DIRECTION]


def _counted(summary: Summary, name: str, kind: str) -> str:
    states = [each.state for row in summary.workloads for each in _ratios(row, kind).values()]
    if not states:
        return ""
    won, lost, even, alone = (states.count(each) for each in (WINS, LOSES, NOISE, ALONE))
    untold = f", {alone} have too few runs" if alone else ""
    return (
        f"{name}: less than a peer in {won} of {len(states)} comparisons, more in {lost}; "
        f"{even} are within noise{untold}."
    )


# --- charts ---------------------------------------------------------------------------


def _drawings(summary: Summary, told: dict[Key, Description]) -> list[Drawing]:
    """Memory, speed, programs, as far as the session has them; three if it can be."""
    burst = _burst(summary)
    peak = _strips(summary, "peak", "Peak memory")
    speed = _strips(summary, "cost", "Speed")
    programs = _programs(summary, told)
    memory = burst or peak
    spare = peak if burst else None
    return [each for each in (memory, speed, programs or spare) if each]


def _burst(summary: Summary) -> Drawing | None:
    """Of several bursts the largest."""
    if not summary.series:
        return None
    name = max(summary.series, key=lambda each: _peak_mb(summary.series[each]))
    series = summary.series[name]
    arms = [arm for arm in series.mb if arm != EBBTIDE_AGAIN]
    others = [arm for arm in arms if arm != EBBTIDE]
    hues: dict[str, int | None] = {EBBTIDE: None, **{arm: at for at, arm in enumerate(others)}}
    lines = [charts.Line(arm, *_course(series, arm), hues[arm]) for arm in arms]
    ends = {arm: series.mb[arm][-1] for arm in sorted(arms, key=lambda each: series.mb[each][-1])}
    drawn = charts.lines(lines, charts.Scales("seconds", "resident memory, MB"))
    words = "; ".join(f"{arm} {short(mb)} MB" for arm, mb in ends.items())
    return Drawing(
        "Memory after a burst",
        f"{name}: all memory is freed at 0 s, then the program sleeps. Lower is better.",
        drawn,
        f"At the end: {words}",
    )


def _peak_mb(series: Series) -> float:
    return max(max(each) for each in series.mb.values())


def _course(series: Series, arm: str) -> tuple[list[float], list[float]]:
    """The peak is drawn one step before the free."""
    mb = series.mb[arm]
    return [-series.step_s, *(at * series.step_s for at in range(len(mb) - 1))], mb


def _strips(summary: Summary, kind: str, title: str) -> Drawing | None:
    by_peer: dict[str, list[Ratio]] = {}
    for row in summary.workloads:
        for arm, each in _ratios(row, kind).items():
            if each.value > 0:
                by_peer.setdefault(arm, []).append(each)
    if not by_peer:
        return None
    means = {arm: geometric_mean(each.value for each in ratios) for arm, ratios in by_peer.items()}
    ordered = {arm: by_peer[arm] for arm in sorted(by_peer, key=means.__getitem__)}
    words = "; ".join(
        f"{arm} {written(means[arm])}, loses {sum(each.state == LOSES for each in ratios)} "
        f"of {len(ratios)}"
        for arm, ratios in ordered.items()
    )
    return Drawing(
        title,
        f"{HOW[kind]} over each peer's. A dot is a workload, orange a loss beyond noise, "
        "the upright mark the geometric mean.",
        strips.strips(ordered),
        f"Geometric mean over each peer: {words}",
    )


def _programs(summary: Summary, told: dict[Key, Description]) -> Drawing | None:
    rows = [row for row in summary.workloads if told[_key(row)].is_program]
    spans = {row.name: (_span(row, "cost"), _span(row, "peak")) for row in rows}
    shown = {name: pair for name, pair in sorted(spans.items(), key=_by_cost) if any(pair)}
    if not shown:
        return None
    words = "; ".join(f"{name} {_in_words(*pair)}" for name, pair in shown.items())
    return Drawing(
        "Real programs",
        "Ebbtide's over the peers', up to the hardest to beat (the dot): CPU time above, "
        "peak memory below, pale.",
        strips.programs(shown),
        f"Over the peer that is the hardest to beat: {words}",
    )


def _by_cost(item: tuple[str, tuple[Span | None, Span | None]]) -> float:
    cost, memory = item[1]
    known = cost or memory
    return known.most if known else 0.0


def _span(row: Workload, kind: str) -> Span | None:
    ratios = [each for each in _ratios(row, kind).values() if each.value > 0]
    if not ratios:
        return None
    values = [each.value for each in ratios]
    hardest = max(ratios, key=lambda each: each.value)
    return Span(min(values), hardest.value, hardest.state == LOSES)


def _in_words(cost: Span | None, memory: Span | None) -> str:
    told = [
        f"{name} {written(each.most)}"
        for name, each in (("cost", cost), ("memory", memory))
        if each
    ]
    return ", ".join(told)


# --- losses and the list ---------------------------------------------------------------


def _losses(summary: Summary, anchors: dict[Key, str], failed: list[Key]) -> list[Losses]:
    rows = summary.workloads
    costs = [(row, best) for row in rows if (best := _hardest(row, "cost", lost=True))]
    costs.sort(key=lambda each: -each[1].ratio.value)
    large = [each for each in costs if each[1].ratio.value > COST_AT_LEAST]
    more = [(row, best) for row in rows if (best := _hardest(row, "peak", lost=True))]
    by_mb = sorted(
        ((_more_mb(row, best), row, best) for row, best in more), key=lambda each: -each[0]
    )
    heavy = [each for each in by_mb if each[0] > MEMORY_AT_LEAST_MB]
    broken = [
        Loss(row.name, _at(row, anchors), "failed", "") for row in rows if _key(row) in failed
    ]
    return [
        Losses(
            f"Cost, more than {COST_AT_LEAST - 1:.0%} above a peer",
            broken + [_cost_loss(row, best, anchors) for row, best in large],
            len(costs) - len(large),
            _untold(summary, "cost"),
        ),
        Losses(
            f"Peak memory, more than {MEMORY_AT_LEAST_MB:.0f} MB above a peer",
            [_memory_loss(mb, row, best, anchors) for mb, row, best in heavy],
            len(more) - len(heavy),
            _untold(summary, "peak"),
        ),
    ]


def _untold(summary: Summary, kind: str) -> int:
    ratios = [each for row in summary.workloads for each in _ratios(row, kind).values()]
    return sum(each.state == ALONE for each in ratios)


def _at(row: Workload, anchors: dict[Key, str]) -> str:
    return anchors[_key(row)]


def _cost_loss(row: Workload, best: _Best, anchors: dict[Key, str]) -> Loss:
    each = best.ratio
    spread = f" [{written(each.low)}..{written(each.high)}]" if each.low and each.high else ""
    return Loss(row.name, _at(row, anchors), written(each.value), f"of {best.arm}'s{spread}")


def _memory_loss(mb: float, row: Workload, best: _Best, anchors: dict[Key, str]) -> Loss:
    why = f"{written(best.ratio.value)} of {best.arm}'s"
    return Loss(row.name, _at(row, anchors), f"+{short(mb)} MB", why)


def _more_mb(row: Workload, best: _Best) -> float:
    """Ebbtide's peak less the peer's, which is told as a ratio (of a kept session: rounded)."""
    value = row.own_peak.split(" ")[0]
    return float(value) * (1 - 1 / best.ratio.value) if value and best.ratio.value > 0 else 0.0


def _entry(row: Workload, anchors: dict[Key, str], imitates: str) -> Entry:
    cost, memory = _hardest(row, "cost"), _hardest(row, "peak")
    more = _hardest(row, "peak", lost=True)
    lost = []
    if (each := _hardest(row, "cost", lost=True)) and each.ratio.value > COST_AT_LEAST:
        lost.append("cost")
    if more and _more_mb(row, more) > MEMORY_AT_LEAST_MB:
        lost.append("memory")
    return Entry(
        _at(row, anchors),
        row.name,
        row.group,
        imitates,
        cost.ratio if cost else None,
        cost.arm if cost else "",
        _more_mb(row, memory) if memory else None,
        memory.arm if memory else "",
        lost,
    )
