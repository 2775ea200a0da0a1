# SPDX-License-Identifier: MIT OR Apache-2.0
"""Medians, ratios with bootstrap intervals, and the two modes of bimodal samples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

Draws = NDArray[np.float64]

MEDIAN = 0.5
RESAMPLES = 2000
INTERVAL = 0.95
MAD_TO_SIGMA = 1.4826  # of a normal distribution
# The spread of a few values is rough: up to this many times the variance that noise
# gives them, it proves nothing else.
EXPLAINED_BY_NOISE = 2.5
# Two groups are modes when the gap between their means is this many times the
# spread inside them; evenly spread values, cut in half, reach 3.5.
MODE_SEPARATION = 5.0
MODES_MIN_SAMPLES = 6
MIN_RUNS = 3  # with fewer the draws are little but the runs themselves
UNKNOWN = (-math.inf, math.inf)


@dataclass(frozen=True)
class Ratio:
    """With too few runs there is no interval: it excludes nothing."""

    value: float
    low: float = UNKNOWN[0]
    high: float = UNKNOWN[1]

    @property
    def has_interval(self) -> bool:
        return (self.low, self.high) != UNKNOWN

    @property
    def exact(self) -> "Ratio":
        """Of figures that repeat: the interval is the value."""
        return Ratio(self.value, self.value, self.value)

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high


def ratio(
    numerator: Sequence[float], denominator: Sequence[float], q: float = MEDIAN, seed: int = 1
) -> Ratio:
    """The ratio of two medians (or other quantiles) with its percentile bootstrap interval.

    The arms are resampled apart.
    """
    value = quantile(numerator, q) / quantile(denominator, q)
    if min(len(numerator), len(denominator)) < MIN_RUNS:
        return Ratio(value)
    rng = np.random.default_rng(seed)
    draws = _draw(rng, numerator, q) / _draw(rng, denominator, q)
    return interval(value, draws)


def quantile(values: Sequence[float], q: float) -> float:
    return float(np.quantile(values, q))


def interval(value: float, draws: Draws) -> Ratio:
    """A value with the interval that holds the middle 95 % of its bootstrap draws."""
    tail = (1 - INTERVAL) / 2
    low, high = np.quantile(draws, (tail, 1 - tail))
    return Ratio(value, float(low), float(high))


def resampled(
    rng: np.random.Generator, arms: Mapping[str, Sequence[float]], q: float
) -> dict[str, Draws]:
    """Bootstrap draws of a quantile of each arm of one session.

    Arms with equally many runs ran in the same rounds: a draw picks rounds, for all arms
    the same. What disturbed a round disturbed its arms alike, and this keeps it so.
    """
    counts = {len(values) for values in arms.values()}
    if len(counts) > 1:
        return {arm: _draw(rng, values, q) for arm, values in arms.items()}
    rounds = rng.integers(counts.pop(), size=(RESAMPLES, len(next(iter(arms.values())))))
    return {arm: np.quantile(np.asarray(values)[rounds], q, axis=1) for arm, values in arms.items()}


def _draw(rng: np.random.Generator, values: Sequence[float], q: float) -> Draws:
    drawn = rng.choice(np.asarray(values), size=(RESAMPLES, len(values)))
    return np.asarray(np.quantile(drawn, q, axis=1))


def beyond_noise(values: Sequence[float], noise: float) -> float:
    """How far values lie apart (as a standard deviation, robust against one that is far
    out) beyond noise of this variance; nought when noise alone explains it."""
    middle = median(values)
    spread = MAD_TO_SIGMA * median([abs(value - middle) for value in values])
    explained = spread**2 <= EXPLAINED_BY_NOISE * noise
    return 0.0 if explained else math.sqrt(spread**2 - noise)


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
