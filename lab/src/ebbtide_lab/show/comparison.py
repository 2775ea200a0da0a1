# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb compare` prints: warnings, regressions, improvements, and a count."""

from rich.console import Console
from rich.markup import escape

from ebbtide_lab.judge.compare import Change, Comparison
from ebbtide_lab.judge.stats import Ratio
from ebbtide_lab.show.fit import Grid
from ebbtide_lab.show.units import ABSENT, NO_INTERVAL, short

HEADINGS = ["workload", "figure", "A", "B", "runs", "B/A", "the peers' drift", "B/A corrected"]
DIRECTION = "B/A is the cost in B over the cost in A: below 1 is better."
CHANCE = 40  # one in so many 95 % intervals lies wholly above what it should hold


def print_comparison(found: Comparison, console: Console) -> None:
    for warning in found.warnings:
        console.print(f"[yellow]note[/] {escape(warning)}", soft_wrap=True)
    for broken in found.broken:
        console.print(f"[red]fails in B[/] {escape(broken)}", soft_wrap=True)
    worse, better = found.regressions, found.improvements
    if worse:
        _print_table(f"{found.arm}: regressions, the largest first", "red", worse, console)
    if better:
        _print_table(f"{found.arm}: improvements", "green", better, console)
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


def _print_table(title: str, colour: str, changes: list[Change], console: Console) -> None:
    table = Grid(title, HEADINGS, left=2, brief={})
    for change in changes:
        table.add(*_cells(change, colour))
    table.print(console)
    console.print(DIRECTION, style="dim")
    if any(change.corrected for change in changes):
        console.print(_caption(changes), style="dim")


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
    if not ratio.has_interval:
        return f"{ratio.value:.3f} {NO_INTERVAL}"
    # No markup: square brackets around a number are not a style.
    return f"{ratio.value:.3f} [{ratio.low:.3f}..{ratio.high:.3f}]"
