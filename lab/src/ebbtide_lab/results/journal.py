# SPDX-License-Identifier: MIT OR Apache-2.0
"""The folder of one session: machine.json, and in runs.jsonl a line for each run.

A line is written and flushed when its run ends, so whatever ends the session leaves
the finished runs. It holds the whole scenario: a folder can be read when the sets
have changed since. machine.json is the card of the session's first start; a session
that is resumed adds allocators to it and changes nothing else.
"""

import fcntl
import gzip
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ebbtide_lab import SCHEMA
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import find_root
from ebbtide_lab.machine import card
from ebbtide_lab.results.model import Histogram, Refusal, Results, Row, Sample, same_work
from ebbtide_lab.scenarios.model import Scenario, scenario_of

MACHINE = "machine.json"
RUNS = "runs.jsonl"
PACKED = "runs.jsonl.gz"  # the same by gzip, to be kept: nothing is added to it
NOT_RUN = "not_run"  # in a line: why the arm cannot do this
Key = tuple[str, str]  # set and scenario
Line = dict[str, Any]


class Journal:
    """Keeps the finished runs of a session; with `resume` it goes on where one ended.

    `facts` is the machine card, `arms` are those of all sessions in the folder, `kept`
    are the lines of earlier ones.
    """

    def __init__(
        self, folder: Path, arms: list[Allocator], resume: bool = False, planted_percent: int = 0
    ) -> None:
        self.folder = folder
        self.arms = arms
        self.facts = {**card.card(), card.PLANTED: planted_percent}
        self.kept: list[Line] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._meet_earlier(resume)
            self._lines = (folder / RUNS).open("a", encoding="utf-8")
            self._claim()
            self._write_machine()
        except OSError as error:
            raise LabError(f"cannot write to {folder}: {error.strerror}") from error

    def _meet_earlier(self, resume: bool) -> None:
        """Takes over what an earlier session left, if it was the same experiment."""
        if (self.folder / PACKED).is_file():
            raise LabError(f"{self.folder} is packed: {PACKED} is kept as it is; choose another")
        if not (self.folder / MACHINE).is_file() and not (self.folder / RUNS).is_file():
            return
        earlier = _read_machine(self.folder)
        lines = list(_read_lines(self.folder)) if (self.folder / RUNS).is_file() else []
        if lines and not resume:
            raise LabError(
                f"{self.folder} already holds runs; --resume goes on with them, or choose another"
            )
        if not lines:
            return
        before = _allocators(earlier.pop("allocators"))
        _check_same_experiment(self.folder, earlier, self.facts)
        self.arms = _joined(self.folder, before, self.arms)
        self.facts, self.kept = earlier, lines

    def _claim(self) -> None:
        """One session at a time; then a torn line is not one that is being written."""
        try:
            fcntl.flock(self._lines, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lines.close()
            raise LabError(f"another session is writing to {self.folder}") from error
        _drop_torn_line(self.folder / RUNS)

    def _write_machine(self) -> None:
        """In one step, so that a full disk cannot leave half of it."""
        text = json.dumps({**self.facts, "allocators": _describe(self.arms)}, indent=2)
        draft = self.folder / f"{MACHINE}.draft"
        draft.write_text(text + "\n", encoding="utf-8")
        draft.replace(self.folder / MACHINE)

    def write(
        self, group: str, scenario: Scenario, arm: str, outcome: Sample | Refusal | str
    ) -> None:
        """One finished run: its sample, or why there is none, or why it failed."""
        line = {
            "schema": SCHEMA,
            "date": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "set": group,
            "scenario": asdict(scenario),
            "arm": arm,
            **self._plant(),
            **_told(outcome),
        }
        try:
            self._lines.write(json.dumps(line) + "\n")
            self._lines.flush()
        except OSError as error:
            with suppress(OSError):  # a second attempt at what the disk refused
                self._lines.close()
            raise _unwritable(self.folder, error) from error

    def _plant(self) -> dict[str, object]:
        """Marks the runs of a test of the lab, so that no line passes for a real one."""
        percent = self.facts.get(card.PLANTED)
        return {card.PLANTED: percent} if percent else {}

    def close(self) -> None:
        try:
            self._lines.close()
        except OSError as error:
            raise _unwritable(self.folder, error) from error


def load(folder: Path) -> Results:
    """Reads what a session left. A last line that was cut short is not a finished run."""
    facts, arms = load_machine(folder)
    lines = list(_read_lines(folder))
    if not lines:
        raise LabError(f"{folder} holds no finished run")
    facts[card.PLANTED] = max(line.get(card.PLANTED, 0) for line in lines)
    return Results(list(fold(lines).values()), arms, facts)


def has_runs(folder: Path) -> bool:
    return (folder / RUNS).is_file() or (folder / PACKED).is_file()


def load_machine(folder: Path) -> tuple[dict[str, object], list[Allocator]]:
    """The card of the machine, and the allocators of the session."""
    facts = _read_machine(folder)
    return facts, _allocators(facts.pop("allocators"))


def fold(lines: Iterable[Line]) -> dict[Key, Row]:
    """The rows that the lines of a journal make."""
    rows: dict[Key, Row] = {}
    for line in lines:
        scenario = scenario_of(line["scenario"], RUNS)
        row = rows.setdefault((line["set"], scenario.name), Row(line["set"], scenario))
        if not same_work(row.scenario, scenario):
            raise LabError(f"{RUNS} holds two different scenarios {scenario.name} of {row.group}")
        if "error" in line:
            row.failures[line["arm"]] = line["error"]
        elif NOT_RUN in line:
            row.refusals[line["arm"]] = line[NOT_RUN]
        else:
            row.samples.setdefault(line["arm"], []).append(_sample(line))
    return rows


def _told(outcome: Sample | Refusal | str) -> Line:
    if isinstance(outcome, str):
        return {"error": outcome}
    return {NOT_RUN: outcome.reason} if isinstance(outcome, Refusal) else asdict(outcome)


def _sample(line: Line) -> Sample:
    histograms = {
        name: Histogram(**{**each, "counts": [(at, count) for at, count in each["counts"]]})
        for name, each in line["histograms"].items()
    }
    return Sample(line["figures"], line["series"], histograms, line["series_step_s"])


# --- machine.json -----------------------------------------------------------------


def _place(path: Path | None) -> str:
    """Within the checkout, where it is: results are read elsewhere, too."""
    if path is None:
        return ""
    root = find_root()
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _describe(arms: list[Allocator]) -> dict[str, dict[str, str]]:
    return {
        arm.name: {"path": _place(arm.path), "version": arm.version, "problem": arm.problem}
        for arm in arms
    }


def _allocators(described: dict[str, dict[str, str]]) -> list[Allocator]:
    return [
        Allocator(
            name, Path(each["path"]) if each["path"] else None, each["version"], each["problem"]
        )
        for name, each in described.items()
    ]


def _check_same_experiment(folder: Path, before: dict[str, object], now: dict[str, object]) -> None:
    for name in (*card.STABLE, card.PLANTED):
        if name in before and before[name] != now[name]:
            raise LabError(
                f"{folder} was measured with {name} {before[name]}, "
                f"now it is {now[name]}; choose another folder"
            )


def _joined(folder: Path, before: list[Allocator], now: list[Allocator]) -> list[Allocator]:
    """The arms of both sessions. One that was missing may have come, one that was
    there may have gone; one that changed would mix two experiments."""
    known = {arm.name: arm for arm in before}
    for arm in now:
        earlier = known.get(arm.name)
        if earlier is None or earlier.problem:
            known[arm.name] = arm
        elif not arm.problem and arm.version != earlier.version:
            raise LabError(
                f"{folder} was measured with {arm.name} {earlier.version}, "
                f"now it is {arm.version}; choose another folder"
            )
    return list(known.values())


def _unwritable(folder: Path, error: OSError) -> LabError:
    return LabError(f"cannot write to {folder}: {error.strerror}; finished runs are kept")


def _read_machine(folder: Path) -> dict[str, Any]:
    path = folder / MACHINE
    facts = _parse(_read(path), str(path))
    if facts.get("schema") != SCHEMA:
        raise LabError(f"{folder} holds schema {facts.get('schema')}, this lab reads {SCHEMA}")
    if "allocators" not in facts:
        raise LabError(f"{path} does not name the allocators")
    return facts


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LabError(f"cannot read {path}: it is not text") from error


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise LabError(f"{where}: not JSON") from error
    if not isinstance(data, dict):
        raise LabError(f"{where}: not a JSON object")
    return data


# --- runs.jsonl -------------------------------------------------------------------

LINE_KEYS = {"set", "scenario", "arm"}
SAMPLE_KEYS = {"figures", "series", "histograms", "series_step_s"}


def _unpack(path: Path) -> str:
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise LabError(f"cannot unpack {path}: {error}") from error


def _read_lines(folder: Path) -> Iterator[Line]:
    path = folder / RUNS
    packed = folder / PACKED
    text = _unpack(packed) if packed.is_file() and not path.is_file() else _read(path)
    whole, _, _ = text.rpartition("\n")
    for number, text in enumerate(whole.splitlines(), 1):
        where = f"{path}, line {number}"
        line = _parse(text, where)
        if line.get("schema") != SCHEMA:
            raise LabError(f"{where}: schema {line.get('schema')}, this lab reads {SCHEMA}")
        bare = "error" in line or NOT_RUN in line
        missing = (LINE_KEYS if bare else LINE_KEYS | SAMPLE_KEYS) - set(line)
        if missing:
            raise LabError(f"{where}: lacks {', '.join(sorted(missing))}")
        yield line


def _drop_torn_line(path: Path) -> None:
    """Cuts off what a crash or a full disk left of a last line."""
    whole = path.read_bytes().rpartition(b"\n")
    os.truncate(path, len(whole[0]) + len(whole[1]))
