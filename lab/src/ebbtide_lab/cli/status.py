# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb status: who holds memory in a running process, by the labels of its regions and domains."""

import json
import time
from dataclasses import asdict

import click
from rich.console import Console
from rich.live import Live

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.cli.ranges import FloatRange
from ebbtide_lab.inspect import lifetimes
from ebbtide_lab.inspect.lifetimes import Status
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.status import print_status, render_status


@click.command("status")
@click.argument("pid", type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one a line, instead.")
@click.option(
    "--watch",
    "watch_s",
    type=FloatRange(0.1, 86400),
    metavar="SECONDS",
    help="Look again after so many seconds, until the process ends or Ctrl-C.",
)
def status_command(pid: int, as_json: bool, watch_s: float | None) -> None:
    """Show who holds memory in the process PID, which has Ebbtide loaded.

    One line for each label of regions, and for each domain. The process is not stopped and
    does not help; its numbers are as of each thread's last slow call.
    """
    found = lifetimes.examine(pid)
    if watch_s is None:
        _print(found, as_json, open_console())
        return
    try:
        _watch(found, watch_s, as_json, open_console())
    except KeyboardInterrupt:
        return


def _print(found: Status, as_json: bool, console: Console) -> None:
    if as_json:
        click.echo(json.dumps(asdict(found)))
    else:
        print_status(found, console)


def _watch(found: Status, watch_s: float, as_json: bool, console: Console) -> None:
    """On a terminal the table stays in its place; in a file each look is appended."""
    latest: Status | None = found
    if as_json or not console.is_terminal:
        while latest is not None:
            _print(latest, as_json, console)
            latest = _look_again(found.pid, watch_s)
    else:
        with Live(render_status(found), console=console, auto_refresh=False) as live:
            while latest is not None:
                live.update(render_status(latest), refresh=True)
                latest = _look_again(found.pid, watch_s)
    if not as_json:
        console.print(f"Process {found.pid} has ended.")


def _look_again(pid: int, after_s: float) -> Status | None:
    """None when the process has ended meanwhile."""
    time.sleep(after_s)
    try:
        return lifetimes.examine(pid)
    except LabError:
        if lifetimes.is_running(pid):
            raise
        return None
