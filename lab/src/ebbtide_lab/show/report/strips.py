# SPDX-License-Identifier: MIT OR Apache-2.0
"""The charts of the first screen, as SVG of a few kilobytes that takes its colours from the page.

All of them have one axis: Ebbtide's figure over a peer's, logarithmic, with a line at 1.
"""

import math
from dataclasses import dataclass
from statistics import geometric_mean

from ebbtide_lab.results.summary import LOSES, Ratio
from ebbtide_lab.show.report.charts import number, text

WIDTH = 450
LETTER, LEAST_LEFT, RIGHT = 7.2, 104, 66
ROW, TOP, BELOW = 24, 20, 36
TICKS = (0.1, 0.25, 0.5, 1, 2, 4, 8)
LEAST, MOST = 0.09, 8.5  # what lies beyond is drawn at the edge
ROOM = 1.12
# Of the chart of programs: a row has two spans, and there are up to three columns.
PROGRAMS_HEIGHT, LEAST_ROW, PROGRAM_LEFT, IN_COLUMN, COLUMN_GAP = 290, 13.5, 96, 22, 14
APART = 0.19  # of a row: its spans from its middle
LONGEST_NAME = 16


@dataclass(frozen=True)
class Span:
    """What a program's figure is over the peers': from the peer that needs most to the one that
    needs least, which is the hardest to beat."""

    least: float
    most: float
    lost: bool


@dataclass(frozen=True)
class Axis:
    left: float
    right: float
    low: float
    high: float

    @classmethod
    def over(cls, left: float, right: float, values: list[float]) -> "Axis":
        low = max(LEAST, min([*values, 0.5]) / ROOM)
        high = min(MOST, max([*values, 2.0]) * ROOM)
        return cls(left, right, low, high)

    def at(self, value: float) -> str:
        inside = min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return number(self.left + share * (self.right - self.left))

    @property
    def ticks(self) -> list[float]:
        return [each for each in TICKS if self.low <= each <= self.high]


def strips(rows: dict[str, list[Ratio]]) -> str:
    """A row for each peer, a dot for each workload; losses beyond noise are marked and counted,
    the upright mark is the geometric mean."""
    values = [each.value for ratios in rows.values() for each in ratios]
    left = max(LEAST_LEFT, LETTER * max(map(len, rows)) + 10)
    axis = Axis.over(left, WIDTH - RIGHT, values)
    bottom = TOP + ROW * len(rows)
    parts = [_grid(axis, TOP, bottom), text(WIDTH, TOP - 6, "loses", "soft", "end")]
    for at, (name, ratios) in enumerate(rows.items()):
        middle = TOP + ROW * (at + 0.5)
        parts.append(text(left - 8, middle, name, "", "end"))
        parts.append(_dots(axis, middle, ratios))
        mean = axis.at(geometric_mean(each.value for each in ratios))
        parts.append(f'<path class="mean" d="M{mean} {number(middle - 8)}v16"/>')
        lost = sum(each.state == LOSES for each in ratios)
        told = f"{lost} of {len(ratios)}"
        parts.append(text(WIDTH, middle, told, "lost" if lost else "soft", "end"))
    return _svg(bottom + BELOW, parts)


def programs(spans: dict[str, tuple[Span | None, Span | None]]) -> str:
    """A row for each program: the upper span is cost, the lower one memory."""
    columns = math.ceil(len(spans) / IN_COLUMN)
    per_column = math.ceil(len(spans) / columns)
    width = (WIDTH - COLUMN_GAP * (columns - 1)) / columns
    values = [end for pair in spans.values() for each in pair if each for end in _ends(each)]
    row = min(ROW, max(LEAST_ROW, PROGRAMS_HEIGHT / per_column))
    bottom = TOP + row * per_column
    named = list(spans.items())
    parts = []
    for column in range(columns):
        left = column * (width + COLUMN_GAP)
        axis = Axis.over(left + PROGRAM_LEFT, left + width - 4, values)
        parts.append(_grid(axis, TOP, bottom, wide=columns == 1))
        for at, (name, pair) in enumerate(named[column * per_column : (column + 1) * per_column]):
            middle = TOP + row * (at + 0.5)
            parts.append(text(left + PROGRAM_LEFT - 6, middle, _short(name), "", "end"))
            parts += [
                _span(axis, middle + shift * row, each, kind)
                for each, shift, kind in zip(pair, (-APART, APART), ("cost", "memory"), strict=True)
                if each
            ]
    return _svg(bottom + BELOW, parts)


def _ends(span: Span) -> tuple[float, float]:
    return span.least, span.most


def _span(axis: Axis, height: float, span: Span, kind: str) -> str:
    left, right = axis.at(span.least), axis.at(span.most)
    role = "loss" if span.lost else kind
    return (
        f'<path class="span {kind}" d="M{left} {number(height)}H{right}"/>'
        f'<path class="end {role}" d="M{right} {number(height)}h0"/>'
    )


def _dots(axis: Axis, height: float, ratios: list[Ratio]) -> str:
    """One path for all dots of a kind: each is a line without length, with a round end."""
    drawn = ""
    for role, lost in (("even", False), ("loss", True)):
        places = [axis.at(each.value) for each in ratios if (each.state == LOSES) == lost]
        path = "".join(f"M{place} {number(height)}h0" for place in places)
        drawn += f'<path class="dots {role}" d="{path}"/>' if path else ""
    return drawn


def _grid(axis: Axis, top: float, bottom: float, wide: bool = True) -> str:
    parts = []
    for tick in axis.ticks:
        place, kind = axis.at(tick), "one" if tick == 1 else "rule"
        parts.append(f'<path class="{kind}" d="M{place} {number(top)}V{number(bottom)}"/>')
        if wide or tick in (0.25, 1, 4) or len(axis.ticks) < 5:
            parts.append(text(float(place), bottom + 11, f"{tick:g}", "soft", "middle"))
    words = "less than the peer ◂ 1 ▸ more" if wide else "less ◂ 1 ▸ more"
    parts.append(text(float(axis.at(1)), bottom + 27, words, "soft", "middle"))
    return "".join(parts)


def _short(name: str) -> str:
    """The list of workloads has the whole name."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _svg(height: float, parts: list[str]) -> str:
    box = f'viewBox="0 0 {WIDTH} {number(height)}"'
    return f'<svg {box} aria-hidden="true" focusable="false">{"".join(parts)}</svg>'
