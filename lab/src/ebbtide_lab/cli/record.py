# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb record: what a program asks of malloc, into a file that `ebb replay` replays."""

import math
import sys
from pathlib import Path
from typing import TypedDict, Unpack

import click
from rich.console import Console

from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli.ranges import FloatRange
from ebbtide_lab.inspect.executable import NotPreloadableError, check_preloadable
from ebbtide_lab.measure import recording
from ebbtide_lab.measure.recording import FolderError, Request, Run
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.recordings import print_overhead, print_recordings


class RefusedError(click.ClickException):
    """What cannot be recorded is not started."""

    exit_code = 2


class Asked(TypedDict):
    """The options of ebb record."""

    output: Path | None
    only: str | None
    seconds: float | None
    keep_all: bool
    overhead: bool


@click.command("record", context_settings={"ignore_unknown_options": True})
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The recording (default: PROGRAM.ebt here).",
)
@click.option("--only", metavar="PROGRAM", help="Record processes that run this program alone.")
@click.option(
    "--seconds",
    type=FloatRange(min=0, min_open=True),
    help="End the command by SIGTERM after so long; Ctrl-C does it, too.",
)
@click.option("--all", "keep_all", is_flag=True, help="Keep recordings of under 1,000 events.")
@click.option("--overhead", is_flag=True, help="Run it once more unrecorded, to compare CPU time.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def record_command(layout: Layout, command: tuple[str, ...], **asked: Unpack[Asked]) -> None:
    """Record what COMMAND asks of malloc.

    It runs as ever. Each process has a recording of its own, for `ebb replay`: the one with
    the most events is FILE, the others are FILE.1, FILE.2 and so on. The exit status is
    COMMAND's.
    """
    target = asked["output"] or Path(f"{Path(command[0]).name}{recording.SUFFIX}")
    if asked["seconds"] is not None and not math.isfinite(asked["seconds"]):
        raise click.UsageError("--seconds wants a number")
    request = Request(list(command), target, asked["only"], asked["seconds"], asked["keep_all"])
    sys.exit(_record(request, layout, asked["overhead"], open_console()))


def _record(request: Request, layout: Layout, overhead: bool, console: Console) -> int:
    try:
        check_preloadable(request.command[0], layout.program(recording.RECORDER))
        run, found = recording.record(request, layout, _tell)
    except (NotPreloadableError, FolderError) as error:
        raise RefusedError(str(error)) from error
    if found:
        try:
            print_recordings(found, console)
        except OSError as error:  # its status is the command's all the same
            _tell(f"cannot print what was recorded: {error.strerror}")
    elif not run.lost:
        _tell("nothing was recorded: no process asked malloc for anything under the recorder")
    if overhead:
        print_overhead(run, _run_again(request), console)
    return run.status


def _run_again(request: Request) -> Run:
    _tell("once more, without the recorder")
    return recording.run_plain(request, _tell)


def _tell(line: str) -> None:
    click.echo(f"ebb: {line}", err=True)
