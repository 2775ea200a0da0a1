# SPDX-License-Identifier: MIT OR Apache-2.0
"""The page of a session of which the summary is kept, and the runs are not."""

import math

from ebbtide_lab.arms.allocators import Allocator, is_peer
from ebbtide_lab.judge.stats import Ratio
from ebbtide_lab.results import summary
from ebbtide_lab.results.summary import Summary, Workload
from ebbtide_lab.show.report.cells import NOTHING, Cell, Table, ratio_cell
from ebbtide_lab.show.report.matrix import Means
from ebbtide_lab.show.report.model import (
    GLOSSARY,
    Notice,
    Page,
    allocator_table,
    machine_table,
    title_of,
)
from ebbtide_lab.show.report.overview import ITSELF, Key
from ebbtide_lab.show.units import ABSENT, DIRECTION

CAPTIONS = {"cost": "Cost", "peak": "Peak resident memory"}


def page(
    found: Summary, facts: dict[str, object], arms: list[Allocator], anchors: dict[Key, str]
) -> Page:
    told = {name: str(value) for name, value in facts.items()}
    return Page(
        title=title_of(sum(is_peer(arm.name) for arm in arms)),
        session=[f"Measured {found.date}: {found.how}".rstrip(": "), f"{found.where}."],
        tally="",
        noise="",
        warnings=[
            Notice("The runs are not kept", f"the figures of each workload are in {summary.REPORT}")
        ],
        losses=[],
        memory_losses=[],
        means=Means(None, [], None),
        costs=[_matrix(found, "cost", anchors)],
        memory=[_matrix(found, "peak", anchors)],
        bars=None,
        scaling=[],
        published=[],
        published_legend="",
        sections=[],
        machine=machine_table(told),
        allocators=allocator_table(arms),
        glossary=GLOSSARY,
        schema=told.get("schema", ABSENT),
        date=told.get("date", ABSENT),
    )


def _matrix(found: Summary, kind: str, anchors: dict[Key, str]) -> Table:
    arms = [*_compared(found, kind), ITSELF]
    rows = [
        [
            Cell(each.name, each.group, link=anchors[each.group, each.name]),
            _own(each, kind),
            *(_ratio(each, kind, arm) for arm in arms),
        ]
        for each in found.workloads
        if getattr(each, kind)
    ]
    caption = f"{CAPTIONS[kind]}: Ebbtide's over the allocator's"
    return Table(caption, ["workload", "ebbtide", *arms], rows, shades=True, foot=DIRECTION)


def _compared(found: Summary, kind: str) -> list[str]:
    ratios: list[dict[str, summary.Ratio]] = [getattr(each, kind) for each in found.workloads]
    return [arm for arm in dict.fromkeys(arm for each in ratios for arm in each) if arm != ITSELF]


def _own(row: Workload, kind: str) -> Cell:
    value, _, unit = (row.own if kind == "cost" else row.own_peak).partition(" ")
    return Cell(value, unit) if value else NOTHING


def _ratio(row: Workload, kind: str, arm: str) -> Cell:
    ratios: dict[str, summary.Ratio] = getattr(row, kind)
    if arm not in ratios:
        return NOTHING
    each = ratios[arm]
    low = -math.inf if each.low is None else each.low
    high = math.inf if each.high is None else each.high
    cell = ratio_cell(Ratio(each.value, low, high))
    return Cell(cell.text, cell.note) if arm == ITSELF else cell
