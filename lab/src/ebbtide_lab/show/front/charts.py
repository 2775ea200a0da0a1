# SPDX-License-Identifier: MIT OR Apache-2.0
"""The README's charts, each in light and in dark, drawn from summaries of sessions alone."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from ebbtide_lab.arms.allocators import EBBTIDE
from ebbtide_lab.results.summary import LOSES, Ratio, Series, Summary

PX = 72  # SVG units in an inch
WIDTH = 760
LINES_HEIGHT = 300
ROW_HEIGHT, BELOW, ABOVE = 27, 44, 34
LABEL_GAP = 0.07  # of the height of the axes
LABEL_STEPS = 200
RATIO_TICKS = (0.1, 0.25, 0.5, 1, 2, 4)
RATIO_LIMITS = (0.06, 6.0)  # what lies beyond is drawn at the edge
OTHERS = ("#8250df", "#1a7f37", "#9a6700", "#cf222e")


@dataclass(frozen=True)
class Theme:
    name: str
    ink: str
    muted: str
    rule: str
    ours: str
    loss: str
    others: tuple[str, ...]


THEMES = (
    Theme("light", "#1f2328", "#818b98", "#d1d9e0", "#0969da", "#bc4c00", OTHERS),
    Theme(
        "dark",
        "#f0f6fc",
        "#9198a1",
        "#3d444d",
        "#4493f8",
        "#f0883e",
        ("#ab7df8", "#3fb950", "#d29922", "#f85149"),
    ),
)
Names = Callable[[str], str]
Draw = Callable[[Theme], Figure]


def both(draw: Draw, name: str) -> dict[str, str]:
    """The files of one chart."""
    return {f"{name}-{theme.name}.svg": _svg(draw, theme) for theme in THEMES}


def _svg(draw: Draw, theme: Theme) -> str:
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "ebbtide",
        "font.family": "sans-serif",
        "font.size": 12,
        "text.parse_math": False,
        "text.color": theme.ink,
        "axes.labelcolor": theme.ink,
        "axes.edgecolor": theme.rule,
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    target = io.StringIO()
    with mpl.rc_context(settings):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        draw(theme).savefig(target, format="svg", transparent=True, metadata=nothing)
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines()) + "\n"


# --- a burst, then idle ---------------------------------------------------------------


def tide(series: Series, names: Names) -> Draw:
    """Resident memory at the peak, right after the free, and each second from then on."""

    def draw(theme: Theme) -> Figure:
        figure = Figure(figsize=(WIDTH / PX, LINES_HEIGHT / PX))
        figure.subplots_adjust(left=0.085, right=0.77, bottom=0.165, top=0.93)
        axes = figure.add_subplot()
        peers = [arm for arm in series.mb if arm != EBBTIDE]
        hues = dict(zip(peers, theme.others, strict=True)) | {EBBTIDE: theme.ours}
        for arm in (*peers, EBBTIDE):
            own = arm == EBBTIDE
            xs, ys = _course(series, arm)
            axes.plot(xs, ys, color=hues[arm], linewidth=3.2 if own else 1.8)
        axes.axvline(0, color=theme.rule, linewidth=1, zorder=0)
        most = max(max(mb) for mb in series.mb.values())
        axes.text(0.1, most * 1.06, "everything is freed", color=theme.muted, va="center")
        axes.set_ylim(0, most * 1.12)
        axes.set_xlabel("seconds; nothing is allocated from 0 on")
        axes.set_ylabel("resident memory, MB")
        axes.grid(axis="y", color=theme.rule, linewidth=0.6)
        axes.set_axisbelow(True)
        _label_ends(axes, series, hues, names)
        return figure

    return draw


def _course(series: Series, arm: str) -> tuple[list[float], list[float]]:
    """The peak is drawn one step before the free."""
    mb = series.mb[arm]
    return [-series.step_s, *(at * series.step_s for at in range(len(mb) - 1))], mb


def _label_ends(axes: Axes, series: Series, hues: dict[str, str], names: Names) -> None:
    most = axes.get_ylim()[1]
    ends = sorted((mb[-1] / most, arm) for arm, mb in series.mb.items())
    for spot, (_, arm) in zip(_spread([at for at, _ in ends]), ends, strict=True):
        axes.text(
            1.02,
            spot,
            f"{names(arm)}: {series.mb[arm][-1]:,.0f} MB",
            transform=axes.transAxes,
            va="center",
            color=hues[arm],
            fontweight="bold" if arm == EBBTIDE else "normal",
        )


def _spread(heights: list[float]) -> list[float]:
    """Heights in order, moved apart in small steps until there is a gap between any two."""
    spots = list(heights)
    for _ in range(LABEL_STEPS):
        for low in range(len(spots) - 1):
            lack = LABEL_GAP - (spots[low + 1] - spots[low])
            if lack > 0:
                spots[low] -= lack / 2
                spots[low + 1] += lack / 2
        spots[0] = max(spots[0], 0.0)
    return spots


# --- means -----------------------------------------------------------------------------


def means(summary: Summary, names: Names) -> Draw:
    """Ebbtide's own CPU time and peak memory over each peer's."""
    arms = [arm for arm in summary.means if " " not in arm]

    def draw(theme: Theme) -> Figure:
        figure, panels = _panels(len(arms))
        for axes, at, title in zip(panels, (0, 2), ("own CPU time", "peak memory"), strict=True):
            ordered = sorted(arms, key=lambda arm: summary.means[arm][at] or 0)
            for row, arm in enumerate(ordered):
                value = summary.means[arm][at] or 0
                axes.barh(row, value, height=0.64, color=theme.loss if value > 1 else theme.ours)
                axes.text(value, row, f" {value:.2f}", va="center")
            axes.axvline(1, color=theme.ink, linewidth=1)
            axes.set_title(f"{title}, Ebbtide's over the peer's", loc="left", fontsize=12)
            _label_rows(axes, [names(arm) for arm in ordered])
            axes.set_xlim(right=1.12 * max(1.0, *(summary.means[arm][at] or 0 for arm in arms)))
            axes.set_xticks([0, 0.5, 1])
            axes.set_xlabel("below 1 Ebbtide needs less")
        return figure

    return draw


# --- every recording ---------------------------------------------------------------------


def spread(summary: Summary, names: Names) -> Draw:
    """Each recording is a dot for each peer; what Ebbtide loses beyond noise is marked."""
    arms = [arm for arm in summary.means if " " not in arm]

    def draw(theme: Theme) -> Figure:
        figure, panels = _panels(len(arms))
        kinds = (("CPU time", "cost"), ("peak memory", "peak"))
        for axes, (title, kind) in zip(panels, kinds, strict=True):
            ratios = {arm: _ratios(summary, kind, arm) for arm in arms}
            ordered = sorted(arms, key=lambda arm: median(each.value for each in ratios[arm]))
            for row, arm in enumerate(ordered):
                _draw_dots(axes, row, ratios[arm], theme)
            axes.axvline(1, color=theme.ink, linewidth=1)
            place = axes.get_yaxis_transform()
            axes.text(1.02, -0.95, "lost", transform=place, color=theme.loss)
            axes.set_title(f"{title}, Ebbtide's over the peer's", loc="left", fontsize=12)
            _label_rows(axes, [names(arm) for arm in ordered])
            _scale_ratios(axes)
        return figure

    return draw


def _ratios(summary: Summary, kind: str, arm: str) -> list[Ratio]:
    tables: list[dict[str, Ratio]] = [getattr(each, kind) for each in summary.workloads]
    return [table[arm] for table in tables if arm in table]


def _draw_dots(axes: Axes, row: int, ratios: list[Ratio], theme: Theme) -> None:
    least, most = RATIO_LIMITS
    for lost in (False, True):
        xs = [min(max(each.value, least), most) for each in ratios if (each.state == LOSES) == lost]
        colour = theme.loss if lost else theme.ours
        axes.plot(xs, [row] * len(xs), "o", color=colour, alpha=0.65, markersize=6, mew=0)
    losses = sum(each.state == LOSES for each in ratios)
    place = axes.get_yaxis_transform()
    axes.text(1.02, row, f"{losses}", transform=place, va="center", color=theme.loss)


def _scale_ratios(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_xlim(*RATIO_LIMITS)
    axes.set_xticks(RATIO_TICKS)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("left of 1 Ebbtide needs less")


# --- shared ------------------------------------------------------------------------------


def _panels(rows: int) -> tuple[Figure, list[Axes]]:
    height = rows * ROW_HEIGHT + BELOW + ABOVE
    figure = Figure(figsize=(WIDTH / PX, height / PX))
    figure.subplots_adjust(
        left=0.135, right=0.965, wspace=0.48, bottom=BELOW / height, top=1 - ABOVE / height
    )
    return figure, [figure.add_subplot(1, 2, at) for at in (1, 2)]


def _label_rows(axes: Axes, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
