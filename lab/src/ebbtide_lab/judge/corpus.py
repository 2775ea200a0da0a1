# SPDX-License-Identifier: MIT OR Apache-2.0
"""Geometric means over recordings: an allocator's own time and memory beside a reference's."""

from dataclasses import dataclass
from statistics import geometric_mean, median

from ebbtide_lab.arms.allocators import EBBTIDE_AGAIN, FLOOR
from ebbtide_lab.judge.verdict import PEAK_RSS
from ebbtide_lab.results.model import Row
from ebbtide_lab.scenarios.model import REPLAY

REFERENCE = "mimalloc3"
# An own time below this share of the replay's own is taken for so much: it is not told from none.
LEAST_SHARE = 0.02


@dataclass(frozen=True)
class Mean:
    """Over `rows` recordings, of an arm over the reference."""

    arm: str
    own_cpu: float
    cpu: float
    peak: float


def replayed(rows: list[Row]) -> list[Row]:
    """Recordings that every arm replayed, the floor too."""
    found = [row for row in rows if row.scenario.kind == REPLAY and FLOOR in row.samples]
    arms = arms_of(found)
    return [row for row in found if all(arm in row.samples for arm in arms)]


def arms_of(rows: list[Row]) -> list[str]:
    """Those that have a sample anywhere."""
    named = dict.fromkeys(arm for row in rows for arm in row.samples)
    return [arm for arm in named if arm != FLOOR]


def own_cpu(row: Row, arm: str) -> float:
    """Nanoseconds an event without those of the replay itself."""
    floor = median(row.figure(FLOOR, "cpu"))
    return max(median(row.figure(arm, "cpu")) - floor, LEAST_SHARE * floor)


def means(rows: list[Row]) -> list[Mean]:
    """The cheapest first; nothing without the reference."""
    whole = replayed(rows)
    arms = arms_of(whole)
    if REFERENCE not in arms:
        return []
    found = [_mean(whole, arm) for arm in arms if arm != EBBTIDE_AGAIN]
    return sorted(found, key=lambda mean: mean.own_cpu)


def best_of_each(rows: list[Row], ours: str) -> tuple[float, float]:
    """Own time and peak memory of the best peer of each row, over the reference's."""
    whole = replayed(rows)
    peers = [arm for arm in arms_of(whole) if arm not in (ours, EBBTIDE_AGAIN)]
    cpu = geometric_mean(
        min(own_cpu(row, arm) for arm in peers) / own_cpu(row, REFERENCE) for row in whole
    )
    peak = geometric_mean(
        min(_peak(row, arm) for arm in peers) / _peak(row, REFERENCE) for row in whole
    )
    return cpu, peak


def _mean(rows: list[Row], arm: str) -> Mean:
    def over(figure: str) -> float:
        return geometric_mean(
            median(row.figure(arm, figure)) / median(row.figure(REFERENCE, figure)) for row in rows
        )

    own = geometric_mean(own_cpu(row, arm) / own_cpu(row, REFERENCE) for row in rows)
    return Mean(arm, own, over("cpu"), over(PEAK_RSS))


def _peak(row: Row, arm: str) -> float:
    return median(row.figure(arm, PEAK_RSS))
