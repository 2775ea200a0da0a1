# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables: every arm's figures, ratios with losses first, and the bars."""

import math
from statistics import median

from rich.console import Console
from rich.markup import escape

from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_AGAIN, FLOOR, NOT_BUILT, Allocator
from ebbtide_lab.judge import verdict
from ebbtide_lab.judge.stats import Ratio, modes
from ebbtide_lab.machine import card
from ebbtide_lab.results.model import Results, Row
from ebbtide_lab.show.fit import Grid, codes
from ebbtide_lab.show.units import ABSENT, DIRECTION, NO_INTERVAL, short, shown, unit_of

IDLE_FIGURE = "rss_after_idle_mb"
SLOWER = 1.02  # what counts as a loss, in time and in memory
FASTER = 1 / SLOWER
RATIO_HEADINGS = (
    *("runs", "ratio", "best peer", "other clock", "peak RSS", "leanest peer"),
    *("RSS when idle", "A/A"),
)


def print_allocators(arms: list[Allocator], console: Console) -> None:
    table = Grid("Allocators", ["allocator", "version", "shared object", "state"], left=4)
    for arm in arms:
        path = str(arm.path or (ABSENT if arm.problem else "the program's own"))
        table.add(arm.name, arm.version or ABSENT, escape(path), _state(arm))
    table.print(console)


def _state(arm: Allocator) -> str:
    if not arm.problem:
        return "[green]works[/]"
    if arm.problem == NOT_BUILT:
        return f"[yellow]{NOT_BUILT}[/]"
    return f"[red]missing:[/] {escape(arm.problem)}"


def print_results(results: Results, console: Console) -> None:
    """All that a session found; what went wrong comes last, where it is seen."""
    console.print(card.describe(results.facts), style="dim")
    if any(EBBTIDE in row.samples for row in results.rows):
        _print_ratios(results, console)
    _print_figures(results, console)
    _print_means(results, console)
    _print_bars(results, console)
    _print_problems(results, console)


# --- ratios -----------------------------------------------------------------------


def _by_loss(row: Row) -> float:
    compared = verdict.compare(row)
    return -compared.ratio.value if compared else -math.inf


def _print_ratios(results: Results, console: Console) -> None:
    table = Grid(
        "Ebbtide against its best peer, losses first",
        ["workload", *RATIO_HEADINGS],
        brief=codes(arm.name for arm in results.arms),
    )
    for row in sorted(results.rows, key=_by_loss):
        table.add(row.scenario.name, *_ratio_cells(row))
    table.print(console)
    _print_direction(console)


def _print_direction(console: Console) -> None:
    console.print(DIRECTION, style="dim")


def _ratio_cells(row: Row) -> list[str]:
    scenario = row.scenario
    cost, rss = verdict.compare(row), verdict.compare(row, verdict.PEAK_RSS)
    other_clock = "wall" if scenario.cost == "cpu" else "cpu"
    other = verdict.compare(row, other_clock)
    return [
        str(len(row.samples.get(EBBTIDE, []))),
        f"{_shaded(cost.ratio)} {scenario.cost}" if cost else _why_none(row),
        cost.best if cost else ABSENT,
        f"{other.ratio.value:.2f} {other_clock}" if other else ABSENT,
        _shaded(rss.ratio, interval=False) if rss else ABSENT,
        rss.best if rss else ABSENT,
        _idle_cell(row),
        _interval(verdict.noise(row)),
    ]


def _why_none(row: Row) -> str:
    return "[red]failed[/]" if EBBTIDE in row.failures else ABSENT


def _idle_cell(row: Row) -> str:
    """What stays resident after a burst, beside the peer that gives back most."""
    idle = {
        arm: median(row.figure(arm, IDLE_FIGURE))
        for arm in (EBBTIDE, *verdict.peers_of(row))
        if row.figure(arm, IDLE_FIGURE)
    }
    own = idle.pop(EBBTIDE, None)
    if own is None or not idle:
        return ABSENT
    best = min(idle, key=idle.__getitem__)
    return f"{own:.0f} MB; {best} {idle[best]:.0f} MB"


def _shaded(ratio: Ratio, interval: bool = True) -> str:
    colour = "red" if ratio.value > SLOWER else "green" if ratio.value < FASTER else "yellow"
    text = f"[{colour}]{ratio.value:.2f}[/]"
    return f"{text} ({_interval(ratio)})" if interval else text


def _interval(ratio: Ratio | None) -> str:
    if ratio is None:
        return ABSENT
    return f"{ratio.low:.2f}..{ratio.high:.2f}" if ratio.has_interval else NO_INTERVAL


# --- figures ----------------------------------------------------------------------


def _print_figures(results: Results, console: Console) -> None:
    present = {
        name for row in results.rows for name in (*row.samples, *row.failures, *row.refusals)
    }
    arms = [arm.name for arm in results.arms if arm.name in present and arm.name != EBBTIDE_AGAIN]
    table = Grid("Median (min..max); peak RSS in MB below", ["workload", *arms], lines=True)
    for row in results.rows:
        name = f"{row.scenario.name}\n[dim]{unit_of(row)}[/]"
        table.add(name, *("\n".join(_figures(row, arm)) for arm in arms))
    if table.fits(console):
        table.print(console)
    else:
        _print_apart(results.rows, arms, console)


def _print_apart(rows: list[Row], arms: list[str], console: Console) -> None:
    """Where all figures of a cell do not fit, each kind has a table of its own."""
    titles = ("Median", "Least and most", "Peak RSS, MB", "RSS when idle, MB")
    brief = codes(arms)
    for title, tell in zip(titles, (_middle, _range, _peak, _idle), strict=True):
        table = Grid(title, ["workload", *arms], brief=brief)
        for row in rows:
            unit = f" [dim]{unit_of(row)}[/]" if tell is _middle else ""
            cells = [tell(row, arm) for arm in arms]
            if any(cells):
                table.add(f"{row.scenario.name}{unit}", *(cell or ABSENT for cell in cells))
        if table.rows:
            table.print(console)


def _figures(row: Row, arm: str) -> list[str]:
    told = [f"{_middle(row, arm)} {_range(row, arm)}".strip() or ABSENT]
    if _peak(row, arm):
        told.append(f"{_peak(row, arm)} MB")
    if _idle(row, arm):
        told.append(f"idle {_idle(row, arm)} MB")
    return told


def _middle(row: Row, arm: str) -> str:
    if arm in row.failures:
        return "[red]failed[/]"
    if arm not in row.samples:
        return "[dim]not run[/]" if arm in row.refusals else ""
    return short(median(shown(row, row.costs(arm))))


def _range(row: Row, arm: str) -> str:
    if arm in row.failures or arm not in row.samples:
        return ""
    values = shown(row, row.costs(arm))
    told = f"[dim]({short(min(values))}..{short(max(values))})[/]"
    found = modes(values) if row.scenario.bimodal else None
    return f"{told} [dim]modes {short(found[0])} and {short(found[1])}[/]" if found else told


def _peak(row: Row, arm: str) -> str:
    values = [] if arm == FLOOR or arm in row.failures else row.figure(arm, verdict.PEAK_RSS)
    return f"{median(values) * 1024e-6:.1f}" if values else ""


def _idle(row: Row, arm: str) -> str:
    values = [] if arm in row.failures else row.figure(arm, IDLE_FIGURE)
    return f"{median(values):.1f}" if values else ""


# --- means, bars and problems ------------------------------------------------------------


def _print_means(results: Results, console: Console) -> None:
    means = verdict.geometric_means(results.rows)
    if not means:
        return
    best = next(iter(means))
    count = sum(row.scenario.micro for row in results.rows)
    word = "[green]PASS[/]" if means[best] <= verdict.MICRO_AT_MOST else "[red]MISS[/]"
    peers = ", ".join(f"{peer} {value:.2f}" for peer, value in means.items())
    console.print(
        f"Micro set, geometric mean of Ebbtide's time over a peer's in {count} rows: {peers}. "
        f"The best single peer is {best}; claim: at most {verdict.MICRO_AT_MOST:.4f}: {word}"
    )


def _print_bars(results: Results, console: Console) -> None:
    rows = [row for row in results.rows if row.scenario.bars]
    if not rows or EBBTIDE not in {arm.name for arm in results.arms}:
        return
    table = Grid("Claims", ["workload", "claim", "figure", "best peer", "verdict"], left=5)
    missed = held = 0
    for row in rows:
        for bar in row.scenario.bars:
            outcome = verdict.judge(row, bar, results.rows)
            missed, held = missed + (not outcome.holds), held + outcome.holds
            value = f"{outcome.value:.3f}" if outcome.value is not None else outcome.why or ABSENT
            word = "[green]PASS[/]" if outcome.holds else "[red]MISS[/]"
            table.add(row.scenario.name, escape(outcome.claim), value, outcome.best or ABSENT, word)
    table.print(console)
    _print_direction(console)
    console.print(f"{held} claims held, {missed} missed")


def _print_problems(results: Results, console: Console) -> None:
    for arm in results.arms:
        if arm.problem:
            console.print(f"[yellow]missing[/] {arm.name}: {escape(arm.problem)}")
    for row in results.rows:
        for arm_name, why in row.failures.items():
            console.print(f"[red]failed[/] {row.scenario.name} under {arm_name}: {escape(why)}")
        for arm_name, why in row.refusals.items():
            console.print(f"not run: {row.scenario.name} under {arm_name}: {escape(why)}")
    if results.interrupted:
        console.print("[yellow]interrupted[/]: the table holds the runs that were finished")
