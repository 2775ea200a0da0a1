# SPDX-License-Identifier: MIT OR Apache-2.0
"""The charts: SVG whose text stays text and whose colours are the page's.

Matplotlib draws with stand-ins for colours, which become variables of the style
sheet: one chart serves the light page, the dark page and the printed one.
"""

import io
import re
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ebbtide_lab.show.report.cells import ALONE, FAILED, GAIN, LOSS, NOISE
from ebbtide_lab.show.units import short

INK, RULE = "#010101", "#010102"
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ebbtide",
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "xtick.color": INK,
    "ytick.color": INK,
    "font.size": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "xtick.major.width": 0.8,
    "ytick.major.width": 0.8,
}
SELF = "self"
HUES = 8  # the palette of lines; further arms repeat it with other dashes
STAND_INS = {
    "ink": INK,
    "rule": RULE,
    SELF: "#010103",
    LOSS: "#010104",
    GAIN: "#010105",
    NOISE: "#010106",
    ALONE: "#010106",
    FAILED: "#010106",
    **{f"hue{number}": f"#0102{number:02x}" for number in range(HUES)},
}
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
MARKERS = "osD^vPX"
PX = 72  # SVG units in an inch
WIDTH = 450
BAR_HEIGHT = 22
LINES_HEIGHT = 250
LETTER = 7.2  # an average letter of the font that is shown, with some room
RIGHT_OF_BARS = 155
RIGHT_OF_LINES = 108
LEFT_OF_LINES = 62
BELOW, ABOVE = 46, 10
LONGEST_LABEL = 20
LABEL_GAP = 0.075  # of the height of the axes
LABEL_STEPS = 400
WIDE_SPREAD = 8.0  # from here on bars give way to dots on a logarithmic axis


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    low: float
    high: float
    text: str
    role: str


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


def bars(items: list[Bar], x_label: str, key: str) -> str:
    """Horizontal bars against the line of Ebbtide at 1, with their intervals."""
    with mpl.rc_context(SETTINGS):
        longest = max(len(_cut(item.label)) for item in items)
        margins = (longest * LETTER + 8, RIGHT_OF_BARS)
        figure, axes = _open(len(items) * BAR_HEIGHT + BELOW + ABOVE, margins)
        wide = max(item.high for item in items) > WIDE_SPREAD * min(item.low for item in items)
        for at, item in enumerate(items):
            _draw_bar(axes, at, item, wide)
        axes.axvline(1, color=INK, linewidth=1)
        axes.set_yticks(range(len(items)), [_cut(item.label) for item in items])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(items) - 0.4, -0.6)
        axes.set_xlabel(x_label)
        _scale_bars(axes, wide)
        return _finish(figure, key)


def _draw_bar(axes: Axes, at: int, item: Bar, wide: bool) -> None:
    colour = STAND_INS[item.role]
    if wide:
        axes.plot([1, item.value], [at, at], color=colour, linewidth=1.5, alpha=0.6)
        axes.plot([item.value], [at], marker="o", color=colour, markersize=7)
    else:
        axes.barh(at, item.value, height=0.62, color=colour)
    if item.high > item.low:
        axes.errorbar(
            item.value,
            at,
            xerr=[[item.value - item.low], [item.high - item.value]],
            color=INK,
            capsize=3,
            linewidth=1,
        )
    axes.text(1.02, at, item.text, transform=axes.get_yaxis_transform(), va="center")


def _scale_bars(axes: Axes, wide: bool) -> None:
    if wide:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(10, (1, 2, 5), numticks=8))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(_plain())


def lines(items: list[Line], scales: Scales, key: str) -> str:
    """Lines with their names at their ends; Ebbtide's is the thick one, drawn last."""
    with mpl.rc_context(SETTINGS):
        figure, axes = _open(LINES_HEIGHT, (LEFT_OF_LINES, RIGHT_OF_LINES))
        for item in sorted(items, key=lambda each: each.hue is None):
            axes.plot(item.xs, item.ys, **_pen(item, scales.markers))
        axes.set_xlabel(scales.x_label)
        axes.set_ylabel(scales.y_label)
        _scale_lines(axes, items, scales)
        _label_ends(axes, items)
        return _finish(figure, key)


def _pen(item: Line, markers: bool) -> dict[str, Any]:
    colour = STAND_INS[SELF] if item.hue is None else STAND_INS[f"hue{item.hue % HUES}"]
    number = item.hue or 0
    marker = ("o" if item.hue is None else MARKERS[number % len(MARKERS)]) if markers else ""
    return {
        "color": colour,
        "linewidth": 3 if item.hue is None else 1.4,
        "linestyle": "-" if item.hue is None else DASHES[(number + number // HUES) % len(DASHES)],
        "marker": marker,
        "markersize": 5,
    }


def _scale_lines(axes: Axes, items: list[Line], scales: Scales) -> None:
    if scales.x_ticks:
        axes.set_xticks(list(scales.x_ticks), list(scales.x_ticks.values()))
    if scales.x_mark is not None:
        axes.axvline(scales.x_mark, color=INK, linewidth=0.8, linestyle=(0, (2, 3)))
    if scales.log_y and all(value > 0 for item in items for value in item.ys):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10, (1, 2, 5), numticks=9))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(_plain())
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)


def _label_ends(axes: Axes, items: list[Line]) -> None:
    """Names beside the ends of the lines, pushed apart so that none hides another."""
    heights = [(_place_of(axes, item.xs[-1], item.ys[-1]), item) for item in items]
    ends = sorted(heights, key=lambda end: end[0])
    for spot, (_, item) in zip(_spread([height for height, _ in ends]), ends, strict=True):
        colour = _pen(item, False)["color"]
        axes.annotate(
            _cut(item.label),
            xy=(item.xs[-1], item.ys[-1]),
            xytext=(1.07, spot),
            textcoords=axes.transAxes,
            va="center",
            color=colour,
            fontweight="bold" if item.hue is None else "normal",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


def _spread(heights: list[float]) -> list[float]:
    """Heights in order, moved apart in small steps until there is a gap between any two."""
    spots = list(heights)
    for _ in range(LABEL_STEPS):
        for low, high in zip(range(len(spots)), range(1, len(spots)), strict=False):
            lack = LABEL_GAP - (spots[high] - spots[low])
            if lack > 0:
                spots[low] -= lack / 2
                spots[high] += lack / 2
        spots[0], spots[-1] = max(spots[0], 0.0), min(spots[-1], 1.0)
    return spots


def _cut(label: str) -> str:
    """The table that goes with the chart has the whole name."""
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


def _place_of(axes: Axes, x: float, y: float) -> float:
    """The height of a point as a share of the axes."""
    place: float = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[1]
    return place


def _plain() -> FuncFormatter:
    return FuncFormatter(lambda value, _: short_tick(value))


def short_tick(value: float) -> str:
    """As short as an axis wants it: thousands as k, no zeros behind the point."""
    if abs(value) >= 1000:
        return f"{value / 1000:g}k"
    text = short(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- from figure to text ------------------------------------------------------------


def _open(height: float, margins: tuple[float, float]) -> tuple[Figure, Axes]:
    """All charts are equally wide, so that their letters are equally large in the page."""
    figure = Figure(figsize=(WIDTH / PX, height / PX))
    left, right = margins
    room = {"left": left / WIDTH, "right": 1 - right / WIDTH}
    figure.subplots_adjust(bottom=BELOW / height, top=1 - ABOVE / height, **room)
    return figure, figure.add_subplot()


def _finish(figure: Figure, key: str) -> str:
    target = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(target, format="svg", transparent=True, metadata=nothing)
    return _inline(target.getvalue(), key)


def _inline(svg: str, key: str) -> str:
    """Fit for the middle of a page: no prologue, no size, ids that are the page's own."""
    svg = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', svg)
    body = svg[svg.index(">") + 1 :].replace("xlink:href", "href")
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda found: _own_id(found[1], used, key), body)
    body = re.sub(r'(url\(|href=")#([^")]+)', rf"\1#{key}-\2", body)
    body = re.sub(r"font-family: [^;\"]*; ", "", body)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    for name, colour in STAND_INS.items():
        body = body.replace(colour, f"var(--{name})")
    return f'<svg viewBox="{box[1] if box else ""}" aria-hidden="true" focusable="false">{body}'


def _own_id(name: str, used: set[str], key: str) -> str:
    return f' id="{key}-{name}"' if name in used else ""
