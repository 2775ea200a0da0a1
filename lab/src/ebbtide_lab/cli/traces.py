# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb traces: records the corpus."""

import sys
from collections.abc import Callable

import click
from rich.console import Console
from rich.markup import escape

from ebbtide_lab.arms import allocators
from ebbtide_lab.arms.allocators import EBBTIDE_AGAIN, FLOOR, Allocator
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.judge.fidelity import Agreement, agree
from ebbtide_lab.measure import corpus, execute
from ebbtide_lab.measure.corpus import Program
from ebbtide_lab.measure.recording import Recording
from ebbtide_lab.measure.session import turned
from ebbtide_lab.results.model import Figures
from ebbtide_lab.scenarios.corpus import ARMS, folder_of, quick_folder
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.fidelity import print_fidelity, print_orders
from ebbtide_lab.show.recordings import print_recordings

EXIT_FAILED = 1


@click.command("traces")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--again", is_flag=True, help="Record what is there already, too.")
@click.option(
    "--compare",
    "runs",
    type=click.IntRange(1, 100),
    metavar="RUNS",
    help="Run the programs and replay them, so often each: do both rank allocators alike?",
)
@click.option("--quick", is_flag=True, help="Cut the parts that the repository holds instead.")
@click.pass_obj
def traces_command(
    layout: Layout, names: tuple[str, ...], again: bool, runs: int | None, quick: bool
) -> None:
    """Record the programs of bench/traces for `ebb bench corpus`.

    All of them, or those named; into build/traces, a file each.
    """
    programs = corpus.choose(corpus.read_programs(layout), names)
    console = open_console()
    if runs:
        _compare(layout, programs, runs, console)
        return
    if quick:
        quick_folder(layout).mkdir(exist_ok=True)
        parts = [each for each in programs if each.quick]
        _each(parts, lambda program: corpus.cut_quick(layout, program), console)
        return
    folder_of(layout).mkdir(parents=True, exist_ok=True)
    left = [each for each in programs if again or not corpus.target_of(layout, each).is_file()]
    if len(left) < len(programs):
        console.print(f"{len(programs) - len(left)} of {len(programs)} are recorded already.")
    if left:
        console.print("making the input")
        corpus.make_input(layout)
        _each(left, lambda program: corpus.record(layout, program, _tell), console)


def _compare(layout: Layout, programs: list[Program], runs: int, console: Console) -> None:
    wanted = [name for name in ARMS if name not in (FLOOR, EBBTIDE_AGAIN)]
    arms = [arm for arm in (allocators.find(name, layout) for name in wanted) if not arm.problem]
    corpus.make_input(layout)
    found = {}
    for program in programs:
        console.print(program.name, style="dim")
        found[program.name] = _compare_one(layout, program, arms, runs)
        print_orders(program.name, found[program.name], console)
    print_fidelity(found, console)


def _compare_one(
    layout: Layout, program: Program, arms: list[Allocator], runs: int
) -> list[Agreement]:
    """Every round has the program and its replay under every allocator."""
    pair = corpus.as_scenario(layout, program), corpus.as_replay(layout, program)
    told: tuple[dict[str, list[Figures]], dict[str, list[Figures]]] = ({}, {})
    for number in range(runs):
        for arm in turned(arms, number):
            for scenario, figures in zip(pair, told, strict=True):
                sample = execute.run(scenario, arm, layout)
                figures.setdefault(arm.name, []).append(sample.figures)
    return agree(*told)


def _each(programs: list[Program], make: Callable[[Program], Recording], console: Console) -> None:
    """A line before each; a table, and what went wrong, at the end."""
    made: list[Recording] = []
    failures: dict[str, str] = {}
    for program in programs:
        console.print(program.name, style="dim")
        try:
            made.append(make(program))
        except LabError as error:
            failures[program.name] = str(error)
    if made:
        print_recordings(made, console)
    for name, why in failures.items():
        console.print(f"[red]failed[/] {name}: {escape(why)}", soft_wrap=True)
    if failures:
        sys.exit(EXIT_FAILED)


def _tell(line: str) -> None:
    click.echo(f"ebb: {line}", err=True)
