# SPDX-License-Identifier: MIT OR Apache-2.0
"""One row of the results as a section: what it imitates, its command, charts and tables."""

import shlex
from dataclasses import dataclass, field
from itertools import zip_longest
from math import log10
from statistics import median

from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_AGAIN, FLOOR
from ebbtide_lab.judge import verdict
from ebbtide_lab.results.model import Results, Row
from ebbtide_lab.scenarios.described import describe
from ebbtide_lab.scenarios.model import Scenario
from ebbtide_lab.show.report import charts, matrix, percentiles
from ebbtide_lab.show.report.arms import arm_table
from ebbtide_lab.show.report.cells import (
    ALONE,
    Cell,
    Ratios,
    Table,
    interval,
    label_of,
    not_run,
    ratio_cell,
)
from ebbtide_lab.show.units import ABSENT, DIRECTION, short, unit_of

CLOCK_NAMES = {"cpu": "CPU time", "wall": "wall time"}
NINES = {0.301: "50", 1.0: "90", 2.0: "99", 3.0: "99.9", 4.0: "99.99", 5.0: "99.999"}
CURVE_STEPS = 12  # points of a curve between two nines


@dataclass(frozen=True)
class Chart:
    """A drawing, what it shows in words, and its figures as a table."""

    title: str
    svg: str
    table: Table | None = None
    words: str = ""


@dataclass(frozen=True)
class Section:
    name: str
    group: str
    anchor: str
    imitates: str
    summary: list[str]
    command: str
    arms: Table
    charts: list[Chart] = field(default_factory=list)
    bars: Table | None = None
    failures: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)


def section(row: Row, results: Results, ratios: Ratios, anchor: str) -> Section:
    ran = [arm.name for arm in results.arms if arm.name in row.samples]
    hues = hues_of(results)
    drawn = _percentile_charts(row, ran, hues) + _series_charts(row, ran, hues)
    return Section(
        row.scenario.name,
        row.group,
        anchor,
        describe(row.scenario).imitates,
        _summary(row, ratios),
        command_of(row.scenario),
        arm_table(row, ran, ratios),
        drawn,
        _bar_table(row, results.rows),
        row.failures,
        _not_run(row, results),
    )


def _not_run(row: Row, results: Results) -> dict[str, str]:
    """Of the allocators of the session, those that cannot run this."""
    reasons = row.not_run
    return {arm.name: not_run(reasons[arm.name]) for arm in results.arms if arm.name in reasons}


def hues_of(results: Results) -> dict[str, int | None]:
    """A colour for each arm, the same in all charts; Ebbtide has its own."""
    others = [arm.name for arm in results.arms if arm.name != EBBTIDE]
    return {EBBTIDE: None, **{name: at for at, name in enumerate(others)}}


def command_of(scenario: Scenario) -> str:
    """As it was run, one line for each process."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in scenario.env.items()]
    source = [f"< {scenario.stdin}"] if scenario.stdin else []
    lines = [" ".join([*settings, shlex.join(scenario.command), *source])]
    for word, command in (("client", scenario.client), ("stop", scenario.stop)):
        if command:
            lines.append(f"{shlex.join(command)}    # {word}")
    return "\n".join(lines)


def _summary(row: Row, ratios: Ratios) -> list[str]:
    scenario = row.scenario
    runs = sorted({len(each) for each in row.samples.values()})
    counted = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}" if runs else "no"
    judged = CLOCK_NAMES.get(scenario.cost, label_of(scenario.cost))
    said = [
        _against_best(row, ratios),
        f"Judged by {judged}, less is better; shown as {unit_of(row)}. "
        f"{counted} run{'' if counted == '1' else 's'} of each allocator, interleaved.",
    ]
    noise = ratios.of(row, EBBTIDE_AGAIN)
    if noise and noise.has_interval:
        holds = "contains" if noise.contains(1.0) else "does NOT contain"
        said.append(f"A/A: Ebbtide over itself {interval(noise)}, which {holds} 1.00.")
    if scenario.batch > 1:
        said.append(f"Each run is a batch of {scenario.batch} processes.")
    return [each for each in said if each]


def _against_best(row: Row, ratios: Ratios) -> str:
    best = verdict.best_peer(row)
    ratio = ratios.of(row, best) if best else None
    if not best or not ratio:
        return ""
    cell = ratio_cell(ratio)
    spread = f" {cell.note}" if cell.state != ALONE else ""
    return f"Ebbtide's cost is {cell.text}{spread} of that of {best}, the best peer: {cell.words}."


def _bar_table(row: Row, rows: list[Row]) -> Table | None:
    body = matrix.bars_of(row, rows)
    return (
        Table(
            "Claims on this workload", ["claim", "figure", "peer", "verdict"], body, foot=DIRECTION
        )
        if body
        else None
    )


# --- charts -------------------------------------------------------------------------


def _percentile_charts(row: Row, ran: list[str], hues: dict[str, int | None]) -> list[Chart]:
    found = []
    compared = [arm for arm in ran if arm != EBBTIDE_AGAIN]
    for name in percentiles.names(each for arm in ran for each in row.samples[arm]):
        curves = {arm: percentiles.merge(row.samples[arm], name) for arm in compared}
        kept = {arm: curve for arm, curve in curves.items() if curve}
        if kept:
            found.append(_percentile_chart(name, kept, hues))
    return found


def _percentile_chart(
    name: str, curves: dict[str, percentiles.Curve], hues: dict[str, int | None]
) -> Chart:
    label = label_of(name)
    items = [_curve_line(arm, curve, hues[arm]) for arm, curve in curves.items()]
    longest = max(item.xs[-1] for item in items)
    ticks = {at: text for at, text in NINES.items() if at <= longest + 0.05}
    scales = charts.Scales("percentile, %", label, ticks, log_y=True)
    heads = ["max" if each == 100 else f"p{each:g}" for each in percentiles.SHOWN]
    body = [
        [
            Cell(arm),
            *(Cell(str(curve.at(each))) for each in percentiles.SHOWN),
            Cell(f"{curve.total}"),
        ]
        for arm, curve in curves.items()
    ]
    table = Table(
        f"{label} at percentiles, all runs merged", ["allocator", *heads, "samples"], body
    )
    return Chart(f"{label} at percentiles: lower is better", charts.lines(items, scales), table)


def _curve_line(arm: str, curve: percentiles.Curve, hue: int | None) -> charts.Line:
    """Even steps on an axis of nines, as far as the number of samples carries."""
    last = round(min(max(NINES), log10(curve.total)) * CURVE_STEPS)
    nines = [step / CURVE_STEPS for step in range(last + 1)]
    points = [(each, float(curve.at(100 * (1 - 10**-each)))) for each in nines]
    # A latency below the timer's own cost is 0, which a logarithm has no place for.
    kept = [point for point in points if point[1] > 0] or points[-1:]
    return charts.Line(arm, [each[0] for each in kept], [each[1] for each in kept], hue)


def _series_charts(row: Row, ran: list[str], hues: dict[str, int | None]) -> list[Chart]:
    compared = [arm for arm in ran if arm not in (EBBTIDE_AGAIN, FLOOR)]
    samples = [each for arm in compared for each in row.samples[arm]]
    names = dict.fromkeys(name for each in samples for name in each.series)
    found = []
    for name in names:
        items = [line for arm in compared if (line := _series_line(row, arm, name, hues[arm]))]
        found.append(_series_chart(name, items))
    return found


def _series_line(row: Row, arm: str, name: str, hue: int | None) -> charts.Line | None:
    """The median of the runs at each step."""
    runs = [each for each in row.samples[arm] if each.series.get(name)]
    if not runs:
        return None
    steps = zip_longest(*(each.series[name] for each in runs))
    middle = [median(value for value in step if value is not None) for step in steps]
    times = [at * runs[0].series_step_s for at in range(len(middle))]
    return charts.Line(arm, times, middle, hue)


def _series_chart(name: str, items: list[charts.Line]) -> Chart:
    label = label_of(name)
    heads = ["allocator", "start", "middle", "end", "least", "most"]
    body = [[Cell(item.label), *map(Cell, _five(item.ys))] for item in items]
    table = Table(f"{label} over time, median of the runs", heads, body)
    drawing = charts.lines(items, charts.Scales("seconds", label))
    return Chart(f"{label} over time: lower is better", drawing, table)


def _five(values: list[float]) -> list[str]:
    chosen = (values[0], values[len(values) // 2], values[-1], min(values), max(values))
    return [short(each) for each in chosen] if values else [ABSENT] * 5
