# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares Ebbtide with its peers in one row, and holds the row against its bars."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from ebbtide_lab.allocators import EBBTIDE, EBBTIDE_AGAIN, FLOOR, GLIBC, NOT_PEERS
from ebbtide_lab.runner import Row
from ebbtide_lab.scenarios import Bar
from ebbtide_lab.stats import Ratio, ratio

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
    return [arm for arm in row.samples if arm not in NOT_PEERS]


def best_peer(row: Row, clock: str | None = None) -> str | None:
    costs = {arm: median(row.costs(arm, clock)) for arm in peers_of(row)}
    return min(costs, key=costs.__getitem__) if costs else None


def leanest_peer(row: Row, families: tuple[str, ...] = ()) -> str | None:
    peaks = {
        arm: median(row.figure(arm, "peak_rss_kb"))
        for arm in peers_of(row)
        if not families or arm.startswith(families)
    }
    return min(peaks, key=peaks.__getitem__) if peaks else None


def compare_time(row: Row, clock: str | None = None) -> Comparison | None:
    best = best_peer(row, clock)
    if best is None or EBBTIDE not in row.samples:
        return None
    return Comparison(best, ratio(row.costs(EBBTIDE, clock), row.costs(best, clock)))


def compare_rss(row: Row, families: tuple[str, ...] = ()) -> Comparison | None:
    best = leanest_peer(row, families)
    if best is None or EBBTIDE not in row.samples:
        return None
    own = row.figure(EBBTIDE, "peak_rss_kb")
    return Comparison(best, ratio(own, row.figure(best, "peak_rss_kb")))


def noise(row: Row) -> Ratio | None:
    """Ebbtide against itself."""
    if EBBTIDE not in row.samples or EBBTIDE_AGAIN not in row.samples:
        return None
    return ratio(row.costs(EBBTIDE_AGAIN), row.costs(EBBTIDE))


# --- bars -------------------------------------------------------------------------


def judge(row: Row, bar: Bar) -> Outcome:
    """Whether the row meets the bar; a row without the figures does not."""
    claim = f"{LABELS[bar.kind].format(bar.figure)} {_limit(bar)}"
    if EBBTIDE not in row.samples:
        return Outcome(claim, None, "", False, row.failures.get(EBBTIDE, "not run"))
    value, best = MEASURES[bar.kind](row, bar)
    if value is None:
        return Outcome(claim, None, "", False, "no peer to compare with")
    holds = value >= bar.at_least if bar.at_least is not None else value <= (bar.at_most or 0)
    return Outcome(claim, value, best, holds)


def _limit(bar: Bar) -> str:
    return f">= {bar.at_least:g}" if bar.at_least is not None else f"<= {bar.at_most:g}"


Measure = tuple[float | None, str]


def _speed(row: Row, _: Bar) -> Measure:
    compared = compare_time(row)
    return (1 / compared.ratio.value, compared.best) if compared else (None, "")


def own_costs(row: Row) -> dict[str, float]:
    """Each arm's cost without what the harness itself costs."""
    if FLOOR not in row.samples:
        return {}
    floor = median(row.costs(FLOOR))
    return {arm: median(row.costs(arm)) - floor for arm in row.samples if arm != FLOOR}


def _own_cost(row: Row, _: Bar) -> Measure:
    costs = own_costs(row)
    peers = {arm: cost for arm, cost in costs.items() if arm not in NOT_PEERS}
    if not peers:
        return None, ""
    best = min(peers, key=peers.__getitem__)
    # A peer at the floor has no cost that a ratio could be taken to.
    return (costs[EBBTIDE] / peers[best], best) if peers[best] > 0 else (None, best)


def _rss(row: Row, _: Bar) -> Measure:
    compared = compare_rss(row, LEAN_PEERS)
    return (compared.ratio.value, compared.best) if compared else (None, "")


def _rss_of_all(row: Row, _: Bar) -> Measure:
    compared = compare_rss(row)
    return (compared.ratio.value, compared.best) if compared else (None, "")


def _figure(row: Row, bar: Bar) -> Measure:
    best = min(peers_of(row), key=lambda arm: median(row.figure(arm, bar.figure)), default="")
    return median(row.figure(EBBTIDE, bar.figure)), best


def _glibc_time(row: Row, _: Bar) -> Measure:
    if GLIBC not in row.samples:
        return None, ""
    return median(row.costs(EBBTIDE)) / median(row.costs(GLIBC)), GLIBC


def _glibc_rss(row: Row, _: Bar) -> Measure:
    if GLIBC not in row.samples:
        return None, ""
    own, other = (median(row.figure(arm, "peak_rss_kb")) for arm in (EBBTIDE, GLIBC))
    return (own - other) * 1024e-6, GLIBC


LABELS = {
    "speed": "speed over the best peer",
    "own_cost": "own cost over the best peer's",
    "rss": "peak RSS over the leanest of jemalloc, mimalloc",
    "rss_of_all": "peak RSS over the leanest peer",
    "figure": "{}",
    "glibc_time": "time over glibc",
    "glibc_rss": "peak RSS above glibc, MB",
}
MEASURES: dict[str, Callable[[Row, Bar], Measure]] = {
    "speed": _speed,
    "own_cost": _own_cost,
    "rss": _rss,
    "rss_of_all": _rss_of_all,
    "figure": _figure,
    "glibc_time": _glibc_time,
    "glibc_rss": _glibc_rss,
}
