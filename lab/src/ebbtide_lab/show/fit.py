# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables that are never cut: drawn where they fit, else one entry a row, whole."""

from dataclasses import dataclass, field

from rich.columns import Columns
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ebbtide_lab.show.units import ABSENT

INDENT = 2
UNLIMITED = 100_000  # columns


@dataclass
class Grid:
    """Cells are Rich's markup. The first cell of a row names it; the first `left` columns
    stand to the left, the others, which are numbers, to the right."""

    title: str
    headings: list[str]
    left: int = 1
    lines: bool = False  # between the rows
    rows: list[list[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        self.rows.append(list(cells))

    def print(self, console: Console) -> None:
        table = self._table()
        wide = console.options.update(max_width=UNLIMITED)
        if Measurement.get(console, wide, table).maximum <= console.width:
            console.print(table)
            return
        console.print(Text(self.title, style="italic"))
        for row in self.rows:
            self._print_entry(row, console)

    def _table(self) -> Table:
        table = Table(title=self.title, show_lines=self.lines)
        for at, heading in enumerate(self.headings):
            table.add_column(heading, justify="left" if at < self.left else "right")
        for row in self.rows:
            table.add_row(*row)
        return table

    def _print_entry(self, row: list[str], console: Console) -> None:
        print_whole(Text.from_markup(" ".join(row[0].split("\n")), style="bold"), console)
        named = zip(self.headings[1:], row[1:], strict=True)
        told = [_named(heading, cell) for heading, cell in named if cell != ABSENT]
        fit = [each for each in told if each.cell_len <= console.width - INDENT]
        console.print(Padding(Columns(fit, padding=(0, INDENT)), (0, 0, 0, INDENT)))
        for each in told:
            if each not in fit:
                print_whole(Text(" " * INDENT).append_text(each), console)


def _named(heading: str, cell: str) -> Text:
    return Text(f"{heading} ", style="dim").append_text(
        Text.from_markup(" ".join(cell.split("\n")), style="not dim")
    )


def print_whole(text: Text, console: Console) -> None:
    """What is longer than a line is the terminal's to wrap: it stays one piece."""
    console.print(text, soft_wrap=True)
