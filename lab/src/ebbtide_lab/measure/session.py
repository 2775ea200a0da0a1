# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs sets of scenarios interleaved, keeps every finished run, shows progress."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ebbtide_lab import SCHEMA, machine
from ebbtide_lab.allocators import FLOOR, Allocator
from ebbtide_lab.errors import LabError, RunError
from ebbtide_lab.execute import Figures
from ebbtide_lab.scenarios import Scenario, ScenarioSet

Execute = Callable[[Scenario, Allocator], Figures]


@dataclass(frozen=True)
class Step:
    group: ScenarioSet
    scenario: Scenario
    arm: Allocator
    round: int


@dataclass
class Row:
    """All that is known of one scenario: figures and failures by arm."""

    group: str
    scenario: Scenario
    samples: dict[str, list[Figures]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def costs(self, arm: str, clock: str | None = None) -> list[float]:
        key = f"{clock or self.scenario.clock}_cost"
        return self.figure(arm, key)

    def figure(self, arm: str, name: str) -> list[float]:
        return [each[name] for each in self.samples.get(arm, [])]


@dataclass
class Results:
    rows: list[Row]
    arms: list[Allocator]
    facts: dict[str, object]
    interrupted: bool = False


def plan(
    sets: list[ScenarioSet], arms: dict[str, list[Allocator]], runs: int | None
) -> Iterator[Step]:
    """A B C A B C: each round has every scenario, each scenario every arm.

    The first arm changes from round to round, so that none always comes first.
    """
    counts = [scenario.runs for group in sets for scenario in group.scenarios]
    for number in range(runs or max(counts)):
        for group in sets:
            for scenario in group.scenarios:
                if number < (runs or scenario.runs):
                    for arm in _turned(_arms_of(scenario, arms[group.name]), number):
                        yield Step(group, scenario, arm, number)


def _arms_of(scenario: Scenario, arms: list[Allocator]) -> list[Allocator]:
    return [arm for arm in arms if not arm.problem and (arm.name != FLOOR or scenario.floor)]


def _turned(arms: list[Allocator], by: int) -> list[Allocator]:
    cut = by % len(arms) if arms else 0
    return arms[cut:] + arms[:cut]


class Journal:
    """The folder of one session: machine.json, and a line of JSON for each run."""

    def __init__(self, folder: Path, arms: list[Allocator]) -> None:
        self.folder = folder
        self.facts = machine.card()
        allocators = {
            arm.name: {"path": str(arm.path or ""), "version": arm.version, "problem": arm.problem}
            for arm in arms
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._refuse_other_schema()
            text = json.dumps({**self.facts, "allocators": allocators}, indent=2)
            (folder / "machine.json").write_text(text + "\n", encoding="utf-8")
            self._lines = (folder / "runs.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            raise LabError(f"cannot write to {folder}: {error.strerror}") from error

    def _refuse_other_schema(self) -> None:
        path = self.folder / "machine.json"
        if not path.is_file():
            return
        try:
            schema = json.loads(path.read_text(encoding="utf-8")).get("schema")
        except json.JSONDecodeError as error:
            raise LabError(f"{path} is not JSON; choose another --out") from error
        if schema != SCHEMA:
            raise LabError(f"{self.folder} holds schema {schema}, not {SCHEMA}; choose another")

    def write(self, step: Step, outcome: dict[str, object]) -> None:
        line = {
            "schema": SCHEMA,
            "date": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "set": step.group.name,
            "scenario": step.scenario.name,
            "command": step.scenario.command,
            "arm": step.arm.name,
            "round": step.round,
            **outcome,
        }
        try:
            self._lines.write(json.dumps(line) + "\n")
            self._lines.flush()
        except OSError as error:
            raise LabError(f"cannot write to {self.folder}: {error.strerror}") from error

    def close(self) -> None:
        self._lines.close()


class Session:
    """Carries out a plan. Ctrl-C ends it and keeps what is finished."""

    def __init__(self, execute: Execute, journal: Journal, console: Console) -> None:
        self._execute = execute
        self._journal = journal
        self._console = console
        self._rows: dict[tuple[str, str], Row] = {}

    def run(self, steps: list[Step], arms: list[Allocator], budget_s: float | None) -> Results:
        for step in steps:
            key = (step.group.name, step.scenario.name)
            self._rows.setdefault(key, Row(step.group.name, step.scenario))
        results = Results(list(self._rows.values()), arms, self._journal.facts)
        try:
            self._run_all(steps, budget_s)
        except KeyboardInterrupt:
            results.interrupted = True
        return results

    def _run_all(self, steps: list[Step], budget_s: float | None) -> None:
        end = monotonic() + budget_s if budget_s is not None else math.inf
        spent: dict[tuple[str, str], float] = {}
        skipped = 0
        with _progress(self._console) as bar:
            task = bar.add_task("", total=sum(step.scenario.estimate_s for step in steps))
            for block in _blocks(steps):
                key = (block[0].group.name, block[0].scenario.name)
                started = monotonic()
                if started + spent.get(key, 0.0) > end and key in spent:
                    skipped += len(block)
                    continue
                for step in block:
                    bar.update(task, description=f"{step.scenario.name} under {step.arm.name}")
                    self._run_step(step)
                    bar.advance(task, step.scenario.estimate_s)
                spent[key] = monotonic() - started
        if skipped:
            self._console.print(f"Left out {skipped} of {len(steps)} runs to stay within the time.")

    def _run_step(self, step: Step) -> None:
        """An arm that failed in a scenario is not tried there again."""
        row = self._rows[step.group.name, step.scenario.name]
        if step.arm.name in row.failures:
            return
        try:
            figures = self._execute(step.scenario, step.arm)
        except RunError as error:
            row.failures[step.arm.name] = str(error)
            self._journal.write(step, {"error": str(error)})
            return
        row.samples.setdefault(step.arm.name, []).append(figures)
        self._journal.write(step, {"figures": figures})


def _blocks(steps: list[Step]) -> list[list[Step]]:
    """One scenario under every arm once: left out as a whole or not at all, so that
    each arm has as many runs as the others. The first block of each always runs."""
    same = groupby(steps, key=lambda step: (step.round, step.group.name, step.scenario.name))
    return [list(block) for _, block in same]


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<36.36}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
