# SPDX-License-Identifier: MIT OR Apache-2.0
"""The means over the corpus, which stand before those over the micro set."""

from ebbtide_lab.results.model import Row
from ebbtide_lab.show.corpus import MEAN_HEADINGS, means_of
from ebbtide_lab.show.report.cells import Cell, Table
from ebbtide_lab.show.units import DIRECTION


def mean_table(rows: list[Row]) -> Table | None:
    """The hardest peer first; None where there is nothing to compare."""
    means = means_of(rows)
    if means is None:
        return None
    body = [[Cell(peer), *map(Cell, figures)] for peer, *figures in means.lines]
    foot = f"{DIRECTION} Own CPU time is without what the replay costs by itself."
    return Table(means.caption, MEAN_HEADINGS, body, foot=foot)
