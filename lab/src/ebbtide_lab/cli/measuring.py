# SPDX-License-Identifier: MIT OR Apache-2.0
"""A session from what a user asked for to its tables; shared by the verbs that measure."""

import os
import shlex
import shutil
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path

import click

from ebbtide_lab.arms import schemes
from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_AGAIN, Allocator
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure import execute
from ebbtide_lab.measure.process import need_program
from ebbtide_lab.measure.session import Execute, Session, plan
from ebbtide_lab.results.journal import Journal
from ebbtide_lab.results.model import Results, Sample
from ebbtide_lab.scenarios import corpus, programs
from ebbtide_lab.scenarios import model as scenarios
from ebbtide_lab.scenarios.model import SIGTERM, Scenario, ScenarioSet
from ebbtide_lab.show import own_program, published, tables
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.corpus import print_corpus

EXIT_FAILED = 1
SIGNALLED = 128  # the exit status is so much more than the signal
TOOLS = {"instructions": "valgrind", "syscalls": "strace"}


@dataclass(frozen=True)
class Own:
    """A program of the user's own, instead of sets."""

    command: list[str]
    group: ScenarioSet
    options: list[str]  # as they were given
    json: Path | None = None
    markdown: Path | None = None


@dataclass(frozen=True)
class Request:
    """What a user asked to measure; None leaves it to the sets."""

    names: list[str]
    own: Own | None = None
    arms: list[str] | None = None
    runs: int | None = None
    out: Path | None = None
    resume: bool = False
    planted: int = 0

    def resume_line(self, folder: Path) -> str:
        """The command that goes on where this session ended."""
        options: dict[str, object] = {
            "--arms": ",".join(self.arms or []),
            "--runs": self.runs,
            "--plant-percent": self.planted,
            "--out": folder,
        }
        given = [text for name, value in options.items() if value for text in (name, str(value))]
        own = [*self.own.options, "--", *self.own.command] if self.own else []
        return shlex.join(["ebb", *_main_options(), "bench", *self.names, *given, "--resume", *own])


def _main_options() -> list[str]:
    """The options before the verb, as the user gave them."""
    given = click.get_current_context().find_root().params.items()
    return [text for name, value in given if value for text in (f"--{name}", str(value))]


def split_names(names: str | None) -> list[str] | None:
    """Of an option that takes several, with commas."""
    return [name.strip() for name in names.split(",")] if names else None


def default_out(layout: Layout) -> Path:
    """Two sessions may begin in one second."""
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    first = layout.build / "results" / f"{stamp}-{os.uname().nodename}"
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(path for path in chain([first], others) if not path.exists())


def refuse_missing(arms: list[Allocator]) -> None:
    missing = [f"{arm.name}: {arm.problem}" for arm in arms if arm.problem]
    if missing:
        raise LabError(f"missing {'; '.join(missing)}; --arms chooses others")


def _find_arms(
    layout: Layout, sets: list[ScenarioSet], wanted: list[str] | None
) -> dict[str, list[Allocator]]:
    """The arms of each set. A missing arm is an error if the user asked for it or if it
    is Ebbtide; a missing peer of a set is told of and left out."""
    names = {group.name: wanted or group.arms for group in sets}
    asked = dict.fromkeys(name for each in names.values() for name in each)
    if EBBTIDE in asked:  # before minutes go into building peers
        refuse_missing([schemes.find(EBBTIDE, layout)])
    found = {name: schemes.find(name, layout) for name in asked}
    refuse_missing([arm for arm in found.values() if wanted])
    return {group: [found[name] for name in arms] for group, arms in names.items()}


def _select(layout: Layout, names: list[str]) -> list[ScenarioSet]:
    sets: list[ScenarioSet] = []
    for name in names:
        group, slash, row = name.partition("/")
        recordings = corpus.find(group, layout)
        if recordings is None:
            sets += scenarios.select([name])
        else:
            sets.append(scenarios.only(recordings, row) if slash else recordings)
    return sets


def _merge(sets: list[ScenarioSet]) -> list[ScenarioSet]:
    """Single scenarios of one set, asked for one by one, form one set again."""
    merged: dict[str, ScenarioSet] = {}
    for group in sets:
        seen = merged.get(group.name)
        known = seen.scenarios if seen else []
        both = known + [each for each in group.scenarios if each not in known]
        merged[group.name] = ScenarioSet(group.name, group.purpose, group.arms, both)
    return list(merged.values())


def measure(layout: Layout, request: Request) -> None:
    """Ends the process with the session's exit status."""
    console = open_console()
    sets = [request.own.group] if request.own else _merge(_select(layout, request.names))
    _refuse_absent(request, sets)
    by_set = _find_arms(layout, sets, request.arms)
    arms = list({arm.name: arm for each in by_set.values() for arm in each}.values())
    steps = list(plan(sets, by_set, request.runs))
    if not steps:
        raise LabError("nothing to run: every chosen allocator is missing")
    if request.planted and not any(_takes_plant(step.scenario, step.arm) for step in steps):
        raise LabError("nothing to plant in: no workload runs under Ebbtide")
    tables.print_allocators([arm for arm in arms if arm.name != EBBTIDE_AGAIN], console)
    folder = request.out or default_out(layout)
    with closing(Journal(folder, arms, request.resume, request.planted)) as journal:
        session = Session(executor(layout, request.planted), journal, console)
        results = session.run(steps, None)
    if request.own:
        own_program.print_program(results, console)
        own_program.export(results, request.own.json, request.own.markdown)
    else:
        tables.print_results(results, console)
        published.print_tables(results, console)
        print_corpus(results, console)
    console.print(f"Raw results: {folder}", soft_wrap=True)
    if results.interrupted:
        console.print(f"To go on: {request.resume_line(folder)}", soft_wrap=True, markup=False)
    sys.exit(exit_status(results))


def executor(layout: Layout, planted: int) -> Execute:
    def run(scenario: Scenario, arm: Allocator) -> Sample:
        if planted and _takes_plant(scenario, arm):
            command = [*scenario.command, "--plant-percent", str(planted)]
            scenario = replace(scenario, command=command)
        return execute.run(scenario, arm, layout)

    return run


def _takes_plant(scenario: Scenario, arm: Allocator) -> bool:
    return scenario.kind in ("workload", "scheme") and arm.name == EBBTIDE


def _refuse_absent(request: Request, sets: list[ScenarioSet]) -> None:
    """Before minutes go into runs that cannot be."""
    if request.own:
        (row,) = request.own.group.scenarios
        for command in (row.command, row.client):
            name = programs.as_given(command[:1])
            if name and not shutil.which(name[0]):
                raise LabError(f"cannot start {name[0]}: there is no such program")
        return
    for program in programs_of([row for group in sets for row in group.scenarios]):
        need_program(program)


def programs_of(rows: list[Scenario]) -> list[str]:
    """Programs that must be installed, looked up by name."""
    commands = [
        command
        for row in rows
        if row.kind in ("command", "server", "http")
        for command in (row.command, row.ready, row.client, row.stop)
        if command
    ]
    tools = {TOOLS[row.kind] for row in rows if row.kind in TOOLS}
    named = {command[0] for command in commands if "{" not in command[0]}
    return sorted((tools | named) - {SIGTERM})


def exit_status(results: Results) -> int:
    if results.interrupted:
        return SIGNALLED + results.interrupted
    return EXIT_FAILED if any(row.failures for row in results.rows) else 0
