# SPDX-License-Identifier: MIT OR Apache-2.0
"""A user's own program under every allocator: a table, a sentence, and both for files."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.markup import escape

from ebbtide_lab import SCHEMA
from ebbtide_lab.arms.allocators import EBBTIDE
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.judge.stats import Ratio, ratio
from ebbtide_lab.machine import card
from ebbtide_lab.results.model import Results, Row
from ebbtide_lab.scenarios import programs
from ebbtide_lab.show.fit import Grid
from ebbtide_lab.show.units import DIRECTION, NO_INTERVAL, short

FIGURES = {"wall": "time, s", "cpu": "CPU, s", "peak_rss_kb": "peak RSS, MB"}
MEMORY = "peak_rss_kb"
TO_MB = 1024e-6
RATIO = "Ebbtide's time over it"
ALIKE = 0.01  # what a sentence calls equal


@dataclass(frozen=True)
class _Claim:
    figure: str
    by: str
    best: str
    less: str
    more: str


SPEED = _Claim("wall", "time", "fastest", "faster", "slower")
SPACE = _Claim(MEMORY, "peak memory", "leanest", "leaner", "larger")


def print_program(results: Results, console: Console) -> None:
    (row,) = results.rows
    console.print(card.describe(results.facts), style="dim")
    table = Grid(_title(row), ["allocator", *FIGURES.values(), RATIO, "runs"], brief={})
    for line in _lines(row):
        table.add(*line.cells)
    table.print(console)
    console.print(f"Median (least..most). {DIRECTION}", style="dim")
    for arm, why in row.failures.items():
        console.print(f"[red]failed[/] under {arm}: {escape(why)}")
    for missing in (arm for arm in results.arms if arm.problem):
        console.print(f"[yellow]missing[/] {missing.name}: {escape(missing.problem)}")
    console.print(sentence(row))


def export(results: Results, as_json: Path | None, as_markdown: Path | None) -> None:
    (row,) = results.rows
    if as_json:
        _write(as_json, json.dumps(_data(results, row), indent=1) + "\n")
    if as_markdown:
        _write(as_markdown, _markdown(row))


def sentence(row: Row) -> str:
    """What it means for this program, in plain words."""
    if EBBTIDE not in row.samples:
        return "Ebbtide has no run here."
    others = [arm for arm in row.samples if arm != EBBTIDE]
    if not others:
        return "Only Ebbtide ran."
    told = [_told(row, _best(row, others, claim.figure), claim) for claim in (SPEED, SPACE)]
    return f"{row.scenario.name}: Ebbtide is {'; '.join(told)}."


@dataclass(frozen=True)
class _Line:
    arm: str
    time: float
    cells: list[str]


def _lines(row: Row) -> list[_Line]:
    """The fastest first."""
    lines = [_line(row, arm) for arm in row.samples]
    return sorted(lines, key=lambda line: line.time)


def _line(row: Row, arm: str) -> _Line:
    cells = [_spread(_values(row, arm, figure)) for figure in FIGURES]
    compared = (
        ratio(row.figure(EBBTIDE, "wall"), row.figure(arm, "wall")) if _both(row, arm) else None
    )
    runs = str(len(row.samples[arm]))
    return _Line(arm, median(row.figure(arm, "wall")), [arm, *cells, _written(compared), runs])


def _both(row: Row, arm: str) -> bool:
    return arm != EBBTIDE and EBBTIDE in row.samples


def _values(row: Row, arm: str, figure: str) -> list[float]:
    scale = TO_MB if figure == MEMORY else 1
    return [value * scale for value in row.figure(arm, figure)]


def _spread(values: list[float]) -> str:
    return f"{short(median(values))} ({short(min(values))}..{short(max(values))})"


def _written(compared: Ratio | None) -> str:
    if compared is None:
        return "1"
    if not compared.has_interval:
        return f"{compared.value:.2f} {NO_INTERVAL}"
    return f"{compared.value:.2f} ({compared.low:.2f}..{compared.high:.2f})"


def _title(row: Row) -> str:
    what = " while it is loaded" if row.scenario.kind == "server" else ""
    return f"{row.scenario.name} under {len(row.samples)} allocators{what}, the fastest first"


def _best(row: Row, arms: list[str], figure: str) -> str:
    return min(arms, key=lambda arm: median(row.figure(arm, figure)))


def _told(row: Row, arm: str, claim: _Claim) -> str:
    compared = ratio(row.figure(EBBTIDE, claim.figure), row.figure(arm, claim.figure))
    who = f"{arm}, the {claim.best} of the others"
    if compared.contains(1) or abs(compared.value - 1) < ALIKE:
        return f"not told apart from {who}, by {claim.by} ({_written(compared)})"
    word = claim.less if compared.value < 1 else claim.more
    return f"{abs(compared.value - 1):.0%} {word} than {who}"


def _data(results: Results, row: Row) -> dict[str, object]:
    versions = {arm.name: arm.version for arm in results.arms}
    arms = [
        {
            "allocator": arm,
            "version": versions[arm],
            "runs": {figure: row.figure(arm, figure) for figure in FIGURES},
            "median": {figure: median(row.figure(arm, figure)) for figure in FIGURES},
        }
        for arm in row.samples
    ]
    return {
        "schema": SCHEMA,
        "command": programs.as_given(row.scenario.command),
        "client": programs.as_given(row.scenario.client),
        "machine": results.facts,
        "arms": arms,
        "failures": row.failures,
    }


def _markdown(row: Row) -> str:
    head = ["allocator", *FIGURES.values(), RATIO, "runs"]
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *(line.cells for line in _lines(row))]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    command = shlex.join(programs.as_given(row.scenario.command))
    return f"`{command}`\n\n{table}\n\n{DIRECTION} {sentence(row)}\n"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error
