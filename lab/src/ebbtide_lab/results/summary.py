# SPDX-License-Identifier: MIT OR Apache-2.0
"""The summary of a session: what its report says, as data that charts and pages are made from.

It is read from the report, which is kept when the raw runs are not. Ratios are Ebbtide's over
the other allocator's, also where an early report printed the inverse: below 1, Ebbtide is better.
Rates became costs. The series of memory over time are not in a report; they come from the runs
when these are there.
"""

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ebbtide_lab.arms.allocators import EBBTIDE, FLOOR
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.results.model import Results, Row

REPORT, SUMMARY = "report.md", "summary.json"
MATRICES = ("cost", "peak")
WINS, LOSES, NOISE, ALONE = "+", "-", "~", "?"
SIGNS = {"▼": LOSES, "≈": NOISE, "?": ALONE, "": WINS}
TURNED = "over Ebbtide's"  # in the caption of a table whose ratios are the inverse
CELL = re.compile(r"(?:([▼≈?]) )?([\d.]+) (?:\\?\[([\d.]+)\.\.([\d.]+)\\?\]|.+)")
RATE = re.compile(r"([\d.]+) M ops per (cpu|wall) second")
NAME = re.compile(r"\[(.+)\]\(#[^)]+\)(?: (\S+))?")
DATE = re.compile(r"measured (.+) at ")
RUNS = re.compile(r"^(\d+) workloads? \(sets: (.+)\) in (\d+) runs", re.M)
VERDICT = re.compile(
    r"Of (\d+) comparisons with a peer Ebbtide loses (\d+), (\d+) are within noise, "
    r"and it wins (\d+)\.(?: (\d+) rest)?"
)


@dataclass(frozen=True)
class Ratio:
    """An interval of None: too few runs to have one."""

    value: float
    low: float | None
    high: float | None
    state: str


@dataclass(frozen=True)
class Workload:
    """Ebbtide's own figures as printed, and its ratios by allocator."""

    name: str
    group: str
    own: str = ""
    cost: dict[str, Ratio] = field(default_factory=dict)
    own_peak: str = ""
    peak: dict[str, Ratio] = field(default_factory=dict)


@dataclass(frozen=True)
class Series:
    """Medians over the runs: at the peak, right after the free, then one value a step."""

    step_s: float
    runs: int
    mb: dict[str, list[float]]


@dataclass(frozen=True)
class Summary:
    date: str
    where: str
    sets: list[str]
    runs: int
    verdict: dict[str, int]
    means: dict[str, list[float | None]]  # of own CPU time, CPU time, peak memory, over a peer's
    workloads: list[Workload]
    series: dict[str, Series] = field(default_factory=dict)
    allocators: dict[str, str] = field(default_factory=dict)  # versions
    how: str = ""


# --- from a report ------------------------------------------------------------------


def of_report(text: str) -> Summary:
    head, _, _ = text.partition("\n## ")
    runs, date, verdict = RUNS.search(head), DATE.search(head), VERDICT.search(head)
    if not (runs and date and verdict):
        raise LabError("this is no report of the lab: it does not say what was measured")
    names = ("compared", "losses", "noise", "wins", "alone")
    return Summary(
        date=date[1],
        where=head.split("\n")[3].partition(". Nothing")[0],
        sets=runs[2].split(", "),
        runs=int(runs[3]),
        verdict=dict(zip(names, (int(each or 0) for each in verdict.groups()), strict=True)),
        means=_means(_section(text, "Means")),
        workloads=_workloads(text),
    )


def _section(text: str, name: str) -> str:
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found[1] if found else ""


def _lines(text: str) -> list[list[str]]:
    cells = (line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| "))
    return [line for line in cells if not line[0].startswith(":--")]


def _means(section: str) -> dict[str, list[float | None]]:
    """An early report has each allocator's over those of one of them, Ebbtide's among them."""
    lines = _lines(section)
    if not lines or "own CPU time" not in lines[0]:
        return {}
    told = {
        name.removeprefix("▶ "): [None if each == "-" else float(each) for each in figures]
        for name, *figures in lines[1:]
    }
    ours = told.pop(EBBTIDE, None)
    if ours is None:
        return told
    over = {arm: list(map(_over, ours, figures)) for arm, figures in told.items()}
    return dict(sorted(over.items(), key=lambda each: -(each[1][0] or 0)))


def _over(own: float | None, other: float | None) -> float | None:
    return float(f"{own / other:.3g}") if own and other else None


def _workloads(text: str) -> list[Workload]:
    costs, peaks = (_matrix(_section(text, name)) for name in ("Cost", "Peak memory"))
    nothing: tuple[str, dict[str, Ratio]] = ("", {})
    return [
        Workload(name, group, *costs.get(key, nothing), *peaks.get(key, nothing))
        for key in dict.fromkeys((*costs, *peaks))
        for name, group in [key]
    ]


def _matrix(section: str) -> dict[tuple[str, str], tuple[str, dict[str, Ratio]]]:
    found: dict[tuple[str, str], tuple[str, dict[str, Ratio]]] = {}
    turned, heads = False, [""]
    for line in section.splitlines():
        if not line.startswith("| "):
            turned = TURNED in line if "Ebbtide's" in line and "▼" not in heads else turned
            continue
        [cells] = _lines(line) or [[]]
        if not cells or cells[0] == "workload":
            heads = cells or heads
        elif name := NAME.fullmatch(cells[0]):
            key = (name[1].replace("\\", ""), name[2] or "")
            found[key] = (_as_cost(cells[1]), _ratios(heads[2:], cells[2:], turned))
    return found


def _as_cost(own: str) -> str:
    """An early report has a rate here, of which more is better."""
    rate = RATE.fullmatch(own)
    return f"{1e3 / float(rate[1]):.3g} {rate[2]} ns per op" if rate else own


def _ratios(arms: list[str], cells: list[str], turned: bool) -> dict[str, Ratio]:
    found = {arm: CELL.fullmatch(cell) for arm, cell in zip(arms, cells, strict=True)}
    return {arm: _ratio(cell, turned) for arm, cell in found.items() if cell}


def _ratio(cell: re.Match[str], turned: bool) -> Ratio:
    sign, value, low, high = cell.groups()
    least, most = (float(low), float(high)) if low else (None, None)
    # The column of Ebbtide against itself has no signs.
    state = NOISE if not sign and low and float(low) <= 1 <= float(high) else SIGNS[sign or ""]
    if not turned:
        return Ratio(float(value), least, most, state)
    low_turned, high_turned = (None if each is None else _turn(each) for each in (most, least))
    return Ratio(_turn(float(value)), low_turned, high_turned, state)


def _turn(value: float) -> float:
    return float(f"{1 / value:.3g}") if value else 0.0


# --- from the runs ------------------------------------------------------------------


def series_of(results: Results) -> dict[str, Series]:
    """Of each burst that was watched while the process slept."""
    return {row.scenario.name: found for row in results.rows if (found := _series(row)) is not None}


def _series(row: Row) -> Series | None:
    ends = ("rss_at_peak_mb", "rss_after_free_mb")
    arms = [arm for arm in row.samples if arm != FLOOR and all(row.figure(arm, e) for e in ends)]
    if not arms:
        return None
    mb = {
        arm: [
            *(round(median(row.figure(arm, end)), 1) for end in ends),
            *(round(median(at), 1) for at in zip(*_idle(row, arm), strict=True)),
        ]
        for arm in arms
    }
    samples = row.samples[arms[0]]
    return Series(samples[0].series_step_s, len(samples), mb)


def _idle(row: Row, arm: str) -> list[list[float]]:
    return [next(iter(sample.series.values())) for sample in row.samples[arm]]


# --- the file -----------------------------------------------------------------------


def text_of(summary: Summary) -> str:
    """One line for each workload, whose ratios stand in the order of `arms`."""
    data = asdict(summary)
    arms = [*dict.fromkeys(arm for each in summary.workloads for arm in (*each.cost, *each.peak))]
    for workload in data["workloads"]:
        for figure in MATRICES:
            ratios = workload[figure]
            workload[figure] = [[*ratios[arm].values()] if arm in ratios else 0 for arm in arms]
    rows = ",\n".join(json.dumps(each, separators=(",", ":")) for each in data.pop("workloads"))
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items()]
    parts += [f'"arms": {json.dumps(arms)}', f'"workloads": [\n{rows}\n]']
    return "{\n" + ",\n".join(parts) + "\n}\n"


def load(folder: Path) -> Summary:
    path = folder / SUMMARY
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise LabError(f"{path} is no summary of a session: {error}") from error


def _parse(data: dict[str, Any]) -> Summary:
    arms = data.pop("arms")
    for workload in data["workloads"]:
        for figure in MATRICES:
            cells = zip(arms, workload[figure], strict=True)
            workload[figure] = {arm: Ratio(*cell) for arm, cell in cells if cell}
    data["workloads"] = [Workload(**each) for each in data["workloads"]]
    data["series"] = {name: Series(**each) for name, each in data["series"].items()}
    return Summary(**data)
