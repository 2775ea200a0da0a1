# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb status: who holds memory in a running process: its accounts, and its labels."""

import json
import time

import click
from rich.console import Console
from rich.live import Live

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.cli.pids import Pid
from ebbtide_lab.cli.ranges import FloatRange
from ebbtide_lab.inspect import lifetimes
from ebbtide_lab.inspect.heap import Subject
from ebbtide_lab.inspect.labels import SHOWN
from ebbtide_lab.show import status
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.status import Look, print_status, render_status


@click.command("status")
@click.argument("pid", type=Pid())
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

    Where its resident memory is, the block sizes with the most free memory, and one line for
    each label of regions and each domain; of more than 64 those that hold most, and what the
    others hold (--json has all). The process is not stopped. It is asked for its accounts, which
    takes up to a second; where it cannot be asked, or does not answer, the labels alone are
    shown, as of each thread's last slow call.
    """
    lifetimes.examine(pid)  # what is wrong with it, before anything else is
    asked = _Asked(pid, None if as_json else SHOWN)
    try:
        if watch_s is None:
            _print(asked.look(), as_json, open_console())
        else:
            _watch(asked, watch_s, as_json, open_console())
    except KeyboardInterrupt:
        if watch_s is None:
            raise
    finally:
        asked.close()


class _Asked:
    """A process that is looked at again and again, with its help where it gives that."""

    def __init__(self, pid: int, most_labels: int | None) -> None:
        self.pid, self._most_labels = pid, most_labels
        self._subject: Subject | None = None
        self._why = ""
        try:
            self._subject = Subject(pid, most_labels)
        except LabError as error:
            self._why = str(error)

    def close(self) -> None:
        if self._subject is not None:
            self._subject.close()

    def look(self) -> Look:
        why = self._why
        if self._subject is not None:
            try:
                heap = self._subject.look()
                return Look(heap.status, heap, "")
            except LabError as error:
                why = str(error)
        return Look(lifetimes.examine(self.pid, self._most_labels), None, why)

    def look_again(self, after_s: float) -> Look | None:
        """None when the process has ended meanwhile."""
        time.sleep(after_s)
        try:
            return self.look()
        except LabError:
            if lifetimes.is_running(self.pid):
                raise
            return None


def _print(look: Look, as_json: bool, console: Console) -> None:
    if as_json:
        click.echo(json.dumps(status.as_json(look)))
    else:
        print_status(look, console)


def _watch(asked: _Asked, watch_s: float, as_json: bool, console: Console) -> None:
    """On a terminal the table stays in its place; in a file each look is appended."""
    latest: Look | None = asked.look()
    if as_json or not console.is_terminal:
        while latest is not None:
            _print(latest, as_json, console)
            latest = asked.look_again(watch_s)
    else:
        with Live(console=console, auto_refresh=False) as live:
            while latest is not None:
                live.update(render_status(latest), refresh=True)
                latest = asked.look_again(watch_s)
    if not as_json:
        console.print(f"Process {asked.pid} has ended.")
