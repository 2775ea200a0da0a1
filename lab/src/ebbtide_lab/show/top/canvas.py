# SPDX-License-Identifier: MIT OR Apache-2.0
"""A widget that draws the lines that have changed, and of these each once.

What textual does for any widget that may look like anything, line by line, every second, was most
of what `ebb top` cost: a dozen objects a line, whether it had changed or not.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

Line = tuple[tuple[str, Style], ...]  # texts in their styles; shorter than the widget, or cut


class Canvas(Widget):
    """Of styles it has a background, a colour of text, and padding to the left and right."""

    ALLOW_SELECT = False  # a selection would not be seen

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._drawn: dict[int, tuple[Line, Strip]] = {}
        self._look: _Look | None = None

    def seen(self) -> list[Line]:
        """Its lines, from the top; below them it is empty."""
        raise NotImplementedError

    def changed(self) -> None:
        """Has the lines drawn that differ from what was, and whole: textual cuts parts out."""
        left, whole, height = self.gutter.left, self.outer_size.width, self.size.height
        lines = self.seen()[:height]
        lines += [()] * (height - len(lines))
        regions = [
            Region(-left, y, whole, 1) for y, line in enumerate(lines) if self._has_not(y, line)
        ]
        if regions:
            self.refresh(*regions)

    def render_lines(self, crop: Region) -> list[Strip]:
        look, lines = self._look_now(), self.seen()
        if look != self._look:
            self._drawn, self._look = {}, look
        for y in crop.line_range:
            line = lines[y] if y < len(lines) else ()
            if self._has_not(y, line):
                self._drawn[y] = line, look.strip(line)
        strips = [self._drawn[y][1] for y in crop.line_range]
        if crop.column_span != (0, look.whole):
            return [each.crop(*crop.column_span) for each in strips]
        return strips

    def _has_not(self, y: int, line: Line) -> bool:
        drawn = self._drawn.get(y)
        return drawn is None or drawn[0] != line

    def _look_now(self) -> "_Look":
        return _Look(
            self.rich_style,
            self.background_colors[1],
            tuple(self.get_line_filters()),
            self.styles.padding.left,
            self.content_region.width,
            self.region.width,
        )


class _Look(NamedTuple):
    base: Style
    background: Color
    filters: tuple[LineFilter, ...]
    left: int
    width: int
    whole: int  # with what is to the left and right

    def strip(self, line: Line) -> Strip:
        blank = Style(bgcolor=self.background.rich_color)
        right = self.whole - self.left - self.width
        segments = [Segment(" " * self.left, blank), *self._segments(line)]
        segments.append(Segment(" " * right, blank))
        for each in self.filters:
            segments = each.apply(segments, self.background)
        return Strip(segments, self.whole)

    def _segments(self, line: Line) -> Iterator[Segment]:
        """What looks alike is one segment: each costs on its way to the screen."""
        left = self.width
        for style, run in groupby(line, key=lambda piece: piece[1]):
            text = "".join(text for text, _ in run)
            length = cell_len(text)
            if length > left:
                text, length = set_cell_size(text, max(left - 1, 0)) + "…" * (left > 0), left
            if text:
                yield Segment(text, self.base + style)
            left -= length
        if left:
            yield Segment(" " * left, self.base)
