# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb run: any program under an allocator, and the proof that it was loaded."""

import os
import signal
import stat
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

import click

from ebbtide_lab.arms import allocators
from ebbtide_lab.arms.allocators import EBBTIDE, Allocator
from ebbtide_lab.base.errors import LabError, RunError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli import complete
from ebbtide_lab.inspect.executable import NotPreloadableError, check_preloadable
from ebbtide_lab.measure import preload
from ebbtide_lab.measure.signals import Child, Signals

EXIT_UNPROVED = 3
PROOF_TIMEOUT_S = 2.0
PROOF_POLL_S = 0.01
LOOK_S = 60.0  # at the child, whose end is told by SIGCHLD
PASSED_ON = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
TYPED = (signal.SIGINT, signal.SIGQUIT)
SI_KERNEL = 128  # who has sent it


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

    The exit status is COMMAND's, or 3 when another allocator was used. Signals that would end ebb
    go to COMMAND.
    """
    options = _check_options(asked)
    if options and name != EBBTIDE:
        raise click.UsageError(f"--check, --log, --sample, --report are {EBBTIDE}'s, not {name}'s")
    allocator = _present(name, layout)
    with (
        Signals((*PASSED_ON, signal.SIGCHLD)) as signals,
        tempfile.TemporaryDirectory(prefix="ebb-") as scratch,
    ):
        proof = _Proof(allocator, layout.program(preload.WITNESS), Path(scratch) / "witness")
        settings = preload.preload_settings(
            allocators.over_bundled(allocator), proof.witness, proof.testimony
        )
        sys.exit(_run_proved(command, {**os.environ, **settings, **options}, proof, signals))


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


@dataclass(frozen=True)
class _Proof:
    """That this allocator was loaded."""

    allocator: Allocator
    witness: Path
    testimony: Path

    def flaw(self, program: str) -> str:
        """What is wrong with it, if anything."""
        try:
            preload.check_testimony(self.testimony, self.allocator)
        except RunError as error:
            return self._cause(program) or str(error)
        return ""

    def _cause(self, program: str) -> str:
        if self.testimony.is_file():
            return ""
        try:
            check_preloadable(program, self.witness)
        except NotPreloadableError as error:
            return f"not proved that the allocator was loaded: {error}"
        return ""


def _run_proved(
    command: tuple[str, ...], environment: dict[str, str], proof: _Proof, signals: Signals
) -> int:
    child = signals.start(command, environment)
    said = _report_proof(child, command[0], proof, signals)
    while not child.is_over():
        _pass_on(signals, child, LOOK_S)
    flaw = proof.flaw(command[0])
    if flaw not in ("", said):
        click.echo(f"ebb: {flaw}", err=True)
    return EXIT_UNPROVED if flaw else child.status


def _report_proof(child: Child, program: str, proof: _Proof, signals: Signals) -> str:
    """Says soon after the start which object malloc came from: a server runs for long. What is
    wrong with it, if anything."""
    deadline = time.monotonic() + PROOF_TIMEOUT_S
    testimony = proof.testimony
    while not testimony.is_file() and not child.is_over() and time.monotonic() < deadline:
        _pass_on(signals, child, PROOF_POLL_S)
    if not testimony.is_file():
        return ""
    flaw = proof.flaw(program)
    if flaw:
        click.echo(f"ebb: {flaw}", err=True)
        return flaw
    loaded = testimony.read_text(encoding="utf-8").partition("\n")[0].partition(" ")[2]
    click.echo(f"ebb: malloc is {proof.allocator.name}'s: {loaded}", err=True)
    return ""


def _pass_on(signals: Signals, child: Child, within_s: float) -> None:
    """What is sent to us is meant for the command; what is typed, as Ctrl-C, the terminal sends to
    both. How the command ends is its own affair."""
    sent = signals.take(within_s)
    if sent is None or sent.si_signo not in PASSED_ON or child.is_over():
        return
    if sent.si_signo not in TYPED or sent.si_code != SI_KERNEL:
        os.kill(child.pid, sent.si_signo)


def _present(name: str, layout: Layout) -> Allocator:
    allocator = allocators.find(name, layout)
    if allocator.problem:
        raise LabError(f"{name}: {allocator.problem}")
    return allocator
