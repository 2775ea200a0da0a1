# SPDX-License-Identifier: MIT OR Apache-2.0
"""In which unit a row is shown, and how numbers are written."""

import math

from ebbtide_lab.results.model import Row

ABSENT = "-"
NO_INTERVAL = "n/a"
DIRECTION = "A ratio is Ebbtide's cost over the peer's: below 1 Ebbtide is better."
CLOCKS = ("cpu", "wall")
PER_CLOCK = {
    "workload": "{} ns per op",
    "start": "{} milliseconds",
    "scheme": "{} ns per op",
    "http": "{} ns per request",
    "replay": "{} ns per event",
}
UNITS = {
    "_ns": "ns",
    "_us": "us",
    "_ms": "ms",
    "_s": "s",
    "_mb": "MB",
    "_kb": "KB",
    "_percent": "%",
    "_per_op": "per op",
    "_per_mop": "per 10^6 ops",
}


def unit_of(row: Row) -> str:
    cost = row.scenario.cost
    if cost in CLOCKS:
        return PER_CLOCK.get(row.scenario.kind, "{} seconds").format(cost)
    for suffix, unit in UNITS.items():
        if cost.endswith(suffix):
            return f"{cost.removesuffix(suffix).replace('_', ' ')}, {unit}"
    return cost.replace("_", " ")


def shown(row: Row, costs: list[float]) -> list[float]:
    """Costs in the unit of the row."""
    milliseconds = row.scenario.kind == "start" and row.scenario.cost in CLOCKS
    return [cost * 1e3 for cost in costs] if milliseconds else costs


def short(value: float) -> str:
    """Three figures that count."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"
