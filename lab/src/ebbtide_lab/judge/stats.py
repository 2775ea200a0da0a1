# SPDX-License-Identifier: MIT OR Apache-2.0
"""Medians, ratios with bootstrap intervals, and the two modes of bimodal samples."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

RESAMPLES = 2000
INTERVAL = 0.95
# Two groups are modes when the gap between their means is this many times the
# spread inside them; evenly spread values, cut in half, reach 3.5.
MODE_SEPARATION = 5.0
MODES_MIN_SAMPLES = 6


@dataclass(frozen=True)
class Ratio:
    value: float
    low: float
    high: float

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high


def ratio(numerator: Sequence[float], denominator: Sequence[float], seed: int = 1) -> Ratio:
    """The ratio of two medians with its percentile bootstrap interval.

    The arms are resampled apart. One sample an arm gives an interval of no width,
    so callers show how many runs there were.
    """
    rng = random.Random(seed)
    draws = sorted(
        _resampled_median(rng, numerator) / _resampled_median(rng, denominator)
        for _ in range(RESAMPLES)
    )
    tail = (1 - INTERVAL) / 2
    return Ratio(
        median(numerator) / median(denominator),
        draws[int(tail * RESAMPLES)],
        draws[int((1 - tail) * RESAMPLES) - 1],
    )


def _resampled_median(rng: random.Random, values: Sequence[float]) -> float:
    return median(rng.choices(values, k=len(values)))


def modes(values: Sequence[float]) -> tuple[float, float] | None:
    """The medians of two clearly separate groups, or None when there is one."""
    ordered = sorted(values)
    if len(ordered) < MODES_MIN_SAMPLES:
        return None
    splits = range(2, len(ordered) - 1)
    cut = min(splits, key=lambda at: _scatter(ordered[:at]) + _scatter(ordered[at:]))
    low, high = ordered[:cut], ordered[cut:]
    within = ((_scatter(low) + _scatter(high)) / len(ordered)) ** 0.5
    gap = sum(high) / len(high) - sum(low) / len(low)
    if gap <= MODE_SEPARATION * within:
        return None
    return median(low), median(high)


def _scatter(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)
