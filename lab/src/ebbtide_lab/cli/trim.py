# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb trim: a running process gives back the memory that is free in it."""

import json

import click

from ebbtide_lab.cli.pids import Pid
from ebbtide_lab.inspect import board, control, lifetimes
from ebbtide_lab.inspect.control import Control
from ebbtide_lab.inspect.image import Process, told
from ebbtide_lab.show.status import human_bytes


@click.command("trim")
@click.argument("pid", type=Pid())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def trim_command(pid: int, as_json: bool) -> None:
    """Ask the process PID, which has Ebbtide loaded, to give back all memory that is free in it.

    As ebb_trim does. In a process with threads its helper does it, and no other thread waits. A
    process of one thread, or one without a helper, does it in its next slow call; without a
    helper, what lies in the caches of sleeping threads stays there.
    """
    process = Process(pid, writes=True)
    try:
        with told(pid):
            before = lifetimes.resident_bytes(process.folder)
            Control(process, board.require(process).control).ask(control.TRIM)
            after = lifetimes.resident_bytes(process.folder)
    finally:
        process.close()
    if as_json:
        click.echo(json.dumps({"pid": pid, "before_bytes": before, "after_bytes": after}))
    else:
        click.echo(
            f"Process {pid}: {human_bytes(before)} resident before, {human_bytes(after)} now."
        )
