# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command `ebb`."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console

from ebbtide_lab import allocators, execute, scenarios, tables
from ebbtide_lab.allocators import EBBTIDE, EBBTIDE_AGAIN, Allocator
from ebbtide_lab.errors import LabError, RunError
from ebbtide_lab.layout import Layout
from ebbtide_lab.runner import Journal, Results, Session, plan
from ebbtide_lab.scenarios import ScenarioSet

EXIT_FAILED = 1
EXIT_UNPROVED = 3
EXIT_INTERRUPTED = 130
DEMO_SETS = ("quick", "apps")
DEMO_BUDGET_S = 285.0
LOG_COLUMNS = 140  # width of the tables when they go to a file
PROOF_TIMEOUT_S = 2.0
PROOF_POLL_S = 0.01


class Main(click.Group):
    """Turns the errors that a user can put right into one line."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except LabError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--lib", type=click.Path(path_type=Path), help="Ebbtide's shared library.")
@click.option("--programs", type=click.Path(path_type=Path), help="Folder of the built bench/.")
@click.pass_context
def main(context: click.Context, lib: Path | None, programs: Path | None) -> None:
    """Run and measure programs under Ebbtide and other allocators."""
    context.obj = Layout.of(lib, programs)


@main.command("run", context_settings={"ignore_unknown_options": True})
@click.option("--with", "name", default=EBBTIDE, show_default=True, help="The allocator.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def run_command(layout: Layout, name: str, command: tuple[str, ...]) -> None:
    """Run COMMAND under an allocator and prove that it was loaded.

    The exit status is COMMAND's, or 3 when another allocator was used.
    """
    allocator = _present(name, layout)
    with tempfile.TemporaryDirectory(prefix="ebb-") as scratch:
        testimony = Path(scratch) / "witness"
        settings = execute.preload_settings(
            allocators.over_bundled(allocator), layout.program(execute.WITNESS), testimony
        )
        environment = {**os.environ, **settings}
        sys.exit(_run_proved(command, environment, testimony, allocator))


def _run_proved(
    command: tuple[str, ...], environment: dict[str, str], testimony: Path, allocator: Allocator
) -> int:
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise LabError(f"cannot start {command[0]}: {error.strerror}") from error
    _report_proof(child, testimony, allocator)
    code = _wait(child)
    try:
        execute.check_testimony(testimony, allocator)
    except RunError as error:
        click.echo(f"ebb: {error}", err=True)
        return EXIT_UNPROVED
    return code if code >= 0 else 128 - code


def _report_proof(child: subprocess.Popen[bytes], testimony: Path, allocator: Allocator) -> None:
    """Says soon after the start which object malloc came from: a server runs for long."""
    deadline = time.monotonic() + PROOF_TIMEOUT_S
    while not testimony.is_file() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(PROOF_POLL_S)
    if testimony.is_file():
        loaded = testimony.read_text(encoding="utf-8").partition("\n")[0].partition(" ")[2]
        click.echo(f"ebb: malloc is {allocator.name}'s: {loaded}", err=True)


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Ctrl-C goes to the program as well; how it ends is its own affair."""
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue


def _present(name: str, layout: Layout) -> Allocator:
    allocator = allocators.find(name, layout)
    if allocator.problem:
        raise LabError(f"{name}: {allocator.problem}")
    return allocator


@main.command("peers")
@click.pass_obj
def peers_command(layout: Layout) -> None:
    """List the allocators with their versions; builds those that come as sources."""
    found = [allocators.find(name, layout) for name in allocators.names(layout)]
    tables.print_allocators(found, _console())


@main.command("bench")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--runs", type=click.IntRange(1, 1000), help="Runs of each arm (default: the set's).")
@click.option("--arms", help="Comma-separated allocators (default: the set's).")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the raw results.")
@click.pass_obj
def bench_command(
    layout: Layout, names: tuple[str, ...], runs: int | None, arms: str | None, out: Path | None
) -> None:
    """Measure sets or single scenarios (default: quick)."""
    _measure(layout, Request(list(names) or ["quick"], _split(arms), runs, out))


@main.command("demo")
@click.option("--arms", help="Comma-separated allocators (default: the sets').")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the raw results.")
@click.option("--budget", default=DEMO_BUDGET_S, show_default=True, help="Seconds to stay within.")
@click.pass_obj
def demo_command(layout: Layout, arms: str | None, out: Path | None, budget: float) -> None:
    """Real programs and the quick set under every allocator, in five minutes."""
    _measure(layout, Request(list(DEMO_SETS), _split(arms), None, out, budget))


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=LOG_COLUMNS)


@main.command("list")
def list_command() -> None:
    """List the sets and their scenarios."""
    for name, group in scenarios.load_all().items():
        click.echo(f"{name}: {group.purpose}")
        for each in group.scenarios:
            click.echo(f"  {each.name:<28} {each.runs:>3} runs of {each.estimate_s:g} s")


@dataclass(frozen=True)
class Request:
    """What a user asked to measure; None leaves it to the sets."""

    names: list[str]
    arms: list[str] | None = None
    runs: int | None = None
    out: Path | None = None
    budget_s: float | None = None


def _split(arms: str | None) -> list[str] | None:
    return [arm.strip() for arm in arms.split(",")] if arms else None


def _default_out(layout: Layout) -> Path:
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    return layout.build / "results" / f"{stamp}-{os.uname().nodename}"


def _find_arms(
    layout: Layout, sets: list[ScenarioSet], wanted: list[str] | None
) -> dict[str, list[Allocator]]:
    """The arms of each set. A missing peer is told of; a missing Ebbtide is an error."""
    names = {group.name: wanted or group.arms for group in sets}
    found = {
        name: allocators.find(name, layout)
        for name in dict.fromkeys(name for each in names.values() for name in each)
    }
    if EBBTIDE in found and found[EBBTIDE].problem:
        raise LabError(f"{found[EBBTIDE].problem}; --arms chooses others")
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
    console = _console()
    sets = _merge(scenarios.select(request.names))
    for program in _programs_of(sets):
        execute.need_program(program)
    by_set = _find_arms(layout, sets, request.arms)
    arms = list({arm.name: arm for each in by_set.values() for arm in each}.values())
    steps = list(plan(sets, by_set, request.runs))
    if not steps:
        raise LabError("nothing to run: every chosen allocator is missing")
    tables.print_allocators([arm for arm in arms if arm.name != EBBTIDE_AGAIN], console)
    journal = Journal(request.out or _default_out(layout), arms)
    session = Session(lambda each, arm: execute.run(each, arm, layout), journal, console)
    try:
        results = session.run(steps, arms, request.budget_s)
    finally:
        journal.close()
    tables.print_results(results, console)
    console.print(f"Raw results: {journal.folder}", soft_wrap=True)
    sys.exit(_exit_status(results))


def _programs_of(sets: list[ScenarioSet]) -> list[str]:
    """Programs that must be installed, looked up by name."""
    commands = [
        command
        for group in sets
        for each in group.scenarios
        if each.kind in ("command", "server")
        for command in (each.command, each.ready, each.client, each.stop)
        if command
    ]
    return sorted({command[0] for command in commands if "{" not in command[0]})


def _exit_status(results: Results) -> int:
    if results.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if any(row.failures for row in results.rows) else 0
