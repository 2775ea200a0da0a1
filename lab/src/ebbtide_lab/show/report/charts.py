# SPDX-License-Identifier: MIT OR Apache-2.0
"""Line charts: SVG whose text stays text and whose colours are the page's.

One chart serves the light page, the dark page and the printed one.
"""

import math
from dataclasses import dataclass, field

from markupsafe import escape

from ebbtide_lab.show.units import short

HUES = 8  # the palette of lines; further allocators repeat it with other dashes
DASHES = ("", "5 2", "1.5 1.5", "6 2 1.5 2")
WIDTH, HEIGHT = 450, 250  # all charts are equally wide, so letters are equally large in the page
LEFT, RIGHT, TOP, BOTTOM = 58, 112, 10, 206
LONGEST_LABEL = 20
LABEL_GAP = 14.5
LABEL_STEPS = 400
MOST_TICKS = 6
MOST_DECADES = 2.5  # up to here a logarithmic axis has 2 and 5 between its powers of ten
BUCKETS = 60  # of a line with many points: of each, its least and its largest are drawn


@dataclass(frozen=True)
class Line:
    label: str
    xs: list[float]
    ys: list[float]
    hue: int | None  # None is Ebbtide


@dataclass(frozen=True)
class Scales:
    """How the axes of a line chart are drawn; ticks are places with their labels."""

    x_label: str
    y_label: str
    x_ticks: dict[float, str] = field(default_factory=dict)
    log_y: bool = False
    x_mark: float | None = None
    markers: bool = False


@dataclass(frozen=True)
class _Axis:
    """From values to places in the drawing."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        low, high, here = (self._scale(each) for each in (self.low, self.high, value))
        share = (here - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def _scale(self, value: float) -> float:
        return math.log10(value) if self.is_log else value

    def ticks(self) -> list[float]:
        return _powers(self.low, self.high) if self.is_log else _steps(self.low, self.high)


def lines(items: list[Line], scales: Scales) -> str:
    """Lines with their names at their ends; Ebbtide's is the thick one, drawn last."""
    values = [value for item in items for value in item.ys]
    along = [value for item in items for value in item.xs]
    is_log = scales.log_y and min(values) > 0
    y_axis = _Axis(min(values) if is_log else 0.0, _above(max(values)), BOTTOM, TOP, is_log)
    x_axis = _Axis(min(along), max(along), LEFT + 4, WIDTH - RIGHT)
    parts = [_across(y_axis, scales.y_label), _below(x_axis, scales)]
    for item in sorted(items, key=lambda each: each.hue is None):
        parts.append(_draw(item, x_axis, y_axis, scales.markers))
    parts += _names(items, x_axis, y_axis)
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg {box} aria-hidden="true" focusable="false">{"".join(parts)}</svg>'


def _above(value: float) -> float:
    """Of nothing but noughts there is an axis, too."""
    return value if value > 0 else 1.0


# --- axes ---------------------------------------------------------------------------


def _across(axis: _Axis, label: str) -> str:
    parts = []
    for tick in axis.ticks():
        place = axis.at(tick)
        parts.append(f'<path class="rule" d="M{LEFT} {place:.0f}H{WIDTH - RIGHT}"/>')
        parts.append(text(LEFT - 5, place, short_tick(tick), anchor="end"))
    middle = (TOP + BOTTOM) / 2
    turned = text(10, middle, label, anchor="middle")
    parts.append(f'<g transform="rotate(-90 10 {middle:.0f})">{turned}</g>')
    return "".join(parts)


def _below(axis: _Axis, scales: Scales) -> str:
    ticks = scales.x_ticks or {each: short_tick(each) for each in axis.ticks()}
    parts = [f'<path class="rule" d="M{LEFT} {BOTTOM}H{WIDTH - RIGHT}"/>']
    for tick, label in ticks.items():
        parts.append(text(axis.at(tick), BOTTOM + 13, label, anchor="middle"))
    if scales.x_mark is not None and axis.low <= scales.x_mark <= axis.high:
        place = axis.at(scales.x_mark)
        dotted = 'stroke-dasharray="2 3"'
        parts.append(f'<path class="one" {dotted} d="M{place:.0f} {TOP}V{BOTTOM}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(text(middle, BOTTOM + 33, scales.x_label, anchor="middle"))
    return "".join(parts)


def _steps(low: float, high: float) -> list[float]:
    rough = (high - low) / MOST_TICKS
    if rough <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [at * step for at in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    within = (1, 2, 5) if math.log10(high / low) <= MOST_DECADES else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    known = [factor * 10.0**power for power in range(first, last + 1) for factor in within]
    return [each for each in known if low <= each * (1 + 1e-9) and each <= high * (1 + 1e-9)]


def short_tick(value: float) -> str:
    """As short as an axis wants it: thousands as k, no zeros behind the point."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{letter}"
    told = short(value)
    return told.rstrip("0").rstrip(".") if "." in told else told


# --- lines --------------------------------------------------------------------------


def _draw(item: Line, x_axis: _Axis, y_axis: _Axis, markers: bool) -> str:
    points = [(round(x_axis.at(x)), round(y_axis.at(y))) for x, y in _thin(item.xs, item.ys)]
    path = "M" + "L".join(f"{x} {y}" for x, y in _without_repeats(points))
    role = _role(item)
    drawn = f'<path class="line {role}"{_dash(item)} d="{path}"/>'
    if markers:
        dots = "".join(f"M{x} {y}h0" for x, y in points)
        drawn += f'<path class="dot {role}" d="{dots}"/>'
    return drawn


def _thin(xs: list[float], ys: list[float]) -> list[tuple[float, float]]:
    """No more points than can be seen, and every peak among them."""
    points = list(zip(xs, ys, strict=True))
    if len(points) <= 2 * BUCKETS:
        return points
    size = math.ceil(len(points) / BUCKETS)
    kept = {0, len(points) - 1}
    for start in range(0, len(points), size):
        bucket = range(start, min(start + size, len(points)))
        kept |= {min(bucket, key=ys.__getitem__), max(bucket, key=ys.__getitem__)}
    return [points[at] for at in sorted(kept)]


def _without_repeats(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What lies on a level line between its ends draws nothing."""
    kept = [
        here
        for before, here, after in zip(points, points[1:], points[2:], strict=False)
        if not before[1] == here[1] == after[1]
    ]
    return [*points[:1], *kept, *points[1:][-1:]]


def _role(item: Line) -> str:
    return "self" if item.hue is None else f"hue{item.hue % HUES}"


def _dash(item: Line) -> str:
    number = item.hue or 0
    dashes = DASHES[(number + number // HUES) % len(DASHES)] if item.hue is not None else ""
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _names(items: list[Line], x_axis: _Axis, y_axis: _Axis) -> list[str]:
    """Names beside the ends of the lines, pushed apart so that none hides another."""
    ends = sorted(((y_axis.at(item.ys[-1]), item) for item in items), key=lambda end: end[0])
    parts = []
    for spot, (height, item) in zip(spread([at for at, _ in ends]), ends, strict=True):
        end, role = x_axis.at(item.xs[-1]), _role(item)
        start = WIDTH - RIGHT + 16
        leader = f"M{end:.0f} {height:.0f}L{start - 3} {spot:.0f}"
        parts.append(f'<path class="leader {role}" d="{leader}"/>')
        label = item.label
        cut = label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"
        parts.append(text(start, spot, cut, role))
    return parts


def spread(heights: list[float]) -> list[float]:
    """Heights in order, moved apart in small steps until there is a gap between any two."""
    spots = list(heights)
    for _ in range(LABEL_STEPS):
        for low, high in zip(range(len(spots)), range(1, len(spots)), strict=False):
            lack = LABEL_GAP - (spots[high] - spots[low])
            if lack > 0:
                spots[low] -= lack / 2
                spots[high] += lack / 2
        spots[0], spots[-1] = max(spots[0], TOP), min(spots[-1], HEIGHT - 8)
    return spots


def text(x: float, y: float, told: str, role: str = "", anchor: str = "start") -> str:
    named = f' class="{role}"' if role else ""
    aligned = f' text-anchor="{anchor}"' if anchor != "start" else ""
    where = f'x="{number(x)}" y="{number(y)}" dy=".35em"'
    return f"<text{named} {where}{aligned}>{escape(told)}</text>"


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
