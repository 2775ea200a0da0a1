# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb replay: a recording under every allocator."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict, Unpack

import click
from rich.console import Console

from ebbtide_lab.arms import allocators
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli.outputs import OutputFile
from ebbtide_lab.measure import replaying
from ebbtide_lab.measure.process import need_program
from ebbtide_lab.measure.replaying import Options, Row
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.replays import print_counts, print_replays

EXIT_FAILED = 1
SIGNALLED = 128
SCHEMA = 1
PACES = ("asap", "recorded")
ALL = "all"


class Asked(TypedDict):
    """The options of ebb replay."""

    names: str | None
    runs: int
    pace: str
    settle_ms: int
    counts: bool
    raw: Path | None


@click.command("replay")
@click.argument("recording", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "--with",
    "names",
    metavar="NAME,...",
    help="The allocators; all: peers that must be built, too (default: what is at hand).",
)
@click.option("--runs", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.option(
    "--pace",
    type=click.Choice(PACES),
    default=PACES[0],
    show_default=True,
    help="As soon as possible, or with the pauses of the program that was recorded.",
)
@click.option(
    "--settle",
    "settle_ms",
    type=click.IntRange(0),
    default=0,
    metavar="MS",
    help="Wait so long at the end, and look at the memory again.",
)
@click.option("--counts", is_flag=True, help="Count instructions under callgrind instead.")
@click.option("--json", "raw", type=OutputFile(), metavar="OUT", help="Keep all that runs told.")
@click.pass_obj
def replay_command(layout: Layout, recording: Path, **asked: Unpack[Asked]) -> None:
    """Replay a recording under allocators.

    FILE is one that `ebb record` made. Prints time and memory under each allocator, and
    Ebbtide beside the best peer. The exit status is 1 when a replay found damage, or failed.
    """
    if asked["counts"]:
        need_program("valgrind")
    rows, interrupted = _run(layout, recording, asked)
    if asked["counts"]:
        print_counts(rows, open_console())
    else:
        print_replays(rows, asked["settle_ms"], open_console())
    if asked["raw"]:
        _write(asked["raw"], recording, rows)
    if interrupted:
        click.echo("ebb: interrupted: the tables hold the runs that were finished", err=True)
        sys.exit(SIGNALLED + interrupted)
    sys.exit(EXIT_FAILED if any(row.failure for row in rows) else 0)


def _run(layout: Layout, recording: Path, asked: Asked) -> tuple[list[Row], int]:
    options = Options(asked["runs"], asked["pace"] == "recorded", asked["settle_ms"])
    with replaying.compiled(recording, layout) as program:
        arms = _find_arms(asked["names"], layout)
        with Console(stderr=True).status("") as status:
            if asked["counts"]:
                return replaying.count_all(program, arms, status.update), 0
            return replaying.replay(program, arms, options, status.update)


def _find_arms(names: str | None, layout: Layout) -> list[Allocator]:
    """A peer that is asked for by its name is built, and missed; so is Ebbtide, always."""
    if names is None:
        arms = allocators.at_hand(layout)
    else:
        arms = [allocators.find(name, layout) for name in _wanted(names, layout)]
    missing = [f"{arm.name}: {arm.problem}" for arm in arms if arm.problem]
    if missing and (names != ALL or arms[0].problem):
        raise LabError(f"missing {'; '.join(missing)}; --with chooses others")
    for each in missing:
        click.echo(f"ebb: missing {each}", err=True)
    return [arm for arm in arms if not arm.problem]


def _wanted(names: str, layout: Layout) -> list[str]:
    if names == ALL:
        return [name for name in allocators.names(layout) if name != allocators.FLOOR]
    return list(dict.fromkeys(name.strip() for name in names.split(",")))


def _write(target: Path, recording: Path, rows: list[Row]) -> None:
    facts = {
        "schema": SCHEMA,
        "recording": str(recording),
        "rows": [{**asdict(row), "arm": _tell_arm(row.arm)} for row in rows],
    }
    try:
        target.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {target}: {error.strerror}") from error


def _tell_arm(arm: Allocator) -> dict[str, str]:
    return {"name": arm.name, "version": arm.version, "path": str(arm.path or "")}
