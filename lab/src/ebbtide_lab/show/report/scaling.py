# SPDX-License-Identifier: MIT OR Apache-2.0
"""Families of rows that differ in the number of threads alone: how arms scale."""

from statistics import median

from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_AGAIN, FLOOR
from ebbtide_lab.results.model import Results, Row
from ebbtide_lab.show.report import charts
from ebbtide_lab.show.report.cells import NOTHING, Cell, Table
from ebbtide_lab.show.report.workload import Chart, hues_of
from ebbtide_lab.show.units import short, shown, unit_of

THREADS = "--threads"
Family = dict[int, Row]


def scaling(results: Results, cores: str) -> list[Chart]:
    """A chart for each family; it says where the cores of the machine end."""
    compared = [row for row in results.rows if row.costs(EBBTIDE)]
    found = [each for each in families(compared) if len(each) > 1]
    return [_chart(each, results, cores) for each in found]


def families(rows: list[Row]) -> list[Family]:
    """Rows by what is left of their command without the number of threads."""
    found: dict[tuple[object, ...], Family] = {}
    for row in rows:
        split = _split(row.scenario.command)
        if split:
            threads, rest = split
            key = (row.group, row.scenario.kind, row.scenario.cost, *rest)
            found.setdefault(key, {})[threads] = row
    return [dict(sorted(each.items())) for each in found.values()]


def _split(command: list[str]) -> tuple[int, list[str]] | None:
    if THREADS not in command[:-1]:
        return None
    at = command.index(THREADS)
    if not command[at + 1].isdigit():
        return None
    return int(command[at + 1]), command[:at] + command[at + 2 :]


def _chart(family: Family, results: Results, cores: str) -> Chart:
    first = next(iter(family.values()))
    hues = hues_of(results)
    arms = [arm.name for arm in results.arms if arm.name not in (EBBTIDE_AGAIN, FLOOR)]
    values = {arm: {at: _value(row, arm) for at, row in family.items()} for arm in arms}
    items = [line for arm in arms if (line := _line(arm, values[arm], hues[arm]))]
    scales = charts.Scales(
        f"threads (dotted: the {cores} cores)",
        unit_of(first),
        {at: str(at) for at in family},
        markers=True,
        x_mark=float(cores) if cores.isdigit() else None,
    )
    drawing = charts.lines(items, scales)
    title = f"{_title(first)}: {unit_of(first)} by threads"
    said = f"{title}; nothing is claimed beyond {cores} cores"
    return Chart(title, drawing, _table(said, family, values))


def _title(row: Row) -> str:
    split = _split(row.scenario.command)
    return " ".join(split[1] if split else row.scenario.command)


def _value(row: Row, arm: str) -> float | None:
    costs = row.costs(arm)
    return median(shown(row, costs)) if costs else None


def _line(arm: str, values: dict[int, float | None], hue: int | None) -> charts.Line | None:
    found = {at: value for at, value in values.items() if value is not None}
    if len(found) < 2:
        return None
    return charts.Line(arm, [float(at) for at in found], list(found.values()), hue)


def _table(title: str, family: Family, values: dict[str, dict[int, float | None]]) -> Table:
    heads = ["allocator", *(f"{at} threads" if at != 1 else "1 thread" for at in family)]
    body = [
        [
            Cell(arm),
            *(Cell(short(each)) if each is not None else NOTHING for each in found.values()),
        ]
        for arm, found in values.items()
        if any(each is not None for each in found.values())
    ]
    return Table(title, heads, body)
