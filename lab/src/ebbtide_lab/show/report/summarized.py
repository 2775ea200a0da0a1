# SPDX-License-Identifier: MIT OR Apache-2.0
"""The summary of results whose runs are at hand: what a kept session reads from its report."""

from ebbtide_lab.arms.allocators import EBBTIDE
from ebbtide_lab.judge import verdict
from ebbtide_lab.judge.stats import Ratio
from ebbtide_lab.results import summary
from ebbtide_lab.results.model import Results, Row
from ebbtide_lab.results.summary import Summary, Workload
from ebbtide_lab.show.report import matrix
from ebbtide_lab.show.report.cells import ALONE, GAIN, LOSS, NOISE, Cell, Ratios, state_of
from ebbtide_lab.show.units import ABSENT

STATES = {GAIN: summary.WINS, LOSS: summary.LOSES, NOISE: summary.NOISE, ALONE: summary.ALONE}


def of_results(results: Results, ratios: Ratios) -> Summary:
    """In the order of the report."""
    rows = matrix.in_order(results.rows, ratios)
    return Summary(
        date=str(results.facts.get("date", ABSENT)),
        where=str(results.facts.get("cpu", ABSENT)),
        sets=list(dict.fromkeys(row.group for row in rows)),
        runs=sum(len(each) for row in rows for each in row.samples.values()),
        verdict={},
        means={},
        workloads=[_workload(row, results, ratios) for row in rows],
        series=summary.series_of(results),
    )


def _workload(row: Row, results: Results, ratios: Ratios) -> Workload:
    arms = matrix.columns(results, [row])
    return Workload(
        row.scenario.name,
        row.group,
        _told(matrix.own_cell(row, "")),
        _ratios(row, arms, ratios, ""),
        _told(matrix.own_cell(row, verdict.PEAK_RSS))
        if row.costs(EBBTIDE, verdict.PEAK_RSS)
        else "",
        _ratios(row, arms, ratios, verdict.PEAK_RSS),
    )


def _told(cell: Cell) -> str:
    return f"{cell.text} {cell.note}".strip()


def _ratios(row: Row, arms: list[str], ratios: Ratios, figure: str) -> dict[str, summary.Ratio]:
    found = {arm: ratios.of(row, arm, figure) for arm in arms}
    return {arm: _kept(each) for arm, each in found.items() if each}


def _kept(ratio: Ratio) -> summary.Ratio:
    low, high = (ratio.low, ratio.high) if ratio.has_interval else (None, None)
    return summary.Ratio(ratio.value, low, high, STATES[state_of(ratio)])
