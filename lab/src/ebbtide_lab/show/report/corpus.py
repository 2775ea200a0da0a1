# SPDX-License-Identifier: MIT OR Apache-2.0
"""The means over the corpus, which stand before those over the micro set."""

from ebbtide_lab.arms.allocators import EBBTIDE
from ebbtide_lab.judge.corpus import REFERENCE
from ebbtide_lab.results.model import Row
from ebbtide_lab.show.corpus import MEAN_HEADINGS, means_of
from ebbtide_lab.show.report.cells import OURS, SIGNS, Cell, Table

FOOT = (
    f"A figure is an allocator's over {REFERENCE}'s: less is better; {SIGNS[OURS]} is Ebbtide. "
    "Own CPU time is without what the replay costs by itself."
)


def mean_table(rows: list[Row]) -> Table | None:
    """The cheapest first; None where there is nothing to compare."""
    means = means_of(rows)
    if means is None:
        return None
    body = [[_name(arm), *map(Cell, figures)] for arm, *figures in means.lines]
    return Table(means.caption, MEAN_HEADINGS, body, foot=FOOT)


def _name(arm: str) -> Cell:
    return Cell(arm, state=OURS if arm == EBBTIDE else "")
