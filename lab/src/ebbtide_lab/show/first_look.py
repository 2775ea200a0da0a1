# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb demo` prints, for who has never seen it: a table, a paragraph, and what to do next."""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.markup import escape

from ebbtide_lab.arms.allocators import EBBTIDE, GLIBC, Allocator
from ebbtide_lab.judge.stats import MIN_RUNS, ratio
from ebbtide_lab.judge.verdict import PEAK_RSS
from ebbtide_lab.results.model import Results, Row
from ebbtide_lab.show.fit import Grid
from ebbtide_lab.show.units import ABSENT

IDLE = "rss_after_idle_mb"
TO_MB = 1024e-6
ALIKE = 0.01  # a difference in time that is called none
ALIKE_MB = 0.5
TIMES = {"cpu": "CPU s", "wall": "s"}
MINUTE_S = 60


def name_of(arm: str) -> str:
    """The digits in a name are the lab's shorthand for a version."""
    return "Ebbtide" if arm == EBBTIDE else re.sub(r"[0-9]+$", "", arm)


def print_start(
    arms: list[Allocator], missing: list[str], budget_s: float, console: Console
) -> None:
    others = _listed([_with_version(arm) for arm in arms if arm.name != EBBTIDE])
    minutes = math.ceil(budget_s / MINUTE_S)
    console.print(f"Running programs under Ebbtide and {others}, for some {minutes} minutes.")
    if missing:
        console.print(f"Not installed here, and left out: {', '.join(missing)}.")


def _with_version(arm: Allocator) -> str:
    version = re.search(r"\d+\.\d+(?:\.\d+)?", arm.version)
    return f"{name_of(arm.name)} {version[0]}" if version else name_of(arm.name)


def print_end(results: Results, folder: Path, console: Console) -> None:
    rows = [row for row in results.rows if EBBTIDE in row.samples]
    arms = [arm for arm in results.arms if any(arm.name in row.samples for row in rows)]
    if rows:
        _print_table(rows, arms, console)
        console.print()
        console.print(paragraph(rows, results))
    for row in results.rows:
        for arm, why in row.failures.items():
            console.print(f"{row.scenario.name} failed under {name_of(arm)}: {escape(why)}")
    if results.interrupted:
        console.print("Stopped early: these are the runs that were finished.")
    console.print()
    console.print("Your own program: build/venv/bin/ebb bench -- your-program its-arguments")
    near = os.path.relpath(folder)
    hint = f"All runs: {near}; build/venv/bin/ebb report {near} makes a page of them."
    console.print(hint, soft_wrap=True, style="dim", markup=False)


# --- the table ----------------------------------------------------------------------


def _print_table(rows: list[Row], arms: list[Allocator], console: Console) -> None:
    headings = [_with_version(arm).replace(" ", "\n") for arm in arms]
    table = Grid("Medians; less is better everywhere", ["program", *headings], brief={})
    for row in rows:
        for what, values in _figures(row, [arm.name for arm in arms]):
            table.add(f"{row.scenario.name}, {what}", *values)
    table.print(console)


def _figures(row: Row, arms: list[str]) -> Iterator[tuple[str, list[str]]]:
    """What a row has to say, and each allocator's figure."""
    if _is_burst(row):
        yield "MB kept", [_megabytes(row, arm, IDLE, 1) for arm in arms]
        return
    yield TIMES[row.scenario.cost], [_seconds(row, arm) for arm in arms]
    yield "peak MB", [_megabytes(row, arm, PEAK_RSS, TO_MB) for arm in arms]


def _is_burst(row: Row) -> bool:
    return bool(row.figure(EBBTIDE, IDLE))


def _seconds(row: Row, arm: str) -> str:
    values = row.costs(arm)
    return f"{median(values):.2f}" if values else ABSENT


def _megabytes(row: Row, arm: str, figure: str, scale: float) -> str:
    values = row.figure(arm, figure)
    return f"{median(values) * scale:,.0f}" if values else ABSENT


# --- the paragraph --------------------------------------------------------------------


def paragraph(rows: list[Row], results: Results) -> str:
    """Beside glibc, which is what a program has without any of the others."""
    others = [arm.name for arm in results.arms if arm.name != EBBTIDE]
    base = GLIBC if GLIBC in others or not others else others[0]
    facts = results.facts
    told = [_beside(row, base) for row in rows if not _is_burst(row) and base in row.samples]
    sentences = []
    if told:
        sentences.append(f"beside {name_of(base)}, {'; '.join(told)}.")
    sentences += [_burst(row, others) for row in rows if _is_burst(row)]
    sentences += [_faster(rows, others), _leaner(rows, others), _rough(rows)]
    sentences = [each for each in sentences if each]
    where = f"On this machine ({facts.get('cpu')}, {facts.get('cores')} cores)"
    return escape(f"{where}: {' '.join(sentences)}") if sentences else ""


def _beside(row: Row, base: str) -> str:
    return f"{row.scenario.name}: {_time(row, base)}, {_memory(row, base)}"


def _time(row: Row, base: str) -> str:
    """The same where the runs do not tell them apart."""
    compared = ratio(row.costs(EBBTIDE), row.costs(base))
    difference = compared.value - 1
    if abs(difference) < ALIKE or (compared.has_interval and compared.contains(1)):
        return "same speed"
    return f"{abs(difference):.0%} {'less' if difference < 0 else 'more'} time"


def _memory(row: Row, base: str) -> str:
    own, other = (median(row.figure(arm, PEAK_RSS)) * TO_MB for arm in (EBBTIDE, base))
    if abs(own - other) < ALIKE_MB:
        return "same memory"
    return f"{_megabytes_of(abs(own - other))} {'less' if own < other else 'more'}"


def _burst(row: Row, others: list[str]) -> str:
    there = [arm for arm in others if row.figure(arm, IDLE)]
    own = _megabytes(row, EBBTIDE, IDLE, 1)
    peak = median(row.figure(EBBTIDE, "rss_at_peak_mb"))
    size = f"{peak / 1000:.0f} GB" if peak >= 950 else f"{peak:.0f} MB"
    told = [f"Ebbtide keeps {own} MB"]
    told += [f"{name_of(arm)} {_megabytes(row, arm, IDLE, 1)}" for arm in there]
    return f"After a burst of {size} that is freed, {_listed(told)}."


def _faster(rows: list[Row], others: list[str]) -> str:
    """Where another allocator needs less time, beyond what the runs scatter."""
    lost = []
    for row in rows:
        there = [arm for arm in others if row.costs(arm)]
        if _is_burst(row) or not there:
            continue
        best = min(there, key=lambda arm: median(row.costs(arm)))
        compared = ratio(row.costs(EBBTIDE), row.costs(best))
        if compared.has_interval and compared.low > 1 and compared.value - 1 >= ALIKE:
            lost.append(f"{name_of(best)} in {row.scenario.name} ({compared.value - 1:.0%})")
    return f"Ebbtide needs more time than {_listed(lost)}." if lost else ""


def _leaner(rows: list[Row], others: list[str]) -> str:
    lost = []
    for row in rows:
        there = [arm for arm in others if row.figure(arm, PEAK_RSS)]
        if _is_burst(row) or not there:
            continue
        peaks = {arm: median(row.figure(arm, PEAK_RSS)) * TO_MB for arm in (EBBTIDE, *there)}
        best = min(there, key=peaks.__getitem__)
        more = peaks[EBBTIDE] - peaks[best]
        if more >= 1:
            lost.append(f"{name_of(best)} in {row.scenario.name} ({_megabytes_of(more)})")
    return f"Ebbtide needs more memory than {_listed(lost)}." if lost else ""


def _rough(rows: list[Row]) -> str:
    """Whether the times deserve a word of caution."""
    runs = min((len(row.samples[EBBTIDE]) for row in rows if not _is_burst(row)), default=MIN_RUNS)
    if runs >= MIN_RUNS:
        return ""
    return f"There was time for {runs} run{'s' if runs > 1 else ''} of each: the times are rough."


def _megabytes_of(value: float) -> str:
    return f"{value:.0f} MB" if value >= 10 else f"{value:.1f} MB"


def _listed(items: list[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
