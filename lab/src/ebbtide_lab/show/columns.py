# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables in as many columns as fit: names may be cut, numbers never are."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

LEAST_NAME = 12
EDGES = 2  # of a table in print: a space to the left and right


@dataclass(frozen=True)
class Column:
    """`rank`: where the line is too short, the column with the highest goes first; those with 0
    stay. `names`: text, to the left, which may be cut; numbers never are. Names are searched, and
    numbers that are `searched`. `least`: its width, so that it does not move every second."""

    title: str
    rank: int = 0
    least: int = 0
    names: bool = False
    searched: bool = False


def fitted(
    columns: Sequence[Column], widths: Sequence[int], width: int, gap: int
) -> list[tuple[int, int]]:
    """Which of the columns, that are so wide, a line of this width holds, and how wide each is."""
    kept = list(range(len(widths)))
    least = [
        min(each, LEAST_NAME) if column.names else each
        for each, column in zip(widths, columns, strict=True)
    ]
    while sum(least[at] + gap for at in kept) - gap > width:
        goes = max(kept, key=lambda at: columns[at].rank)
        if columns[goes].rank == 0:
            break
        kept.remove(goes)
    spare = width - (sum(least[at] + gap for at in kept) - gap)
    found = []
    for at in kept:
        more = min(max(spare, 0), widths[at] - least[at])
        spare -= more
        found.append((at, least[at] + more))
    return found


def cut(text: str, width: int) -> str:
    """Of this width, whether it is longer or shorter."""
    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)


@dataclass
class Printed:
    """A table for `console.print`, which says what it leaves out. `total`: a last row behind a
    line."""

    title: str
    columns: Sequence[Column]
    rows: list[list[str]]
    total: list[str] = field(default_factory=list)
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = [*self.rows, self.total] if self.total else self.rows
        widths = [
            max([cell_len(column.title), *(cell_len(row[at]) for row in rows)])
            for at, column in enumerate(self.columns)
        ]
        kept = fitted(self.columns, widths, options.max_width - EDGES, gap=1)
        shown = [at for at, _ in kept]
        lacks = [each.title for at, each in enumerate(self.columns) if at not in shown]
        notes = [self.caption] if self.caption else []
        notes += [f"wider: {', '.join(lacks)}"] if lacks else []
        caption = "\n".join(notes) or None
        table = Table(title=self.title, caption=caption, box=box.SIMPLE_HEAD, padding=0)
        for at, width in kept:
            column = self.columns[at]
            justify: Literal["left", "right"] = "left" if column.names else "right"
            table.add_column(column.title, justify=justify, width=width, no_wrap=not column.names)
        for row in self.rows:
            table.add_row(*(Text(row[at]) for at in shown))
        if self.total:
            table.add_section()
            table.add_row(*(Text(self.total[at]) for at in shown))
        needed = sum(width + 1 for _, width in kept) - 1 + EDGES
        yield from console.render(table, options.update(max_width=max(needed, options.max_width)))
