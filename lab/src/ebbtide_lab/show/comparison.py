# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb compare` prints: warnings, regressions, improvements, and a count."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ebbtide_lab.judge.compare import Change, Comparison
from ebbtide_lab.judge.stats import Ratio
from ebbtide_lab.show.units import ABSENT, short

CHANCE = 40  # one in so many 95 % intervals lies wholly above what it should hold


def print_comparison(found: Comparison, console: Console) -> None:
    for warning in found.warnings:
        console.print(f"[yellow]note[/] {escape(warning)}", soft_wrap=True)
    for broken in found.broken:
        console.print(f"[red]fails in B[/] {escape(broken)}", soft_wrap=True)
    worse, better = found.regressions, found.improvements
    if worse:
        console.print(_table(f"{found.arm}: regressions, the largest first", "red", worse))
    if better:
        console.print(_table(f"{found.arm}: improvements", "green", better))
    rest = len(found.changes) - len(worse) - len(better)
    console.print(
        f"{len(worse) + len(found.broken)} regressions, {len(better)} improvements, "
        f"{rest} figures without a clear change of more than {found.threshold:.1%}."
    )
    if found.unseen is not None and found.unseen > found.threshold:
        console.print(
            f"In half of the other times a slow-down of {found.unseen:.1%} or more could hide "
            "in the noise: more runs see finer.",
            style="dim",
        )
    if worse:
        console.print(
            f"{len(found.changes)} figures were judged; noise alone puts about one interval "
            f"in {CHANCE} wholly above 1. Measure a lone small regression again.",
            style="dim",
        )


def _table(title: str, colour: str, changes: list[Change]) -> Table:
    table = Table(title=title)
    table.add_column("workload")
    table.add_column("figure")
    for heading in ("A", "B", "runs", "B/A", "the peers' drift", "B/A corrected"):
        table.add_column(heading, justify="right")
    for change in changes:
        table.add_row(*_cells(change, colour))
    if any(change.corrected for change in changes):
        table.caption = _caption(changes)
    return table


def _cells(change: Change, colour: str) -> list[str]:
    plain, corrected = _ratio(change.plain), ABSENT
    if change.corrected:
        corrected = f"[{colour}]{_ratio(change.corrected)}[/]"
    else:
        plain = f"[{colour}]{plain}[/]"
    return [
        f"{change.group}/{change.scenario}",
        change.figure,
        short(change.typical(change.before)),
        short(change.typical(change.after)),
        f"{len(change.before)}, {len(change.after)}",
        plain,
        f"{change.drift:.3f}" if change.corrected else ABSENT,
        corrected,
    ]


def _caption(changes: list[Change]) -> str:
    counts = sorted({change.peers for change in changes if change.corrected})
    peers = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        "Corrected for the machine's drift, estimated by the "
        f"{peers} peers that did not change. Coloured: what is judged."
    )


def _ratio(ratio: Ratio) -> str:
    # No markup: square brackets around a number are not a style.
    return f"{ratio.value:.3f} [{ratio.low:.3f}..{ratio.high:.3f}]"
