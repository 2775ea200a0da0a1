# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb run: any program under an allocator, and the proof that it was loaded."""

import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypedDict, Unpack

import click

from ebbtide_lab.arms import allocators
from ebbtide_lab.arms.allocators import EBBTIDE, Allocator
from ebbtide_lab.base.errors import LabError, RunError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli import complete
from ebbtide_lab.measure import preload

EXIT_UNPROVED = 3
PROOF_TIMEOUT_S = 2.0
PROOF_POLL_S = 0.01


class Asked(TypedDict):
    """What is asked of the checks."""

    checks: bool
    goes_on: bool
    samples: bool
    report: Path | None


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.option(
    "--with",
    "name",
    default=EBBTIDE,
    show_default=True,
    help="The allocator.",
    shell_complete=complete.allocator,
)
@click.option(
    "--check",
    "checks",
    is_flag=True,
    help="Check every block (EBB_CHECK=1): misuse of the heap ends the program with a report.",
)
@click.option(
    "--log",
    "goes_on",
    is_flag=True,
    help="The same, but the program goes on where that is harmless (EBB_CHECK=log).",
)
@click.option(
    "--sample",
    "samples",
    is_flag=True,
    help="For production: a hundred blocks a second are checked, others not (EBB_CHECK=sample).",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    help="Append each report to this file, as a line of JSON (EBB_CHECK_REPORT).",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def run_command(
    layout: Layout, name: str, command: tuple[str, ...], **asked: Unpack[Asked]
) -> None:
    """Run COMMAND under an allocator and prove that it was loaded.

    The exit status is COMMAND's, or 3 when another allocator was used.
    """
    options = _check_options(asked)
    if options and name != EBBTIDE:
        raise click.UsageError(f"--check, --log, --sample, --report are {EBBTIDE}'s, not {name}'s")
    allocator = _present(name, layout)
    with tempfile.TemporaryDirectory(prefix="ebb-") as scratch:
        testimony = Path(scratch) / "witness"
        settings = preload.preload_settings(
            allocators.over_bundled(allocator), layout.program(preload.WITNESS), testimony
        )
        environment = {**os.environ, **settings, **options}
        sys.exit(_run_proved(command, environment, testimony, allocator))


def _check_options(asked: Asked) -> dict[str, str]:
    values = {"on": asked["checks"], "log": asked["goes_on"], "sample": asked["samples"]}
    chosen = [value for value, is_asked in values.items() if is_asked]
    if len(chosen) > 1:
        raise click.UsageError("--check, --log and --sample are three ways: one of them")
    options = {"EBB_CHECK": chosen[0]} if chosen else {}
    if asked["report"] is None:
        return options
    report = asked["report"].absolute()
    if not _may_append(report):
        raise LabError(f"cannot write reports to {report}")
    return options | {"EBB_CHECK_REPORT": str(report)}


def _may_append(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return os.access(os.path.dirname(os.path.realpath(path)), os.W_OK)
    except OSError:
        return False
    return not stat.S_ISDIR(mode) and os.access(path, os.W_OK)


def _run_proved(
    command: tuple[str, ...], environment: dict[str, str], testimony: Path, allocator: Allocator
) -> int:
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise LabError(f"cannot start {command[0]}: {error.strerror}") from error
    said = _report_proof(child, testimony, allocator)
    code = _wait(child)
    try:
        preload.check_testimony(testimony, allocator)
    except RunError as error:
        if str(error) != said:
            click.echo(f"ebb: {error}", err=True)
        return EXIT_UNPROVED
    return code if code >= 0 else 128 - code


def _report_proof(child: subprocess.Popen[bytes], testimony: Path, allocator: Allocator) -> str:
    """Says soon after the start which object malloc came from: a server runs for long. What is
    wrong with it, if anything."""
    deadline = time.monotonic() + PROOF_TIMEOUT_S
    while not testimony.is_file() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(PROOF_POLL_S)
    if not testimony.is_file():
        return ""
    try:
        preload.check_testimony(testimony, allocator)
    except RunError as error:
        click.echo(f"ebb: {error}", err=True)
        return str(error)
    loaded = testimony.read_text(encoding="utf-8").partition("\n")[0].partition(" ")[2]
    click.echo(f"ebb: malloc is {allocator.name}'s: {loaded}", err=True)
    return ""


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
