# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares Ebbtide with its peers in one row, and holds the row against its bars."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_AGAIN, FLOOR, GLIBC, is_peer
from ebbtide_lab.judge.stats import Ratio, ratio
from ebbtide_lab.results.model import Row
from ebbtide_lab.scenarios.model import COUNTED, TURNED, Bar

PEAK_RSS = "peak_rss_kb"
MICRO_AT_MOST = 1 / 1.15  # the bar on the geometric mean of the micro set
LEAN_PEERS = ("jemalloc", "mimalloc")  # the bar on memory names these families


@dataclass(frozen=True)
class Comparison:
    """Ebbtide against the best peer of a figure; below 1 Ebbtide is the better."""

    best: str
    ratio: Ratio


@dataclass(frozen=True)
class Outcome:
    claim: str
    value: float | None
    best: str
    holds: bool
    why: str = ""


def peers_of(row: Row) -> list[str]:
    return [arm for arm in row.samples if is_peer(arm)]


def _medians(row: Row, arms: list[str], name: str | None = None) -> dict[str, float]:
    """Of the arms that have the figure."""
    found = {arm: row.costs(arm, name) for arm in arms}
    return {arm: median(costs) for arm, costs in found.items() if costs}


def best_peer(row: Row, name: str | None = None, families: tuple[str, ...] = ()) -> str | None:
    """The peer with the least of the row's cost, or of another figure."""
    peers = [arm for arm in peers_of(row) if not families or arm.startswith(families)]
    costs = _medians(row, peers, name)
    return min(costs, key=costs.__getitem__) if costs else None


def compare(row: Row, name: str | None = None, families: tuple[str, ...] = ()) -> Comparison | None:
    """Ebbtide against its best peer by the row's cost, or by another figure."""
    best = best_peer(row, name, families)
    compared = against(row, best, name) if best else None
    return Comparison(best, compared) if best and compared else None


def against(row: Row, arm: str, name: str | None = None) -> Ratio | None:
    """Ebbtide's cost over an arm's; None where either is absent or one is nought."""
    own, other = row.costs(EBBTIDE, name), row.costs(arm, name)
    if not own or not other or min(other) <= 0:
        return None
    found = ratio(own, other)
    return found.exact if not found.has_interval and is_counted(row, name) else found


def is_counted(row: Row, name: str | None = None) -> bool:
    """Whether this figure repeats: then one run tells all."""
    return (name or row.scenario.cost) == COUNTED.get(row.scenario.kind)


def geometric_means(rows: list[Row]) -> dict[str, float]:
    """Ebbtide's time over each peer's, the geometric mean over the rows of the micro set:
    below 1, Ebbtide is the faster. Worst peer last; without peers that lack a row."""
    medians = [_medians(row, [EBBTIDE, *peers_of(row)]) for row in rows if row.scenario.micro]
    medians = [each for each in medians if EBBTIDE in each and len(each) > 1]
    if not medians:
        return {}
    peers = set.intersection(*(set(each) for each in medians)) - {EBBTIDE}
    means = {peer: geometric_mean(each[EBBTIDE] / each[peer] for each in medians) for peer in peers}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def noise(row: Row) -> Ratio | None:
    """Ebbtide against itself."""
    return against(row, EBBTIDE_AGAIN)


# --- bars -------------------------------------------------------------------------


def judge(row: Row, bar: Bar, rows: Sequence[Row] = ()) -> Outcome:
    """Whether the row meets the bar; a row without the figures does not. `rows` are those
    of the session, for bars that look at another one."""
    if bar.arm not in row.samples:
        why = row.failures.get(bar.arm) or row.not_run.get(bar.arm) or "not run"
        return Outcome(_claim(row, bar, _limit_of(bar)), None, "", False, why)
    if bar.kind == "unchanged":
        return _judge_unchanged(row, bar, rows)
    value, best = MEASURES[bar.kind](row, bar)
    limit = _limit_of(bar)
    claim = _claim(row, bar, limit)
    if value is None:
        return Outcome(claim, None, "", False, _lack(row, bar))
    holds = value <= limit if limit is not None else value >= (bar.at_least or 0)
    return Outcome(claim, value, best, holds)


def _limit_of(bar: Bar) -> float | None:
    """The most that is allowed. `at_least` of a speed or a rate over another turns over,
    as their ratio is one of costs; a figure by itself keeps it."""
    if bar.at_least is not None and bar.kind in TURNED:
        return 1 / bar.at_least
    return bar.at_most


def _lack(row: Row, bar: Bar) -> str:
    absent = [peer for peer in bar.peers if not row.costs(peer, bar.figure or None)]
    return f"no figure of {', '.join(absent)}" if absent else "no figures to compare"


def _claim(row: Row, bar: Bar, at_most: float | None) -> str:
    whose = "" if bar.arm == EBBTIDE else f"{bar.arm}: "
    figure = bar.figure or row.scenario.cost
    turned = bar.kind == "against" and bar.at_least is not None
    what = LABELS["rate" if turned else bar.kind].format(
        figure=figure, row=bar.row, peers=" or ".join(bar.peers)
    )
    return f"{whose}{what} {_limit(bar, at_most)}".rstrip()


def _limit(bar: Bar, at_most: float | None) -> str:
    if at_most is not None:
        return f"<= {at_most:.4g}"
    return "" if bar.at_least is None else f">= {bar.at_least:g}"


def _judge_unchanged(row: Row, bar: Bar, rows: Sequence[Row]) -> Outcome:
    """The limit is what the machine makes of no difference, in this row and the other."""
    other = next((each for each in rows if _is(each, row.group, bar.row)), None)
    costs = other.costs(bar.arm) if other else []
    strays = [_strays(each) for each in (row, other) if each]
    limits = [limit for limit in strays if limit is not None]
    if not costs or min(costs) <= 0 or len(limits) < 2:
        return Outcome(_claim(row, bar, None), None, "", False, "no figures to compare")
    value = median(row.costs(bar.arm)) / median(costs)
    claim = _claim(row, bar, round(max(limits), 3))
    return Outcome(claim, value, bar.row, value <= max(limits))


def _is(row: Row, group: str, name: str) -> bool:
    return (row.group, row.scenario.name) == (group, name)


def _strays(row: Row) -> float | None:
    """How far the A/A interval reaches from 1, as a ratio above 1."""
    found = noise(row)
    return max(found.high, 1 / found.low) if found and found.low > 0 else None


Measure = tuple[float | None, str]


def _speed(row: Row, _: Bar) -> Measure:
    compared = compare(row)
    return (compared.ratio.value, compared.best) if compared else (None, "")


def own_costs(row: Row) -> dict[str, float]:
    """Each arm's cost without what the harness itself costs."""
    if not row.costs(FLOOR):
        return {}
    costs = _medians(row, list(row.samples))
    return {arm: cost - costs[FLOOR] for arm, cost in costs.items() if arm != FLOOR}


def _own_cost(row: Row, _: Bar) -> Measure:
    costs = own_costs(row)
    peers = {arm: cost for arm, cost in costs.items() if is_peer(arm)}
    if not peers:
        return None, ""
    best = min(peers, key=peers.__getitem__)
    # A peer at the floor has no cost that a ratio could be taken to.
    return (costs[EBBTIDE] / peers[best], best) if peers[best] > 0 else (None, best)


def _rss(row: Row, _: Bar) -> Measure:
    compared = compare(row, PEAK_RSS, LEAN_PEERS)
    return (compared.ratio.value, compared.best) if compared else (None, "")


def _rss_of_all(row: Row, _: Bar) -> Measure:
    compared = compare(row, PEAK_RSS)
    return (compared.ratio.value, compared.best) if compared else (None, "")


def _figure(row: Row, bar: Bar) -> Measure:
    if not row.figure(bar.arm, bar.figure):
        return None, ""
    return median(row.figure(bar.arm, bar.figure)), best_peer(row, bar.figure) or ""


def _against(row: Row, bar: Bar) -> Measure:
    """All named peers must have the figure: without one the claim would be another."""
    figures = _medians(row, [bar.arm, *bar.peers], bar.figure or None)
    peers = {peer: figures[peer] for peer in bar.peers if peer in figures}
    if bar.arm not in figures or len(peers) < len(bar.peers) or min(peers.values()) <= 0:
        return None, ""
    if bar.at_least is None:
        best = min(peers, key=peers.__getitem__)
        return figures[bar.arm] / peers[best], best
    best = max(peers, key=peers.__getitem__)  # of a rate: its cost is one over it
    return peers[best] / figures[bar.arm] if figures[bar.arm] > 0 else math.inf, best


def _glibc_time(row: Row, _: Bar) -> Measure:
    if not row.costs(GLIBC):
        return None, ""
    return median(row.costs(EBBTIDE)) / median(row.costs(GLIBC)), GLIBC


def _glibc_rss(row: Row, _: Bar) -> Measure:
    if not row.figure(GLIBC, PEAK_RSS):
        return None, ""
    own, other = (median(row.figure(arm, PEAK_RSS)) for arm in (EBBTIDE, GLIBC))
    return (own - other) * 1024e-6, GLIBC


LABELS = {
    "speed": "cost over the best peer's",
    "own_cost": "own cost over the best peer's",
    "rss": "peak RSS over the leanest of jemalloc, mimalloc",
    "rss_of_all": "peak RSS over the leanest peer",
    "figure": "{figure}",
    "against": "{figure} over that of {peers}",
    "rate": "cost by {figure} over that of {peers}",
    "unchanged": "{figure} over that in {row}, as A/A may stray:",
    "glibc_time": "time over glibc",
    "glibc_rss": "peak RSS above glibc, MB",
}
MEASURES: dict[str, Callable[[Row, Bar], Measure]] = {
    "speed": _speed,
    "own_cost": _own_cost,
    "rss": _rss,
    "rss_of_all": _rss_of_all,
    "figure": _figure,
    "against": _against,
    "glibc_time": _glibc_time,
    "glibc_rss": _glibc_rss,
}
