# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a line of a published table says of each arm today, which peer is best, by how much."""

from collections.abc import Callable
from statistics import fmean, median, pstdev

from ebbtide_lab.arms.allocators import EBBTIDE, is_peer
from ebbtide_lab.published.model import Line
from ebbtide_lab.results.model import Row
from ebbtide_lab.show.report.percentiles import Curve, merge
from ebbtide_lab.show.units import ABSENT, short

FAILED = "failed"
NOT_MEASURED = "not measured"
Rows = dict[str, Row]

STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "median": median,
    "change": median,
    "share": median,
    "mean": fmean,
    "min": min,
    "max": max,
    "stddev": pstdev,
    "cv": lambda values: 100 * pstdev(values) / fmean(values),
    "count": len,
}
# Of the histograms of all runs together.
OF_CURVES: dict[str, Callable[[Curve, float], float]] = {
    "percentile": Curve.at,
    "below": lambda curve, bound: 100 * curve.below(bound) / curve.total,
}


def figure_of(line: Line, rows: Rows, arm: str) -> float | None:
    """What the line says of an arm today; None when that was not measured."""
    found = [_figure_in(line, rows, name, arm) for name in (line.scenario, *line.also)]
    known = [each for each in found if each is not None]
    return fmean(known) if known and len(known) == len(found) else None


def _figure_in(line: Line, rows: Rows, scenario: str, arm: str) -> float | None:
    own = _summary(line, rows.get(scenario), arm)
    if own is None:
        return None
    if line.against:
        base = _summary(line, rows.get(line.against), arm)
        return _percent(own, base, less=100 if line.statistic == "change" else 0)
    if line.relative_to:
        return _percent(own, _summary(line, rows.get(scenario), line.relative_to))
    return own * line.scale


def _summary(line: Line, row: Row | None, arm: str) -> float | None:
    if row is None:
        return None
    if line.statistic in OF_CURVES:
        curve = merge(row.samples.get(arm, []), line.figure)
        return OF_CURVES[line.statistic](curve, line.at) if curve else None
    values = row.figure(arm, line.figure)
    if line.statistic == "run":
        values = values[int(line.at) - 1 : int(line.at)]
    return STATISTICS.get(line.statistic, median)(values) if values else None


def _percent(own: float, base: float | None, less: float = 0) -> float | None:
    return 100 * own / base - less if base else None


def _written(line: Line, value: float) -> str:
    return f"{value:+.1f}" if line.statistic == "change" else short(value)


def _failed(line: Line, rows: Rows, arm: str) -> bool:
    return any(arm in rows[name].failures for name in line.measured if name in rows)


def cell(line: Line, rows: Rows, arm: str) -> str:
    """The arm's figure as text, or what stands for one."""
    if line.reason:
        return NOT_MEASURED if arm == EBBTIDE else ABSENT
    if _failed(line, rows, arm):
        return FAILED
    value = figure_of(line, rows, arm)
    return ABSENT if value is None else _written(line, value)


def _figures(line: Line, rows: Rows, arms: list[str]) -> dict[str, float]:
    """Of the arms that have one and did not fail."""
    found = {arm: figure_of(line, rows, arm) for arm in arms if not _failed(line, rows, arm)}
    return {arm: value for arm, value in found.items() if value is not None}


def best(line: Line, rows: Rows, peers: list[str]) -> str | None:
    """The peer with the best figure of the line."""
    found = _figures(line, rows, [peer for peer in peers if is_peer(peer)])
    if line.better == "neither" or not found:
        return None
    choose = max if line.better == "more" else min
    return choose(found, key=found.__getitem__)


def ratio(line: Line, rows: Rows, arm: str, other: str | None) -> float | None:
    """An arm's figure over another's as a cost: less is better, whatever the figure."""
    found = _figures(line, rows, [arm, other] if other else [])
    if len(found) < 2 or min(found.values()) <= 0 or other is None:
        return None
    own, others = found[arm], found[other]
    return others / own if line.better == "more" else own / others
