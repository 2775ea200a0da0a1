# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb record: what a program asks of malloc, into a file that `ebb replay` replays."""

import sys
from pathlib import Path

import click
from rich.console import Console

from ebbtide_lab.base.layout import Layout
from ebbtide_lab.inspect.executable import NotPreloadableError, check_preloadable
from ebbtide_lab.measure import recording
from ebbtide_lab.measure.recording import FolderError, Request, Run
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.recordings import print_overhead, print_recordings

EXIT_REFUSED = 2


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
    type=click.FloatRange(min=0, min_open=True),
    help="End the command by SIGTERM after so long; Ctrl-C does it, too.",
)
@click.option("--all", "keep_all", is_flag=True, help="Keep recordings of under 1,000 events.")
@click.option("--overhead", is_flag=True, help="Run it once more unrecorded, to compare CPU time.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def record_command(
    layout: Layout,
    output: Path | None,
    only: str | None,
    seconds: float | None,
    keep_all: bool,
    overhead: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND and record what its processes ask of malloc, for `ebb replay`.

    Each process has a recording of its own. The one with the most events is FILE, the
    others are FILE.1, FILE.2 and so on. The exit status is COMMAND's.
    """
    target = output or Path(f"{Path(command[0]).name}{recording.SUFFIX}")
    request = Request(list(command), target, only, seconds, keep_all)
    sys.exit(_record(request, layout, overhead, open_console()))


def _record(request: Request, layout: Layout, overhead: bool, console: Console) -> int:
    try:
        check_preloadable(request.command[0], layout.program(recording.RECORDER))
        run, found = recording.record(request, layout, _tell)
    except (NotPreloadableError, FolderError) as error:
        refused = click.ClickException(str(error))
        refused.exit_code = EXIT_REFUSED
        raise refused from error
    if found:
        print_recordings(found, console)
    else:
        _tell("nothing was recorded: no process asked malloc for anything under the recorder")
    if overhead:
        print_overhead(run, _run_again(request), console)
    return run.status


def _run_again(request: Request) -> Run:
    _tell("once more, without the recorder")
    return recording.run_plain(request)


def _tell(line: str) -> None:
    click.echo(f"ebb: {line}", err=True)
