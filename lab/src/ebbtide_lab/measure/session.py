# SPDX-License-Identifier: MIT OR Apache-2.0
"""Carries out a plan: every arm of every scenario, interleaved, with progress."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from time import monotonic

from rich.console import Console

from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_AGAIN, FLOOR, Allocator
from ebbtide_lab.base.errors import LabError, NotRunError, RunError
from ebbtide_lab.measure import interrupts
from ebbtide_lab.measure.progress import open_progress
from ebbtide_lab.results.journal import Journal, Key, fold
from ebbtide_lab.results.model import Refusal, Results, Row, Sample, same_work
from ebbtide_lab.scenarios.model import Scenario, ScenarioSet

Execute = Callable[[Scenario, Allocator], Sample]


@dataclass(frozen=True)
class Step:
    group: ScenarioSet
    scenario: Scenario
    arm: Allocator
    round: int

    @property
    def key(self) -> Key:
        return self.group.name, self.scenario.name


def plan(
    sets: list[ScenarioSet], arms: dict[str, list[Allocator]], runs: int | None
) -> Iterator[Step]:
    """Each round has every scenario, each scenario every arm, in an order of its own."""
    counts = [scenario.runs for group in sets for scenario in group.scenarios]
    for number in range(runs or max(counts)):
        for group in sets:
            for scenario in group.scenarios:
                if number < (runs or scenario.runs):
                    for arm in turned(_arms_of(scenario, arms[group.name]), number):
                        yield Step(group, scenario, arm, number)


def _arms_of(scenario: Scenario, arms: list[Allocator]) -> list[Allocator]:
    return [
        arm
        for arm in arms
        if not arm.problem
        and (arm.name != FLOOR or scenario.floor)
        and arm.name not in scenario.without
        and (not scenario.arms or arm.name in scenario.arms)
        and _can_run(scenario, arm)
    ]


def _can_run(scenario: Scenario, arm: Allocator) -> bool:
    """Rows of schemes are for arms that have one, all the others for allocators; Ebbtide
    is both. Allocators with a way to group memory run in scoped rows."""
    if arm.way:
        return scenario.scoped
    if scenario.kind == "scheme":
        return bool(arm.scheme)
    return not arm.scheme or arm.name in (EBBTIDE, EBBTIDE_AGAIN)


def turned(arms: list[Allocator], by: int) -> list[Allocator]:
    """The order of a round, by a Williams square: over as many rounds as there are arms (twice
    as many, if these are odd) each comes right behind each other equally often. What faults in
    memory by the gigabyte slows down whoever comes next.

    (E. J. Williams, "Experimental designs balanced for the estimation of residual effects of
    treatments", Australian Journal of Scientific Research A 2, 1949.)
    """
    count = len(arms)
    places = [place // 2 if place % 2 == 0 else -1 - place // 2 for place in range(count)]
    if count and by // count % 2 == 1:
        places.reverse()
    return [arms[(place + by) % count] for place in places]


class Session:
    """Carries out a plan. Ctrl-C or SIGTERM ends it and keeps what is finished."""

    def __init__(self, execute: Execute, journal: Journal, console: Console) -> None:
        self._execute = execute
        self._journal = journal
        self._console = console
        self._rows: dict[Key, Row] = fold(journal.kept)

    def run(self, steps: list[Step], budget_s: float | None) -> Results:
        for step in steps:
            self._open_row(step)
        left = self._without_finished(steps)
        results = Results(list(self._rows.values()), self._journal.arms, self._journal.facts)
        with interrupts.kept() as interrupt:
            self._run_all(left, budget_s)
        results.interrupted = interrupt.signal
        return results

    def _open_row(self, step: Step) -> None:
        """A row of an earlier session takes more runs only if they do the same work."""
        row = self._rows.setdefault(step.key, Row(step.group.name, step.scenario))
        if not same_work(row.scenario, step.scenario):
            raise LabError(
                f"{self._journal.folder} holds runs of another {step.scenario.name}: "
                "its definition has changed; choose another folder"
            )
        row.scenario = step.scenario

    def _without_finished(self, steps: list[Step]) -> list[Step]:
        """The steps that an earlier session did not finish; a failure counts as finished, and
        so does a refusal."""
        done = Counter(
            {
                (key, arm): len(samples)
                for key, row in self._rows.items()
                for arm, samples in row.samples.items()
            }
        )
        left = []
        for step in steps:
            row = self._rows[step.key]
            if step.arm.name in row.failures or step.arm.name in row.refusals:
                continue
            if done[step.key, step.arm.name] > 0:
                done[step.key, step.arm.name] -= 1
            else:
                left.append(step)
        if len(left) < len(steps):
            self._console.print(f"{len(steps) - len(left)} of {len(steps)} runs are there already.")
        return left

    def _run_all(self, steps: list[Step], budget_s: float | None) -> None:
        end = monotonic() + budget_s if budget_s is not None else math.inf
        spent: dict[Key, float] = {}
        skipped = 0
        total_s = sum(step.scenario.estimate_s for step in steps)
        with open_progress(self._console, len(steps), total_s, budget_s) as told:
            for block in _blocks(steps):
                key = block[0].key
                started = monotonic()
                if started + spent.get(key, 0.0) > end and key in spent:
                    skipped += len(block)
                    continue
                for step in block:
                    told.begin(f"{step.scenario.name} under {step.arm.name}")
                    self._run_step(step)
                    told.end(step.scenario.estimate_s)
                spent[key] = monotonic() - started
        if skipped:
            self._console.print(f"{len(steps) - skipped} runs fitted in the time.")

    def _run_step(self, step: Step) -> None:
        """An arm that failed in a scenario, or cannot do it, is not tried there again."""
        row = self._rows[step.key]
        if step.arm.name in row.failures or step.arm.name in row.refusals:
            return
        outcome: Sample | Refusal | str
        try:
            outcome = self._execute(step.scenario, step.arm)
            row.samples.setdefault(step.arm.name, []).append(outcome)
        except NotRunError as error:
            outcome = Refusal(str(error))
            row.refusals[step.arm.name] = outcome.reason
        except RunError as error:
            outcome = row.failures[step.arm.name] = str(error)
        self._journal.write(step.group.name, step.scenario, step.arm.name, outcome)


def _blocks(steps: list[Step]) -> list[list[Step]]:
    """One scenario under every arm once: left out as a whole or not at all, so that
    each arm has as many runs as the others. The first block of each always runs."""
    same = groupby(steps, key=lambda step: (step.round, step.key))
    return [list(block) for _, block in same]
