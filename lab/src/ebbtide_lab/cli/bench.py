# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb bench and ebb demo: measure sets of scenarios."""

import os
import shlex
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TypedDict, Unpack

import click

from ebbtide_lab.arms import schemes
from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_AGAIN, Allocator
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli import complete
from ebbtide_lab.measure import execute
from ebbtide_lab.measure.process import need_program
from ebbtide_lab.measure.session import Execute, Session, plan
from ebbtide_lab.results.journal import Journal
from ebbtide_lab.results.model import Results, Sample
from ebbtide_lab.scenarios import model as scenarios
from ebbtide_lab.scenarios.model import Scenario, ScenarioSet
from ebbtide_lab.show import published, tables
from ebbtide_lab.show.console import open_console

EXIT_FAILED = 1
SIGNALLED = 128  # the exit status is so much more than the signal
DEMO_SETS = ("quick", "apps")
DEMO_BUDGET_S = 285.0
TOOLS = {"instructions": "valgrind", "syscalls": "strace"}


class Asked(TypedDict):
    """The options of ebb bench."""

    runs: int | None
    arms: str | None
    out: Path | None
    resume: bool
    planted: int


@click.command("bench")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete.workloads)
@click.option("--runs", type=click.IntRange(1, 1000), help="Runs of each arm (default: the set's).")
@click.option(
    "--arms",
    help="Comma-separated allocators (default: the set's).",
    shell_complete=complete.arms,
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the raw results.")
@click.option("--resume", is_flag=True, help="Go on with the runs that --out's folder holds.")
@click.option(
    "--plant-percent",
    "planted",
    type=click.IntRange(0, 100),
    default=0,
    help="Test of the lab itself: slow Ebbtide's arm down by this much.",
)
@click.pass_obj
def bench_command(layout: Layout, names: tuple[str, ...], **asked: Unpack[Asked]) -> None:
    """Measure sets or single scenarios (default: quick)."""
    if asked["resume"] and not asked["out"]:
        raise click.UsageError("--resume wants --out, the folder to go on with")
    request = Request(
        names=list(names) or ["quick"],
        arms=_split(asked["arms"]),
        runs=asked["runs"],
        out=asked["out"],
        resume=asked["resume"],
        planted=asked["planted"],
    )
    _measure(layout, request)


@click.command("demo")
@click.option(
    "--arms",
    help="Comma-separated allocators (default: the sets').",
    shell_complete=complete.arms,
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the raw results.")
@click.option("--budget", default=DEMO_BUDGET_S, show_default=True, help="Seconds to stay within.")
@click.pass_obj
def demo_command(layout: Layout, arms: str | None, out: Path | None, budget: float) -> None:
    """Real programs and the quick set under every allocator, in five minutes."""
    _measure(layout, Request(list(DEMO_SETS), _split(arms), None, out, budget))


@dataclass(frozen=True)
class Request:
    """What a user asked to measure; None leaves it to the sets."""

    names: list[str]
    arms: list[str] | None = None
    runs: int | None = None
    out: Path | None = None
    budget_s: float | None = None
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
        return shlex.join(["ebb", *_main_options(), "bench", *self.names, *given, "--resume"])


def _main_options() -> list[str]:
    """The options before the verb, as the user gave them."""
    given = click.get_current_context().find_root().params.items()
    return [text for name, value in given if value for text in (f"--{name}", str(value))]


def _split(arms: str | None) -> list[str] | None:
    return [arm.strip() for arm in arms.split(",")] if arms else None


def _default_out(layout: Layout) -> Path:
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    return layout.build / "results" / f"{stamp}-{os.uname().nodename}"


def _refuse_missing(arms: list[Allocator]) -> None:
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
        _refuse_missing([schemes.find(EBBTIDE, layout)])
    found = {name: schemes.find(name, layout) for name in asked}
    _refuse_missing([arm for arm in found.values() if wanted])
    return {group: [found[name] for name in arms] for group, arms in names.items()}


def _merge(sets: list[ScenarioSet]) -> list[ScenarioSet]:
    """Single scenarios of one set, asked for one by one, form one set again."""
    merged: dict[str, ScenarioSet] = {}
    for group in sets:
        seen = merged.get(group.name)
        known = seen.scenarios if seen else []
        both = known + [each for each in group.scenarios if each not in known]
        merged[group.name] = ScenarioSet(group.name, group.purpose, group.arms, both)
    return list(merged.values())


def _measure(layout: Layout, request: Request) -> None:
    console = open_console()
    sets = _merge(scenarios.select(request.names))
    for program in _programs_of(sets):
        need_program(program)
    by_set = _find_arms(layout, sets, request.arms)
    arms = list({arm.name: arm for each in by_set.values() for arm in each}.values())
    steps = list(plan(sets, by_set, request.runs))
    if not steps:
        raise LabError("nothing to run: every chosen allocator is missing")
    if request.planted and not any(_takes_plant(step.scenario, step.arm) for step in steps):
        raise LabError("nothing to plant in: no workload runs under Ebbtide")
    tables.print_allocators([arm for arm in arms if arm.name != EBBTIDE_AGAIN], console)
    folder = request.out or _default_out(layout)
    with closing(Journal(folder, arms, request.resume, request.planted)) as journal:
        session = Session(_executor(layout, request.planted), journal, console)
        results = session.run(steps, request.budget_s)
    tables.print_results(results, console)
    published.print_tables(results, console)
    console.print(f"Raw results: {folder}", soft_wrap=True)
    if results.interrupted:
        console.print(f"To go on: {request.resume_line(folder)}", soft_wrap=True, markup=False)
    sys.exit(_exit_status(results))


def _executor(layout: Layout, planted: int) -> Execute:
    def run(scenario: Scenario, arm: Allocator) -> Sample:
        if planted and _takes_plant(scenario, arm):
            command = [*scenario.command, "--plant-percent", str(planted)]
            scenario = replace(scenario, command=command)
        return execute.run(scenario, arm, layout)

    return run


def _takes_plant(scenario: Scenario, arm: Allocator) -> bool:
    return scenario.kind in ("workload", "scheme") and arm.name == EBBTIDE


def _programs_of(sets: list[ScenarioSet]) -> list[str]:
    """Programs that must be installed, looked up by name."""
    commands = [
        command
        for group in sets
        for each in group.scenarios
        if each.kind in ("command", "server", "http")
        for command in (each.command, each.ready, each.client, each.stop)
        if command
    ]
    tools = {TOOLS[each.kind] for group in sets for each in group.scenarios if each.kind in TOOLS}
    return sorted(tools | {command[0] for command in commands if "{" not in command[0]})


def _exit_status(results: Results) -> int:
    if results.interrupted:
        return SIGNALLED + results.interrupted
    return EXIT_FAILED if any(row.failures for row in results.rows) else 0
