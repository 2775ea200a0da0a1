# SPDX-License-Identifier: MIT OR Apache-2.0
"""Geometric means over recordings: Ebbtide's own time and memory over each peer's."""

from dataclasses import dataclass
from statistics import geometric_mean, median

from ebbtide_lab.arms.allocators import EBBTIDE, FLOOR, is_peer
from ebbtide_lab.judge.verdict import PEAK_RSS
from ebbtide_lab.results.model import Row
from ebbtide_lab.scenarios.model import REPLAY

# An own time below this share of the replay's own is taken for so much: it is not told from none.
LEAST_SHARE = 0.02


@dataclass(frozen=True)
class Mean:
    """Of Ebbtide over an arm: below 1 Ebbtide needs less."""

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
    """Beside each peer, the hardest to beat first; nothing without Ebbtide."""
    whole = replayed(rows)
    arms = arms_of(whole)
    if EBBTIDE not in arms:
        return []
    found = [_mean(whole, arm) for arm in arms if is_peer(arm)]
    return sorted(found, key=lambda mean: -mean.own_cpu)


def best_of_each(rows: list[Row]) -> tuple[float, float]:
    """Ebbtide's own time and peak memory over those of the best peer of each row."""
    whole = replayed(rows)
    peers = [arm for arm in arms_of(whole) if is_peer(arm)]
    cpu = geometric_mean(
        own_cpu(row, EBBTIDE) / min(own_cpu(row, arm) for arm in peers) for row in whole
    )
    peak = geometric_mean(
        _peak(row, EBBTIDE) / min(_peak(row, arm) for arm in peers) for row in whole
    )
    return cpu, peak


def _mean(rows: list[Row], arm: str) -> Mean:
    def over(figure: str) -> float:
        return geometric_mean(
            median(row.figure(EBBTIDE, figure)) / median(row.figure(arm, figure)) for row in rows
        )

    own = geometric_mean(own_cpu(row, EBBTIDE) / own_cpu(row, arm) for row in rows)
    return Mean(arm, own, over("cpu"), over(PEAK_RSS))


def _peak(row: Row, arm: str) -> float:
    return median(row.figure(arm, PEAK_RSS))
