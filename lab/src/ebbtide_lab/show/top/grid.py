# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is drawn anew every second: lines of text, and a table that draws only what is seen.

Neither has the screen laid out again, which costs more than all the drawing.
"""

from itertools import groupby

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from ebbtide_lab.show.top.sheets import GAP, Cell, Column, Sheet, fitted

HEAD = Style(bold=True)
SORTED = Style(bold=True, underline=True)
GREW, SHRANK, PLAIN = Style(color="yellow"), Style(color="green"), Style()


class Lines(Widget):
    """Of the height that its style says, without a line that is wrapped."""

    DEFAULT_CSS = "Lines { padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }"

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._text = Text()

    def show(self, text: Text) -> None:
        if text != self._text or text.spans != self._text.spans:
            self._text = text
            self.refresh()

    def render(self) -> Text:
        return self._text


class Grid(ScrollView, can_focus=True):
    """Its first line, the headings, stays where it is."""

    DEFAULT_CSS = "Grid { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }"

    def __init__(self) -> None:
        super().__init__()
        self._sheet: Sheet | None = None
        self._columns: tuple[Column, ...] = ()
        self._base = Style()
        self._rows: list[list[Cell]] = []
        self._sort, self._is_reversed = 0, False
        self._fitted: list[tuple[int, int]] = []

    def show(self, sheet: Sheet, rows: list[list[Cell]], sort: int, is_reversed: bool) -> None:
        used = max(len(rows), len(self._rows)) + 1
        self._sheet, self._columns, self._rows = sheet, sheet.columns, rows
        self._sort, self._is_reversed = sort, is_reversed
        self._fit()
        self.refresh(Region(0, 0, self.size.width, min(used, self.size.height)))

    def shown_columns(self) -> list[int]:
        return [at for at, _ in self._fitted]

    def on_resize(self) -> None:
        self._fit()
        self.refresh()

    def _fit(self) -> None:
        self.virtual_size = Size(0, len(self._rows) + 1)  # this may bring a bar, which takes room
        width = self.scrollable_content_region.width
        self._fitted = fitted(self._sheet, width) if self._sheet else []
        self._base = self.rich_style

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y - 1
        if y == 0:
            segments = self._headings()
        elif at < len(self._rows):
            segments = self._line(self._rows[at])
        else:
            segments = []
        return Strip(segments).adjust_cell_length(self.size.width).apply_style(self._base)

    def _headings(self) -> list[Segment]:
        pieces = []
        for at, width in self._fitted:
            title, style = self._titled(at)
            pieces += [(self._placed(title, at, width), style), (" " * GAP, HEAD)]
        return _joined(pieces)

    def _titled(self, at: int) -> tuple[str, Style]:
        column = self._columns[at]
        if at != self._sort:
            return column.title, HEAD
        return column.title + ("▲" if column.names != self._is_reversed else "▼"), SORTED

    def _line(self, row: list[Cell]) -> list[Segment]:
        pieces = []
        for at, width in self._fitted:
            cell = row[at]
            style = GREW if cell.grew > 0 else SHRANK if cell.grew < 0 else PLAIN
            pieces.append((self._placed(cell.text, at, width) + " " * GAP, style))
        return _joined(pieces)

    def _placed(self, text: str, at: int, width: int) -> str:
        if not self._columns[at].names:
            return " " * (width - cell_len(text)) + text
        if cell_len(text) > width:
            return set_cell_size(text, width - 1) + "…"
        return set_cell_size(text, width)


def _joined(pieces: list[tuple[str, Style]]) -> list[Segment]:
    """What looks alike is one segment: each costs on its way to the screen."""
    return [
        Segment("".join(text for text, _ in run), style)
        for style, run in groupby(pieces, key=lambda piece: piece[1])
    ]
