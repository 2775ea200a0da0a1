# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables that are never cut: drawn where they fit, else in fewer columns, names by a legend."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from rich.columns import Columns
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ebbtide_lab.show.units import ABSENT

INDENT = 2
UNLIMITED = 100_000  # columns
NAME_SHARE = 3  # a name that takes more than this part of a line has one of its own
LEAST_LETTERS = 2


@dataclass
class Grid:
    """Cells are Rich's markup. The first cell of a row names it; the first `left` columns
    stand to the left, the others, which are numbers, to the right.

    What does not fit has an entry of several lines for each row; with `brief`, names with
    their short forms, it stays one line for each row.
    """

    title: str
    headings: list[str]
    left: int = 1
    lines: bool = False  # between the rows
    rows: list[list[str]] = field(default_factory=list)
    brief: dict[str, str] | None = None

    def add(self, *cells: str) -> None:
        self.rows.append(list(cells))

    def fits(self, console: Console) -> bool:
        wide = console.options.update(max_width=UNLIMITED)
        return Measurement.get(console, wide, self._table()).maximum <= console.width

    def print(self, console: Console) -> None:
        if self.fits(console):
            console.print(self._table())
            return
        console.print(Text(self.title, style="italic"))
        if self.brief is not None:
            _Brief(self, self.brief, console.width).print(console)
            return
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


class _Brief:
    """A line for each row, as many columns as a line holds, then the others likewise."""

    def __init__(self, grid: Grid, brief: dict[str, str], width: int) -> None:
        self._brief, self._width = brief, width
        self._names = [_one_line(row[0]) for row in grid.rows]
        longest = max((each.cell_len for each in self._names), default=0)
        self._name_width = max(len(grid.headings[0]), min(longest, width // NAME_SHARE))
        self._first = grid.headings[0]
        cells = [[row[at] for row in grid.rows] for at in range(1, len(grid.headings))]
        named = list(zip(grid.headings[1:], cells, strict=True))
        self._columns = [self._column([heading], each) for heading, each in named]
        if self._name_width + sum(_width_of(each) + 1 for each in self._columns) > width:
            # Then the words of a heading stand one above the other.
            self._columns = [self._column(heading.split(" "), each) for heading, each in named]
        used = {cell for row in (grid.headings, *grid.rows) for cell in row}
        self._legend = {name: code for name, code in brief.items() if name in used}

    def _column(self, head: list[str], cells: list[str]) -> tuple[list[str], list[Text]]:
        short_head = [self._brief.get(word, word) for word in head]
        return short_head, [_one_line(self._brief.get(cell, cell)) for cell in cells]

    def print(self, console: Console) -> None:
        if self._legend:
            pairs = ", ".join(f"{code}={name}" for name, code in self._legend.items())
            console.print(Text(pairs, style="dim"))
        for block in self._blocks():
            self._print_block(block, console)

    def _blocks(self) -> Iterator[list[tuple[list[str], list[Text]]]]:
        block: list[tuple[list[str], list[Text]]] = []
        taken = self._name_width
        for column in self._columns:
            needed = _width_of(column) + 1
            if block and taken + needed > self._width:
                yield block
                block, taken = [], self._name_width
            block.append(column)
            taken += needed
        if block:
            yield block

    def _print_block(self, block: list[tuple[list[str], list[Text]]], console: Console) -> None:
        widths = [_width_of(column) for column in block]
        depth = max(len(head) for head, _ in block)
        for level in range(-depth, 0):
            words = [head[level] if level >= -len(head) else "" for head, _ in block]
            first = self._first if level == -1 else ""
            told = "".join(f" {word:>{width}}" for word, width in zip(words, widths, strict=True))
            print_whole(Text(f"{first:<{self._name_width}}{told}".rstrip(), "bold"), console)
        for at, name in enumerate(self._names):
            line = self._begin(name, console)
            for (_, cells), width in zip(block, widths, strict=True):
                line.append(" " * (width - cells[at].cell_len + 1)).append_text(cells[at])
            print_whole(line, console)

    def _begin(self, name: Text, console: Console) -> Text:
        if name.cell_len > self._name_width:
            print_whole(name, console)
            return Text(" " * self._name_width)
        return Text().append_text(name).append(" " * (self._name_width - name.cell_len))


def _width_of(column: tuple[list[str], list[Text]]) -> int:
    head, cells = column
    return max(*map(len, head), *(each.cell_len for each in cells), 1)


def _one_line(cell: str) -> Text:
    return Text.from_markup(" ".join(cell.split("\n")))


def codes(names: Iterable[str]) -> dict[str, str]:
    """A short form of each name, by its letters and the first of its digits."""
    found: dict[str, str] = {}
    for name in names:
        forms = ("".join(_pieces(name, letters)) for letters in count(LEAST_LETTERS))
        found[name] = next(each for each in forms if each not in found.values() or each == name)
    return found


def _pieces(name: str, letters: int) -> Iterator[str]:
    """As in `cr/mi2` of crossbeam/mimalloc2."""
    for word, digits, mark in re.findall(r"([^\d/+]*)(\d*)([/+]?)", name):
        yield word[:letters] + digits[: letters - 1] + mark


def _named(heading: str, cell: str) -> Text:
    return Text(f"{heading} ", style="dim").append_text(
        Text.from_markup(" ".join(cell.split("\n")), style="not dim")
    )


def print_whole(text: Text, console: Console) -> None:
    """What is longer than a line is the terminal's to wrap: it stays one piece."""
    console.print(text, soft_wrap=True)
