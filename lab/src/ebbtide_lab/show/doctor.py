# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb doctor` prints."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ebbtide_lab.machine.doctor import Finding
from ebbtide_lab.machine.noise import CoreNoise, Noise

COLOURS = {"good": "green", "note": "yellow", "bad": "red", "unknown": "dim"}
CORES_SHOWN = 8


def print_findings(findings: list[Finding], console: Console) -> None:
    table = Table(title="This machine, and what it does to figures")
    for heading in ("", "found", "state", "what it means", "what to do"):
        table.add_column(heading, overflow="fold")
    for each in findings:
        state = f"[{COLOURS[each.state]}]{each.state}[/]"
        cells = [escape(text) for text in (each.name, each.value, each.meaning, each.advice)]
        table.add_row(cells[0], cells[1], state, cells[2], cells[3])
    console.print(table)


def print_noise(noise: Noise, console: Console) -> None:
    table = Table(title="Noise: the same loop again and again, CPU time")
    for heading in ("core", "loops", "median", "middle half", "worst"):
        table.add_column(heading, justify="right")
    worst = sorted(noise.cores, key=_worst, reverse=True)[:CORES_SHOWN]
    for core in sorted(worst, key=lambda each: each.core):
        table.add_row(
            str(core.core),
            str(core.loops),
            f"{core.median_ms:.2f} ms",
            f"{core.spread_percent:.1f} %",
            f"+{core.worst_percent:.1f} %",
        )
    if len(noise.cores) > CORES_SHOWN:
        table.caption = f"the {CORES_SHOWN} noisiest of {len(noise.cores)} cores"
    console.print(table)
    console.print(
        f"Differences below {noise.level_percent:.1f} % between single runs mean nothing here; "
        "medians of interleaved runs resolve finer: look at the A/A column. "
        f"The loop waited for its core {noise.waiting_percent:.1f} % of the time."
    )


def _worst(core: CoreNoise) -> float:
    return core.worst_percent
