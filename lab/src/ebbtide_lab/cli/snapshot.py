# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb snapshot: the accounts of the heap of a running process, as a file."""

from pathlib import Path

import click

from ebbtide_lab.base.files import replace_text, write_new
from ebbtide_lab.cli.pids import Pid
from ebbtide_lab.inspect import heap, snapshots

STDOUT = "-"


@click.command("snapshot")
@click.argument("pid", type=Pid())
@click.option(
    "-o",
    "out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to; - is standard output (default: PID-DATE-TIME.ebb.json).",
)
def snapshot_command(pid: int, out: Path | None) -> None:
    """Write the accounts of the heap of the process PID, which has Ebbtide loaded, to a file.

    One JSON object: totals, size classes, labels, page faults, threads. ebb diff compares two of
    them. No thread of the process waits.
    """
    found = heap.examine(pid)
    text = snapshots.to_text(found)
    if str(out) == STDOUT:
        click.echo(text, nl=False)
        return
    if out is None:
        out = write_new(snapshots.file_names(found), text)
    else:
        replace_text(out, text)
    click.echo(f"Wrote {out}.")
