# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables: every arm's figures, ratios with losses first, and the bars."""

import math
from statistics import median

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ebbtide_lab import machine, verdict
from ebbtide_lab.allocators import EBBTIDE, EBBTIDE_AGAIN, FLOOR, Allocator
from ebbtide_lab.runner import Results, Row
from ebbtide_lab.stats import Ratio, modes

ABSENT = "-"
IDLE_FIGURE = "rss_after_idle_mb"
SLOWER = 1.02  # what counts as a loss, in time and in memory
FASTER = 1 / SLOWER


def print_allocators(arms: list[Allocator], console: Console) -> None:
    table = Table("allocator", "version", "shared object", "state", title="Allocators")
    for arm in arms:
        state = f"[red]missing:[/] {escape(arm.problem)}" if arm.problem else "[green]works[/]"
        table.add_row(arm.name, arm.version or ABSENT, str(arm.path or "the program's own"), state)
    console.print(table)


def print_results(results: Results, console: Console) -> None:
    """All that a session found; what went wrong comes last, where it is seen."""
    console.print(machine.describe(results.facts), style="dim")
    if any(EBBTIDE in row.samples for row in results.rows):
        _print_ratios(results, console)
    _print_figures(results, console)
    _print_bars(results, console)
    _print_problems(results, console)


# --- ratios -----------------------------------------------------------------------


def _by_loss(row: Row) -> float:
    compared = verdict.compare_time(row)
    return -compared.ratio.value if compared else -math.inf


def _print_ratios(results: Results, console: Console) -> None:
    table = Table(title="Ebbtide against its best peer, losses first (below 1: Ebbtide is better)")
    for heading in ("workload", "runs", "time ratio", "best peer", "other clock", "peak RSS"):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    table.add_column("leanest peer", justify="right")
    table.add_column("RSS when idle", justify="right")
    table.add_column("A/A", justify="right")
    for row in sorted(results.rows, key=_by_loss):
        table.add_row(row.scenario.name, *_ratio_cells(row))
    console.print(table)


def _ratio_cells(row: Row) -> list[str]:
    scenario = row.scenario
    time, rss = verdict.compare_time(row), verdict.compare_rss(row)
    other_clock = "wall" if scenario.clock == "cpu" else "cpu"
    other = verdict.compare_time(row, other_clock)
    return [
        str(len(row.samples.get(EBBTIDE, []))),
        f"{_shaded(time.ratio)} {scenario.clock}" if time else "[red]failed[/]",
        time.best if time else ABSENT,
        f"{other.ratio.value:.2f} {other_clock}" if other else ABSENT,
        _shaded(rss.ratio, interval=False) if rss else ABSENT,
        rss.best if rss else ABSENT,
        _idle_cell(row),
        _interval(verdict.noise(row)),
    ]


def _idle_cell(row: Row) -> str:
    """What stays resident after a burst, beside the peer that gives back most."""
    idle = {
        arm: median(row.figure(arm, IDLE_FIGURE))
        for arm in (EBBTIDE, *verdict.peers_of(row))
        if _has_figure(row, arm, IDLE_FIGURE)
    }
    own = idle.pop(EBBTIDE, None)
    if own is None or not idle:
        return ABSENT
    best = min(idle, key=idle.__getitem__)
    return f"{own:.0f} MB; {best} {idle[best]:.0f} MB"


def _shaded(ratio: Ratio, interval: bool = True) -> str:
    colour = "red" if ratio.value > SLOWER else "green" if ratio.value < FASTER else "yellow"
    text = f"[{colour}]{ratio.value:.2f}[/]"
    return f"{text} [{ratio.low:.2f}..{ratio.high:.2f}]" if interval else text


def _interval(ratio: Ratio | None) -> str:
    return f"{ratio.low:.2f}..{ratio.high:.2f}" if ratio else ABSENT


# --- figures ----------------------------------------------------------------------


def _print_figures(results: Results, console: Console) -> None:
    present = {name for row in results.rows for name in (*row.samples, *row.failures)}
    arms = [arm.name for arm in results.arms if arm.name in present and arm.name != EBBTIDE_AGAIN]
    title = "Median (min..max); peak RSS in MB below"
    table = Table(title=title, show_lines=True)
    table.add_column("workload")
    for arm in arms:
        table.add_column(arm, justify="right")
    for row in results.rows:
        name = f"{row.scenario.name}\n[dim]{_unit(row)}[/]"
        table.add_row(name, *(_figure_cell(row, arm) for arm in arms))
    console.print(table)


def _unit(row: Row) -> str:
    clock = row.scenario.clock
    if row.scenario.kind == "workload":
        return f"M ops per {clock} second"
    return f"{clock} milliseconds" if row.scenario.kind == "start" else f"{clock} seconds"


def _shown(row: Row, costs: list[float]) -> list[float]:
    """Costs in the unit of the row: nanoseconds per op turn into M ops per second."""
    if row.scenario.kind == "workload":
        return [1e3 / cost for cost in costs]
    return [cost * 1e3 for cost in costs] if row.scenario.kind == "start" else costs


def _figure_cell(row: Row, arm: str) -> str:
    if arm in row.failures:
        return "[red]failed[/]"
    if arm not in row.samples:
        return ABSENT
    values = _shown(row, row.costs(arm))
    lines = [f"{_short(median(values))} [dim]({_short(min(values))}..{_short(max(values))})[/]"]
    found = modes(values) if row.scenario.bimodal else None
    if found:
        lines.append(f"[dim]modes {_short(found[0])} and {_short(found[1])}[/]")
    if arm != FLOOR:
        lines.append(f"{median(row.figure(arm, 'peak_rss_kb')) * 1024e-6:.1f} MB")
    if _has_figure(row, arm, IDLE_FIGURE):
        lines.append(f"idle {median(row.figure(arm, IDLE_FIGURE)):.1f} MB")
    return "\n".join(lines)


def _has_figure(row: Row, arm: str, name: str) -> bool:
    return arm in row.samples and name in row.samples[arm][0]


def _short(value: float) -> str:
    """Three figures that count."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


# --- bars and problems ------------------------------------------------------------


def _print_bars(results: Results, console: Console) -> None:
    rows = [row for row in results.rows if row.scenario.bars]
    if not rows or EBBTIDE not in {arm.name for arm in results.arms}:
        return
    table = Table("workload", "bar", "figure", "best peer", "verdict", title="Bars")
    missed = held = 0
    for row in rows:
        for bar in row.scenario.bars:
            outcome = verdict.judge(row, bar)
            missed, held = missed + (not outcome.holds), held + outcome.holds
            value = f"{outcome.value:.3f}" if outcome.value is not None else outcome.why or ABSENT
            word = "[green]PASS[/]" if outcome.holds else "[red]MISS[/]"
            table.add_row(row.scenario.name, outcome.claim, value, outcome.best, word)
    console.print(table)
    console.print(f"{held} bars held, {missed} missed")


def _print_problems(results: Results, console: Console) -> None:
    for arm in results.arms:
        if arm.problem:
            console.print(f"[yellow]missing[/] {arm.name}: {escape(arm.problem)}")
    for row in results.rows:
        for arm_name, why in row.failures.items():
            console.print(f"[red]failed[/] {row.scenario.name} under {arm_name}: {escape(why)}")
    if results.interrupted:
        console.print("[yellow]interrupted[/]: the table holds the runs that were finished")
