# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb doctor: what about this machine changes figures."""

import json
from dataclasses import asdict

import click

from ebbtide_lab.machine import doctor, noise
from ebbtide_lab.machine.doctor import Machine
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.doctor import print_findings, print_noise

NOISE_SECONDS = 4.0


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=NOISE_SECONDS,
    show_default=True,
    help="How long to measure the noise.",
)
def doctor_command(as_json: bool, seconds: float) -> None:
    """Examine the machine: what it does to figures, and what to do about it."""
    findings = doctor.examine(Machine.this())
    measured = noise.measure(seconds)
    if as_json:
        facts = {"findings": [asdict(each) for each in findings], "noise": asdict(measured)}
        click.echo(json.dumps(facts, indent=2))
        return
    console = open_console()
    print_findings(findings, console)
    print_noise(measured, console)
