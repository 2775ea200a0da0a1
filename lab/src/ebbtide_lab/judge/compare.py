# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares two sessions, A before and B after: what became worse, what better.

A row's ratio is B over A; below 1 is better. Of a figure of memory or a count the medians
are compared, of a time the lowest deciles (of eleven runs the second least): what else
runs on a shared machine only adds time, and may disturb a third of the runs by 10 to 40 %,
so that a median now and then is that of disturbed runs, and its interval always reaches there.

Two sessions are not interleaved: between them the machine may have become faster or
slower as a whole. The peers tell. A peer of the same version in both sessions did not
change, so its move is the machine's. The drift of a row is the median of these moves
on a log scale, and the corrected ratio is the arm's move less the drift. One peer could
be wrong by itself, so at least two are wanted; with fewer the plain ratio is judged.

The interval of a corrected ratio holds three doubts, drawn together in each of the
bootstrap's resamples:
- the noise of the arm's own deciles, and that of the peers'. Rounds are
  resampled, not runs: arms of one round share what disturbed it, and that cancels out;
- that a drift is not one number: a machine with slower memory slows allocators down
  unequally. How far the peers' moves differ beyond their noise is how far an unchanged
  arm's may differ from their middle, and a draw of that size is added.

Only times are corrected: memory and counts do not drift with the machine. A row is a
regression when its interval lies wholly above 1 and its value above the threshold; a time
of fewer than three runs has no interval and is not judged.
A change of the workload program moves every arm, and so looks like a drift.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from ebbtide_lab.arms.allocators import Allocator, is_ours
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.judge.stats import (
    MEDIAN,
    MIN_RUNS,
    Ratio,
    beyond_noise,
    interval,
    quantile,
    ratio,
    resampled,
)
from ebbtide_lab.judge.verdict import PEAK_RSS
from ebbtide_lab.machine import card
from ebbtide_lab.results.model import Results, Row, same_work

UNDISTURBED = 0.1  # the quantile of times that is compared
MIN_PEERS = 2
FEW_RUNS = 5
TIME_COSTS = ("cpu", "wall")
TIME_SUFFIXES = ("_ns", "_us", "_ms", "_s")
WATCHED = ("cpu", "cores", "thp", "kernel", "governor", "turbo", "overcommit", "glibc")

Costs = dict[str, Sequence[float]]


@dataclass(frozen=True)
class Change:
    """One figure of one row in both sessions."""

    group: str
    scenario: str
    figure: str
    before: Sequence[float]
    after: Sequence[float]
    plain: Ratio
    corrected: Ratio | None = None
    drift: float = 1.0
    peers: int = 0

    def typical(self, values: Sequence[float]) -> float:
        """The quantile of a session's runs that is compared."""
        return quantile(values, _quantile_of(self.figure))

    @property
    def judged(self) -> Ratio:
        return self.corrected or self.plain

    @property
    def is_judged(self) -> bool:
        """A time wants an interval. Memory and counts repeat: their value will do."""
        return self.judged.has_interval or not _is_time(self.figure)

    def is_regression(self, threshold: float) -> bool:
        return self.judged.value > 1 + threshold and self._is_apart(self.judged.low > 1)

    def is_improvement(self, threshold: float) -> bool:
        return self.judged.value < 1 / (1 + threshold) and self._is_apart(self.judged.high < 1)

    def _is_apart(self, told: bool) -> bool:
        return told if self.judged.has_interval else self.is_judged


@dataclass
class Comparison:
    """What differs between two sessions for one arm."""

    arm: str
    threshold: float
    changes: list[Change] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def regressions(self) -> list[Change]:
        found = [each for each in self.changes if each.is_regression(self.threshold)]
        return sorted(found, key=lambda each: -each.judged.value)

    @property
    def improvements(self) -> list[Change]:
        found = [each for each in self.changes if each.is_improvement(self.threshold)]
        return sorted(found, key=lambda each: each.judged.value)

    @property
    def unseen(self) -> float | None:
        """How much slower half of the times that are no regressions may be at least, for
        all that these runs tell: the median upper end of their intervals, less 1."""
        times = [each for each in self.changes if _is_time(each.figure) and each.is_judged]
        highs = [each.judged.high for each in times if not each.is_regression(self.threshold)]
        return median(highs) - 1 if highs else None

    @property
    def got_worse(self) -> bool:
        return bool(self.broken or self.regressions)


def compare(before: Results, after: Results, arm: str, threshold: float) -> Comparison:
    """All rows of both sessions; raises LabError when they have none in common."""
    found = Comparison(arm, threshold, warnings=_warnings(before, after, arm))
    unchanged = _unchanged_peers(before, after, arm)
    pairs = _pairs(before, after, found.warnings)
    for old, new in pairs:
        if arm in new.failures and arm not in old.failures:
            found.broken.append(f"{new.group}/{new.scenario.name}: {new.failures[arm]}")
        elif arm in old.failures:
            found.warnings.append(f"{old.group}/{old.scenario.name}: {arm} failed in A already")
        elif changes := _changes(old, new, arm, unchanged):
            found.changes += changes
        else:
            found.warnings.append(f"{old.group}/{old.scenario.name}: no runs of {arm} in both")
    if not found.changes and not found.broken:
        raise LabError(f"the two folders have no row in common that ran under {arm}")
    _warn_of_few_runs(found)
    return found


# --- what can be compared ---------------------------------------------------------


def _pairs(before: Results, after: Results, warnings: list[str]) -> list[tuple[Row, Row]]:
    old = {(row.group, row.scenario.name): row for row in before.rows}
    new = {(row.group, row.scenario.name): row for row in after.rows}
    for name, those, others in (("A", old, new), ("B", new, old)):
        alone = ["/".join(key) for key in those if key not in others]
        if alone:
            warnings.append(f"only in {name}: {', '.join(alone)}")
    common = [(old[key], new[key]) for key in old if key in new]
    changed = [row.scenario.name for row, other in common if not _same(row, other)]
    if changed:
        warnings.append(f"not compared, the scenario was changed: {', '.join(changed)}")
    return [(row, other) for row, other in common if _same(row, other)]


def _same(row: Row, other: Row) -> bool:
    return same_work(row.scenario, other.scenario)


def _warnings(before: Results, after: Results, arm: str) -> list[str]:
    found = []
    for name, results in (("A", before), ("B", after)):
        planted = results.facts.get(card.PLANTED)
        if planted:
            found.append(f"{name} is no real result: a slow-down of {planted} % was planted")
    for key in WATCHED:
        old, new = before.facts.get(key), after.facts.get(key)
        if old != new:
            found.append(f"the machines differ in {key}: {old} in A, {new} in B")
    return found + _warn_of_arms(before, after, arm)


def _present(results: Results) -> dict[str, Allocator]:
    return {arm.name: arm for arm in results.arms if not arm.problem}


def _warn_of_arms(before: Results, after: Results, arm: str) -> list[str]:
    old, new = _present(before), _present(after)
    for name, those in (("A", old), ("B", new)):
        if arm not in those:
            raise LabError(f"{name} has no runs of {arm}; it has {', '.join(those) or 'none'}")
    found = [f"only in A: the arm {name}" for name in old if name not in new]
    found += [f"only in B: the arm {name}" for name in new if name not in old]
    common = [name for name in old if name in new]
    found += [
        f"{name} is {old[name].version} in A, {new[name].version} in B"
        for name in common
        if old[name].version != new[name].version
    ]
    if old[arm].version == new[arm].version:
        found.append(f"{arm} is {old[arm].version} in both: a difference is not of its making")
    return found


def _unchanged_peers(before: Results, after: Results, arm: str) -> list[str]:
    old, new = _present(before), _present(after)
    others = [name for name in old if name in new and name != arm and not is_ours(name)]
    return [name for name in others if old[name].version == new[name].version]


def _warn_of_few_runs(found: Comparison) -> None:
    few = [each for each in found.changes if _runs(each) < FEW_RUNS and each.figure in TIME_COSTS]
    if few:
        found.warnings.append(
            f"{len(few)} rows have fewer than {FEW_RUNS} runs: their intervals mean little"
        )
    untold = [each for each in found.changes if not each.is_judged]
    if untold:
        found.warnings.append(
            f"{len(untold)} times are not judged: fewer than {MIN_RUNS} runs give no interval"
        )
    plain = [each for each in found.changes if _is_time(each.figure) and not each.corrected]
    if plain:
        found.warnings.append(
            f"{len(plain)} rows are not corrected for the machine's drift: fewer than "
            f"{MIN_PEERS} peers in them did not change"
        )


def _runs(change: Change) -> int:
    return min(len(change.before), len(change.after))


# --- figures ----------------------------------------------------------------------


def _is_time(figure: str) -> bool:
    return figure in TIME_COSTS or figure.endswith(TIME_SUFFIXES)


def _changes(old: Row, new: Row, arm: str, peers: list[str]) -> list[Change]:
    """The row's cost, and its peak of resident memory where that is not its cost."""
    figures = dict.fromkeys((old.scenario.cost, PEAK_RSS))
    found = (_change(old, new, arm, figure, peers) for figure in figures)
    return [each for each in found if each]


def _change(old: Row, new: Row, arm: str, figure: str, peers: list[str]) -> Change | None:
    before, after = old.costs(arm, figure), new.costs(arm, figure)
    if not before or not after:
        return None
    plain = Change(
        old.group,
        old.scenario.name,
        figure,
        before,
        after,
        _plain_ratio(before, after, _quantile_of(figure)),
    )
    steady = [
        peer for peer in peers if _positive(old, peer, figure) and _positive(new, peer, figure)
    ]
    if len(steady) < MIN_PEERS or not _is_time(figure) or min(*before, *after) <= 0:
        return plain
    corrected, drift = correct(
        _costs(old, arm, steady, figure), _costs(new, arm, steady, figure), arm
    )
    return replace(plain, corrected=corrected, drift=drift, peers=len(steady))


def _positive(row: Row, arm: str, figure: str) -> bool:
    costs = row.costs(arm, figure)
    return bool(costs) and min(costs) > 0


def _costs(row: Row, arm: str, peers: list[str], figure: str) -> Costs:
    return {name: row.costs(name, figure) for name in (arm, *peers)}


def _quantile_of(figure: str) -> float:
    return UNDISTURBED if _is_time(figure) else MEDIAN


def _plain_ratio(before: Sequence[float], after: Sequence[float], q: float) -> Ratio:
    if min(before) > 0:
        return ratio(after, before, q)
    old, new = quantile(before, q), quantile(after, q)
    value = new / old if old > 0 else 1.0 if new <= 0 else math.inf
    return Ratio(value, value, value)


def correct(before: Costs, after: Costs, arm: str, seed: int = 1) -> tuple[Ratio, float]:
    """The arm's ratio with the drift taken off, and the drift, as the module's text says.

    All other arms are peers that did not change.
    """
    moves = {
        name: math.log(quantile(after[name], UNDISTURBED) / quantile(before[name], UNDISTURBED))
        for name in before
    }
    peers = [name for name in moves if name != arm]
    drift = median(moves[peer] for peer in peers)
    value = math.exp(moves[arm] - drift)
    if min(len(values) for values in (*before.values(), *after.values())) < MIN_RUNS:
        return Ratio(value), math.exp(drift)
    rng = np.random.default_rng(seed)
    old, new = (resampled(rng, costs, UNDISTURBED) for costs in (before, after))
    draws = {name: np.log(new[name] / old[name]) for name in before}
    noise = median(float(np.var(draws[peer], ddof=1)) for peer in peers)
    unequal = beyond_noise([moves[peer] for peer in peers], noise)
    own = draws[arm] - np.median([draws[peer] for peer in peers], axis=0)
    corrected = np.exp(own + rng.normal(0, unequal, own.shape))
    return interval(value, corrected), math.exp(drift)
