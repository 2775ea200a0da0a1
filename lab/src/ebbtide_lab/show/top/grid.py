# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is drawn anew every second: lines of text, and a table that draws only what is seen.

Neither has the screen laid out again, which costs more than all the drawing.
"""

from rich.cells import cell_len
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView

from ebbtide_lab.show.columns import Column, cut
from ebbtide_lab.show.top.canvas import Canvas, Line
from ebbtide_lab.show.top.sheets import GAP, Cell, Sheet, fitted

HEAD = Style(bold=True)
SORTED = Style(bold=True, underline=True)
GREW, SHRANK, PLAIN = Style(color="yellow"), Style(color="green"), Style()


class Lines(Canvas):
    """Of the height that its style says, without a line that is wrapped."""

    DEFAULT_CSS = "Lines { padding: 0 1; }"

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []

    def show(self, lines: list[Line]) -> None:
        self._lines = lines
        self.changed()

    def seen(self) -> list[Line]:
        return self._lines


class Grid(Canvas, ScrollView, can_focus=True):
    """Its first line, the headings, stays where it is."""

    DEFAULT_CSS = "Grid { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }"

    def __init__(self) -> None:
        super().__init__()
        self._sheet: Sheet | None = None
        self._columns: tuple[Column, ...] = ()
        self._rows: list[list[Cell]] = []
        self._sort, self._is_reversed = 0, False
        self._fitted: list[tuple[int, int]] = []
        self._lines: dict[int, Line] = {}  # by row, those that were seen

    def show(self, sheet: Sheet, rows: list[list[Cell]], sort: int, is_reversed: bool) -> None:
        self._sheet, self._columns, self._rows = sheet, sheet.columns, rows
        self._sort, self._is_reversed = sort, is_reversed
        self._fit()
        self.changed()

    def shown_columns(self) -> list[int]:
        return [at for at, _ in self._fitted]

    def on_resize(self) -> None:
        self._fit()
        self.refresh()

    def _fit(self) -> None:
        self.virtual_size = Size(0, len(self._rows) + 1)  # this may bring a bar, which takes room
        width = self.scrollable_content_region.width
        self._fitted = fitted(self._sheet, width) if self._sheet else []
        self._lines = {}

    def seen(self) -> list[Line]:
        first, count = self.scroll_offset.y, self.size.height - 1
        shown = range(first, min(first + count, len(self._rows)))
        for at in shown:
            if at not in self._lines:
                self._lines[at] = self._line(self._rows[at])
        return [self._headings(), *(self._lines[at] for at in shown)]

    def _headings(self) -> Line:
        pieces = []
        for at, width in self._fitted:
            title, style = self._titled(at)
            pieces += [(self._placed(title, at, width), style), (" " * GAP, HEAD)]
        return tuple(pieces[:-1])

    def _titled(self, at: int) -> tuple[str, Style]:
        column = self._columns[at]
        if at != self._sort:
            return column.title, HEAD
        return column.title + ("▲" if column.names != self._is_reversed else "▼"), SORTED

    def _line(self, row: list[Cell]) -> Line:
        pieces = []
        for at, width in self._fitted:
            cell = row[at]
            style = GREW if cell.grew > 0 else SHRANK if cell.grew < 0 else PLAIN
            gap = GAP if at != self._fitted[-1][0] else 0
            pieces.append((self._placed(cell.text, at, width) + " " * gap, style))
        return tuple(pieces)

    def _placed(self, text: str, at: int, width: int) -> str:
        if not self._columns[at].names:
            return " " * (width - cell_len(text)) + text
        return cut(text, width)
