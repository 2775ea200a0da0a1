# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb top: a running process on a terminal, second by second."""

import os
import signal
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import click

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.cli.pids import Pid
from ebbtide_lab.cli.ranges import FloatRange
from ebbtide_lab.inspect import lifetimes
from ebbtide_lab.inspect.heap import Subject
from ebbtide_lab.inspect.labels import SHOWN
from ebbtide_lab.show.top.feed import Sampler

if TYPE_CHECKING:
    from ebbtide_lab.show.top.app import Top


@click.command("top")
@click.argument("pid", type=Pid())
@click.option(
    "--interval",
    type=FloatRange(0.2, 3600),
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    help="From one look to the next.",
)
def top_command(pid: int, interval: float) -> None:
    """Watch the process PID, which has Ebbtide loaded: where its memory is, and what changes.

    Its accounts with their last two minutes, and tables of block sizes, of the labels of regions
    and domains, of threads inside a pin, and of the stacks that hold memory. The process is not
    stopped; it is asked for its accounts as `ebb status` asks it. Press ? for the keys.
    """
    if not _has_terminal():
        raise LabError("ebb top needs a terminal; ebb status --watch does without")
    top = _screen()
    lifetimes.examine(pid)  # what is wrong with it, before anything else is
    subject = Subject(pid, SHOWN)
    try:
        first = subject.look()
    except BaseException:
        subject.close()
        raise
    app = top(first, subject, lambda: _sampler(pid), interval)
    app.run()
    if app.return_code:  # it has told why
        raise click.exceptions.Exit(app.return_code)
    if app.ended_by:
        signal.signal(app.ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), app.ended_by)


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _wanted(module: str, what: str) -> ModuleType:
    """Imported when it is wanted: it takes its time, and a system's own packages may be without
    what it needs."""
    try:
        return import_module(f"ebbtide_lab.show.top.{module}")
    except Exception as error:  # of a protobuf that is too old, no ImportError
        raise LabError(f"{what}: {error}") from error


def _screen() -> "type[Top]":
    top: type[Top] = _wanted("app", "ebb top needs the Python package textual, 7 or newer").Top
    return top


def _sampler(pid: int) -> Sampler:
    sampler: Sampler = _wanted(
        "sampler", "stacks need the Python packages of ebb profile"
    ).LiveStacks(pid)
    return sampler
