# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb demo, which is `make run`: what a newcomer sees first."""

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from ebbtide_lab.arms import schemes
from ebbtide_lab.arms.allocators import EBBTIDE, Allocator
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli import complete
from ebbtide_lab.cli.measuring import (
    default_out,
    executor,
    exit_status,
    programs_of,
    refuse_missing,
    split_names,
)
from ebbtide_lab.measure.process import need_program
from ebbtide_lab.measure.progress import waiting
from ebbtide_lab.measure.session import Session, plan
from ebbtide_lab.results.journal import Journal
from ebbtide_lab.scenarios import model as scenarios
from ebbtide_lab.scenarios.model import Scenario, ScenarioSet
from ebbtide_lab.show import first_look
from ebbtide_lab.show.console import open_console

BURST, PROGRAMS = "burst", "apps"
ALLOCATORS = (EBBTIDE, "glibc", "jemalloc531", "mimalloc3", "tcmalloc")  # the newest of each
# What the distribution has, where a newer one cannot be built.
INSTEAD = {"jemalloc531": "jemalloc", "mimalloc3": "mimalloc"}
BUDGET_S = 270.0


@click.command("demo")
@click.option(
    "--arms",
    help="Comma-separated allocators.",
    default=",".join(ALLOCATORS),
    show_default=True,
    shell_complete=complete.arms,
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the raw results.")
@click.option("--budget", default=BUDGET_S, show_default=True, help="Seconds to stay within.")
@click.pass_obj
def demo_command(layout: Layout, arms: str, out: Path | None, budget: float) -> None:
    """Run real programs under several allocators, in five minutes."""
    console = open_console()
    found = _find(layout, split_names(arms) or [], console)
    sets, absent = _sets()
    there = [arm for arm in found if not arm.problem]
    missing = absent + [first_look.name_of(arm.name) for arm in found if arm.problem]
    steps = list(plan(sets, {group.name: there for group in sets}, None))
    first_look.print_start(there, missing, budget, console)
    folder = out or default_out(layout)
    with closing(Journal(folder, there)) as journal:
        results = Session(executor(layout, 0), journal, console).run(steps, budget)
    first_look.print_end(results, folder, console)
    sys.exit(exit_status(results))


def _find(layout: Layout, names: list[str], console: Console) -> list[Allocator]:
    """Without Ebbtide there is nothing to show; without a peer there is less."""
    if EBBTIDE in names:  # before minutes go into building peers
        refuse_missing([schemes.find(EBBTIDE, layout)])
    found = []
    for name in names:
        with waiting(console, f"preparing {first_look.name_of(name)}"):
            arm = schemes.find(name, layout)
            if arm.problem and name in INSTEAD:
                arm = schemes.find(INSTEAD[name], layout)
        found.append(arm)
    return found


def _sets() -> tuple[list[ScenarioSet], list[str]]:
    """The burst once, the programs that are installed, and the names of those that are not."""
    burst, programs = scenarios.select([BURST, PROGRAMS])
    once = [replace(row, runs=1) for row in burst.scenarios]
    absent = [row.name for row in programs.scenarios if not _is_installed(row)]
    there = [row for row in programs.scenarios if row.name not in absent]
    groups = [replace(burst, scenarios=once), replace(programs, scenarios=there)]
    return [group for group in groups if group.scenarios], absent


def _is_installed(row: Scenario) -> bool:
    try:
        for name in programs_of([row]):
            need_program(name)
    except LabError:
        return False
    return True
