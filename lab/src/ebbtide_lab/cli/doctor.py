# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb doctor: what about this machine changes figures; or who stalls whom in a process."""

import json
import sys
from dataclasses import asdict

import click

from ebbtide_lab.cli.pids import Pid
from ebbtide_lab.cli.ranges import FloatRange
from ebbtide_lab.inspect import stalls
from ebbtide_lab.machine import doctor, noise
from ebbtide_lab.machine.doctor import Machine
from ebbtide_lab.measure import interrupts
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.doctor import print_findings, print_noise
from ebbtide_lab.show.stalls import print_stalls

NOISE_SECONDS = 4.0
STALL_MS = 1000
EXIT_STALLED = 1


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option(
    "--seconds",
    type=FloatRange(0, 3600),
    default=NOISE_SECONDS,
    show_default=True,
    help="How long to measure the noise; Ctrl-C leaves it out.",
)
@click.option("--pid", type=Pid(), help="Examine this process instead.")
@click.option(
    "--stall-ms",
    type=click.IntRange(1),
    default=STALL_MS,
    show_default=True,
    help="With --pid: a pin that lasts for longer stalls the others.",
)
def doctor_command(as_json: bool, seconds: float, pid: int | None, stall_ms: int) -> None:
    """Examine the machine: what it does to figures, and what to do about it.

    With --pid: examine a running process that has Ebbtide loaded, without its help. Shows
    the threads inside a pin and what waits for them, without what each thread has retired last
    (ebb top knows that); the exit status is 1 when one stalls.
    """
    if pid is not None:
        _examine_process(pid, stall_ms, as_json)
        return
    findings = doctor.examine(Machine.this())
    measured = None
    with interrupts.kept() as interrupt:
        measured = noise.measure(seconds)
    if as_json:
        told = asdict(measured) if measured else None
        facts = {"findings": [asdict(each) for each in findings], "noise": told}
        click.echo(json.dumps(facts, indent=2))
    else:
        console = open_console()
        print_findings(findings, console)
        if measured:
            print_noise(measured, console)
    if interrupt.signal:
        sys.exit(128 + interrupt.signal)


def _examine_process(pid: int, stall_ms: int, as_json: bool) -> None:
    found = stalls.examine(pid)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        print_stalls(found, pid, stall_ms, open_console())
    sys.exit(EXIT_STALLED if found.oldest_ms >= stall_ms else 0)
