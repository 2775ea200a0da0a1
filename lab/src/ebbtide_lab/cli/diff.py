# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb diff: what grew in the heap of a process."""

import json
from pathlib import Path

import click

from ebbtide_lab.cli.pids import pid_of
from ebbtide_lab.cli.ranges import FloatRange
from ebbtide_lab.inspect import heap, lifetimes, snapshots
from ebbtide_lab.inspect.growth import Growth, growth
from ebbtide_lab.inspect.heap import Heap, Subject
from ebbtide_lab.measure import interrupts
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.growth import as_json, print_growth

SECONDS = 10
A_PATH = click.Path(path_type=Path)


@click.command("diff")
@click.argument("before", type=A_PATH, metavar="A|PID")
@click.argument("after", type=A_PATH, metavar="[B|PID]", required=False)
@click.option(
    "--seconds",
    type=FloatRange(0, 86400),
    help=f"Of a process: how long to wait, or until Ctrl-C (default: {SECONDS}).",
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object instead.")
def diff_command(before: Path, after: Path | None, seconds: float | None, is_json: bool) -> None:
    """Show what grew and what shrank from A to B, by size class, label and account.

    A and B are files of ebb snapshot; or A is one and the process PID is looked at now. PID
    alone: the process is looked at twice. The largest change comes first.
    """
    if after is None:
        pid = pid_of(before)
        if pid is None:
            raise click.UsageError("one snapshot: give a second one, or a PID")
        found = _watch(pid, SECONDS if seconds is None else seconds)
    elif seconds is not None:
        raise click.UsageError("--seconds is for one running process")
    else:
        found = growth(_look(before), _look(after))
    if is_json:
        click.echo(json.dumps(as_json(found)))
    else:
        print_growth(found, open_console())


def _look(given: Path) -> Heap:
    pid = pid_of(given)
    return snapshots.read(given) if pid is None else heap.examine(pid)


def _watch(pid: int, seconds: float) -> Growth:
    subject = Subject(pid)
    try:
        before = subject.look()
        with interrupts.kept():
            lifetimes.wait_beside(pid, seconds)
        return growth(before, subject.look())
    finally:
        subject.close()
