# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parts of every table of the report, and how a ratio is written and marked.

One direction throughout: a ratio is Ebbtide's cost over an allocator's, so that
a figure above 1 is a loss of Ebbtide's.
"""

import math
from dataclasses import dataclass, field

from ebbtide_lab.judge import verdict
from ebbtide_lab.judge.stats import Ratio
from ebbtide_lab.results.model import Row
from ebbtide_lab.show.units import ABSENT, NO_INTERVAL, UNITS, short

LOSS, GAIN, NOISE, ALONE, FAILED = "loss", "gain", "noise", "alone", "failed"
NOT_RUN = "not-run"
SIGNS = {LOSS: "▼", NOISE: "≈", ALONE: "?"}  # a mark that needs no colour
WORDS = {
    LOSS: "Ebbtide is worse",
    GAIN: "Ebbtide is better",
    NOISE: "within noise",
    ALONE: "fewer than three runs, no interval",
    FAILED: "the run failed",
}
STRONGER = (1.1, 1.5)  # where the shade of a cell grows darker


@dataclass(frozen=True)
class Cell:
    text: str
    note: str = ""
    state: str = ""
    shade: int = 0
    link: str = ""

    @property
    def sign(self) -> str:
        return SIGNS.get(self.state, "")

    @property
    def words(self) -> str:
        return WORDS.get(self.state, "")


@dataclass(frozen=True)
class Table:
    """The first cell of a row is its heading."""

    caption: str
    columns: list[str]
    rows: list[list[Cell]]
    prose: bool = False  # text rather than numbers
    shades: bool = field(default=False, kw_only=True)
    foot: str = field(default="", kw_only=True)  # a line below


NOTHING = Cell(ABSENT)


class Ratios:
    """The ratios of all rows; each is bootstrapped once, as that takes a while."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str, str], Ratio | None] = {}

    def of(self, row: Row, arm: str, figure: str = "") -> Ratio | None:
        """Ebbtide's cost over the arm's; None where there is none or it is nought."""
        key = (row.group, row.scenario.name, arm, figure)
        if key not in self._known:
            self._known[key] = _above_nought(verdict.against(row, arm, figure or None))
        return self._known[key]


def _above_nought(ratio: Ratio | None) -> Ratio | None:
    if ratio is None:
        return None
    return ratio if (ratio.low if ratio.has_interval else ratio.value) > 0 else None


def state_of(ratio: Ratio) -> str:
    """Judged by the interval as it is printed, so that what is read is what is meant."""
    if not ratio.has_interval:
        return ALONE
    if round(ratio.low, 2) <= 1 <= round(ratio.high, 2):
        return NOISE
    return LOSS if ratio.value > 1 else GAIN


def shade_of(ratio: Ratio, state: str) -> int:
    """1 to 3 by the size of a gain or a loss."""
    if state not in (GAIN, LOSS):
        return 0
    size = max(ratio.value, 1 / ratio.value if ratio.value > 0 else math.inf)
    return 1 + sum(size >= limit for limit in STRONGER)


def written(value: float) -> str:
    """Of a ratio: two places behind the point, until that is more than it can tell."""
    return f"{value:.2f}" if value < 10 else short(value)


def interval(ratio: Ratio) -> str:
    if not ratio.has_interval:
        return NO_INTERVAL
    return f"[{written(ratio.low)}..{written(ratio.high)}]"


def ratio_cell(ratio: Ratio | None) -> Cell:
    if ratio is None:
        return NOTHING
    state = state_of(ratio)
    return Cell(written(ratio.value), interval(ratio), state, shade_of(ratio, state))


def not_run(why: str) -> str:
    return f"not run: {why}"


def label_of(figure: str) -> str:
    """A figure's name with its unit apart: idle_ms is idle, ms."""
    for suffix, unit in UNITS.items():
        if figure.endswith(suffix):
            return f"{_spaced(figure.removesuffix(suffix))}, {unit}"
    return _spaced(figure)


def _spaced(name: str) -> str:
    return name.replace("_", " ").replace("rss", "RSS")
