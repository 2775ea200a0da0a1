# SPDX-License-Identifier: MIT OR Apache-2.0
"""The table of one row: every arm, and every figure that its runs told."""

from statistics import median

from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_AGAIN, FLOOR
from ebbtide_lab.judge import verdict
from ebbtide_lab.judge.stats import modes
from ebbtide_lab.results.model import Row
from ebbtide_lab.show.report.cells import (
    FAILED,
    NOTHING,
    Cell,
    Ratios,
    Table,
    label_of,
    ratio_cell,
)
from ebbtide_lab.show.units import CLOCKS, DIRECTION, short, shown, unit_of

KB = 1024e-6  # in MB
# What programs tell again in other units: a rate, of which more is better, and the clocks.
REPEATED = ("mops_per_wall_s", "mops_per_cpu_s", "wall_ns_per_op", "cpu_ns_per_op")
CLOCK_UNITS = {
    "workload": "ns per op",
    "scheme": "ns per op",
    "http": "ns per request",
    "start": "s",
    "replay": "ns per event",
}


def arm_table(row: Row, ran: list[str], ratios: Ratios) -> Table:
    clock = CLOCK_UNITS.get(row.scenario.kind, "s")
    own = verdict.own_costs(row) if FLOOR in row.samples else {}
    names = {arm: arm_name(arm) for arm in ran}
    made: dict[str, list[Cell]] = {
        "allocator": [Cell(names[arm]) for arm in ran],
        unit_of(row): [_judged(row, arm) for arm in ran],
        "Ebbtide's over it": [_over(row, arm, ratios) for arm in ran],
        f"own cost, {clock}": [Cell(short(own[arm])) if arm in own else NOTHING for arm in ran],
        f"CPU, {clock}": [_clock(row, arm, "cpu") for arm in ran],
        f"wall, {clock}": [_clock(row, arm, "wall") for arm in ran],
        "peak RSS, MB": [_median(row, arm, verdict.PEAK_RSS, KB) for arm in ran],
        "Ebbtide's RSS over it": [_over(row, arm, ratios, verdict.PEAK_RSS) for arm in ran],
        **{label_of(name): [_median(row, arm, name) for arm in ran] for name in _others(row)},
        "runs": [Cell(str(len(row.samples[arm]))) for arm in ran],
    }
    kept = {name: cells for name, cells in made.items() if any(each != NOTHING for each in cells)}
    body = [[cells[at] for cells in kept.values()] for at in range(len(ran))]
    for arm, why in row.failures.items():
        if arm not in row.samples:
            body.append([Cell(arm), Cell("failed", why, FAILED), *[NOTHING] * (len(kept) - 2)])
    return Table(
        f"{row.scenario.name}: all allocators, medians (least..most)",
        list(kept),
        body,
        shades=True,
        foot=DIRECTION,
    )


def _others(row: Row) -> list[str]:
    """The figures that have no column of their own, in the order in which they were told."""
    samples = [each for found in row.samples.values() for each in found]
    told = dict.fromkeys(name for each in samples for name in each.figures)
    shown = (*CLOCKS, verdict.PEAK_RSS, row.scenario.cost, *REPEATED)
    return [name for name in told if name not in shown]


def arm_name(arm: str) -> str:
    return f"{EBBTIDE} (A/A)" if arm == EBBTIDE_AGAIN else arm


def _judged(row: Row, arm: str) -> Cell:
    costs = row.costs(arm)
    if not costs:
        return NOTHING
    values = shown(row, costs)
    note = f"({short(min(values))}..{short(max(values))})"
    found = modes(values) if row.scenario.bimodal else None
    if found:
        note += f" two modes: {short(found[0])} and {short(found[1])}"
    return Cell(short(median(values)), note)


def _over(row: Row, arm: str, ratios: Ratios, figure: str = "") -> Cell:
    if arm == EBBTIDE:
        return Cell("1.00") if row.costs(arm, figure or None) else NOTHING
    return ratio_cell(ratios.of(row, arm, figure))


def _clock(row: Row, arm: str, clock: str) -> Cell:
    """Nothing where the row is judged by it: its column is there already."""
    return NOTHING if clock == row.scenario.cost else _median(row, arm, clock)


def _median(row: Row, arm: str, figure: str, scale: float = 1.0) -> Cell:
    values = row.figure(arm, figure)
    return Cell(short(median(values) * scale)) if values else NOTHING
