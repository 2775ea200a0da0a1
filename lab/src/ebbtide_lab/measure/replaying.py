# SPDX-License-Identifier: MIT OR Apache-2.0
"""Replays a recording under allocators, interleaved, and reads what each run tells."""

import atexit
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ebbtide_lab.arms.allocators import FLOOR, Allocator
from ebbtide_lab.base.errors import RunError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure import interrupts
from ebbtide_lab.measure.callgrind import count
from ebbtide_lab.measure.process import ExitError, finish
from ebbtide_lab.measure.session import turned
from ebbtide_lab.measure.tracing import call_tool
from ebbtide_lab.results.model import Figures, Sample
from ebbtide_lab.scenarios.model import Scenario

REPLAYER = "ebb-replay"
FLOOR_LIBRARY = "libebb_replay_floor.so"
SCHEMA = 1
DAMAGE = {"damaged": "damaged blocks", "sums_that_differ": "sums that differ"}

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    runs: int
    paced: bool = False
    settle_ms: int = 0

    def arguments(self) -> list[str]:
        paced = ["--paced"] if self.paced else []
        return [*paced, "--settle", str(self.settle_ms)]


@dataclass
class Row:
    """One allocator's runs, and why it was not run further."""

    arm: Allocator
    runs: list[dict[str, Any]] = field(default_factory=list)
    counts: Figures = field(default_factory=dict)  # per event, under callgrind
    failure: str = ""

    def figures(self, name: str) -> list[float]:
        return [float(each[name]) for each in self.runs]

    def middle(self, name: str) -> float | None:
        return median(self.figures(name)) if self.runs else None

    def fragmentation(self, at_end: bool) -> float | None:
        """Anonymous memory over live bytes; None where nothing is live."""
        found = [_at_end(each) if at_end else _at_peak(each) for each in self.runs]
        ratios = [each for each in found if each is not None]
        return median(ratios) if ratios else None


def _at_peak(run: dict[str, Any]) -> float | None:
    samples = zip(run["anonymous_bytes"], run["live_bytes"], strict=True)
    anonymous, live = max(samples, default=(0, 0))
    return anonymous / live if live else None


def _at_end(run: dict[str, Any]) -> float | None:
    live = run["live_end_bytes"]
    return run["end_anonymous_bytes"] / live if live else None


@dataclass(frozen=True)
class Program:
    """A compiled recording, and who replays it."""

    path: Path
    replayer: Path
    floor: Allocator | None


@contextmanager
def compiled(recording: Path, layout: Layout) -> Iterator[Program]:
    with tempfile.TemporaryDirectory(prefix="ebb-") as scratch:
        path = Path(scratch) / "program"
        call_tool(layout, "compile", str(recording), str(path))
        yield Program(path, layout.program(REPLAYER), _floor(layout))


class _LastProgram:
    """A session replays a recording under one arm after the other: the last one is kept."""

    def __init__(self) -> None:
        self._recording: Path | None = None
        self._program: Program | None = None
        self._kept = ExitStack()
        atexit.register(self._kept.close)

    def of(self, recording: Path, layout: Layout) -> Program:
        if self._program is None or self._recording != recording:
            self._kept.close()
            self._program = self._kept.enter_context(compiled(recording, layout))
            self._recording = recording
        return self._program


_last = _LastProgram()


def run_replay(scenario: Scenario, allocator: Allocator, layout: Layout, _: Path) -> Sample:
    """One run of a recording, as a row of a set: nanoseconds an event, the allocator's memory.
    The floor's arm is the replay's own floor."""
    program = _last.of(layout.root / scenario.command[0], layout)
    arguments: list[str] = []
    if allocator.name == FLOOR:
        if program.floor is None:
            raise RunError(f"{FLOOR_LIBRARY} is not built")
        allocator, arguments = program.floor, ["--floor"]
    row = Row(allocator)
    _add_run(program, row, arguments)
    if row.failure:
        raise RunError(row.failure)
    return Sample(_figures(row.runs[0]))


def _figures(run: dict[str, Any]) -> Figures:
    to_ns = 1e9 / max(run["events"], 1)
    return {
        "cpu": run["cpu_s"] * to_ns,
        "wall": run["wall_s"] * to_ns,
        "peak_rss_kb": run["peak_anonymous_bytes"] / 1024,
        "mean_rss_kb": run["mean_anonymous_bytes"] / 1024,
        "end_rss_kb": run["end_anonymous_bytes"] / 1024,
        "minor_faults": run["minor_faults"],
        "events": run["events"],
    }


def _floor(layout: Layout) -> Allocator | None:
    """What a replay costs by itself; None where it is not built."""
    library = layout.programs / FLOOR_LIBRARY
    return Allocator("floor", library) if library.is_file() else None


def replay(
    program: Program, arms: list[Allocator], options: Options, tell: Tell
) -> tuple[list[Row], int]:
    """A B C A B C; the floor once. A signal ends it, is told (or 0), and keeps what is finished."""
    rows = {arm.name: Row(arm) for arm in arms}
    with interrupts.kept() as interrupt:
        if program.floor:
            tell("the floor")
            rows["floor"] = Row(program.floor)
            _add_run(program, rows["floor"], ["--floor"])
        for number in range(options.runs):
            for arm in turned(arms, number):
                if not rows[arm.name].failure:
                    tell(f"{arm.name}, run {number + 1} of {options.runs}")
                    _add_run(program, rows[arm.name], options.arguments())
    return list(rows.values()), interrupt.signal


def _add_run(program: Program, row: Row, arguments: list[str]) -> None:
    """A run that found damage tells its figures, too."""
    try:
        output, failure = _finish([str(program.replayer), *arguments, str(program.path)], row.arm)
        row.failure = failure
        if output:
            row.runs.append(_read(output, row.arm))
            row.failure = _damage(row.runs[-1]) or failure
    except RunError as error:
        row.failure = str(error)


def _finish(command: list[str], arm: Allocator) -> tuple[str, str]:
    """Standard output, and why the run failed; a paced one takes as long as the program did."""
    try:
        return finish(command, timeout_s=None, env=_settings(arm)), ""
    except ExitError as error:
        return error.output, str(error)


def _damage(run: dict[str, Any]) -> str:
    found = [f"{run[name]:,} {words}" for name, words in DAMAGE.items() if run[name]]
    if run["refused"]:
        first = f"the first of {run['first_refused_bytes']:,} bytes"
        found.append(f"{run['refused']:,} requests refused, {first}")
    return "; ".join(found)


def _settings(arm: Allocator) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    return {**clean, "LD_PRELOAD": str(arm.path)} if arm.path else clean


def _read(output: str, arm: Allocator) -> dict[str, Any]:
    try:
        run: dict[str, Any] = json.loads(output)
    except json.JSONDecodeError as error:
        raise RunError(f"{REPLAYER} did not print JSON") from error
    if run["schema"] != SCHEMA:
        raise RunError(f"{REPLAYER} prints schema {run['schema']}, this lab reads {SCHEMA}")
    if arm.expected not in run["allocator"]:
        raise RunError(f"malloc came from {run['allocator']}, expected {arm.expected}")
    return run


def count_all(program: Program, arms: list[Allocator], tell: Tell) -> list[Row]:
    """Instructions and cache misses an event under callgrind, one run each, all threads
    one after the other."""
    floor = [Row(program.floor)] if program.floor else []
    rows = [*floor, *(Row(arm) for arm in arms)]
    for row in rows:
        tell(f"{row.arm.name} under callgrind")
        extra = ["--floor"] if row.arm is program.floor else []
        _count(program, row, ["--serial", "--no-samples", *extra])
    return rows


def _count(program: Program, row: Row, arguments: list[str]) -> None:
    command = [str(program.replayer), *arguments, str(program.path)]
    try:
        output, profile = count(command, _settings(row.arm), program.path.parent, None)
        events = max(_read(output, row.arm)["events"], 1)
        row.counts = {name: value / events for name, value in profile.totals.items()}
    except RunError as error:
        row.failure = str(error)
