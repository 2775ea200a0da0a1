#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the heap misuse cases of the program `security`: which does the allocator catch?

Exit status: 0; 1 when a clean run failed or a run hung; 2 for bad usage."""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fcntl import F_DUPFD_CLOEXEC, fcntl

AT_ONCE, LATER, MISSED = "at once", "later", "missed"
OK, FALSE_REPORT, SKIP, HANG = "ok", "false report", "skip", "hang"
EXIT_PREVENTED, EXIT_BROKEN, EXIT_SKIPPED = 3, 9, 77
TIME_LIMIT_MS = 15_000


@dataclass(frozen=True)
class Case:
    name: str
    family: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """One run; a negative code is a signal, the message the first line of stderr."""

    code: int
    marks: str
    message: str
    timed_out: bool

    def verdict(self, clean: bool) -> str:
        if self.timed_out or self.code == -signal.SIGALRM:
            return HANG
        if self.code == EXIT_SKIPPED:
            return SKIP
        if clean:
            good = self.code in (0, EXIT_PREVENTED) and not self.message and "H" not in self.marks
            return OK if good else FALSE_REPORT
        stages = self.marks.replace("H", "")
        if not stages:
            return FALSE_REPORT  # it ended before the misuse
        if self.code in (0, EXIT_BROKEN):  # broken: malloc no longer works, and no one says so
            return MISSED
        return AT_ONCE if self.code == EXIT_PREVENTED or stages[-1] == "F" else LATER


@dataclass
class Cell:
    """All runs of a case at a size."""

    fault: list[Outcome] = field(default_factory=list)
    clean: list[Outcome] = field(default_factory=list)

    def verdicts(self) -> list[str]:
        return [outcome.verdict(clean=False) for outcome in self.fault]

    def fault_verdict(self) -> str:
        verdicts = self.verdicts()
        order = (FALSE_REPORT, HANG, AT_ONCE, LATER, MISSED, SKIP)
        first = next(verdict for verdict in order if verdict in verdicts)
        count = verdicts.count(first)
        return first if count == len(verdicts) else f"sometimes {first} {count}/{len(verdicts)}"

    def clean_verdict(self) -> str:
        verdicts = {outcome.verdict(clean=True) for outcome in self.clean}
        return next(verdict for verdict in (HANG, FALSE_REPORT, OK, SKIP) if verdict in verdicts)

    def harm(self) -> bool:
        return any("H" in outcome.marks for outcome in self.fault)

    def message(self) -> str:
        return next((outcome.message for outcome in self.fault if outcome.message), "")

    def text(self) -> str:
        clean = self.clean_verdict()
        note = "" if clean in (OK, SKIP) else f" (clean: {clean})"
        return self.fault_verdict() + (" H" if self.harm() else "") + note


def high_descriptor(low: int) -> int:
    """The descriptor moved out of the way of 0 to 3."""
    high = fcntl(low, F_DUPFD_CLOEXEC, 10)
    os.close(low)
    return high


def run_once(command: list[str], env: dict[str, str]) -> Outcome:
    reader, writer = (high_descriptor(end) for end in os.pipe())
    stderr = high_descriptor(os.memfd_create("stderr", os.MFD_CLOEXEC))
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_DUP2, stderr, 2),
        (os.POSIX_SPAWN_DUP2, writer, 3),
    ]
    pid = os.posix_spawn(command[0], command, env, file_actions=actions)
    os.close(writer)
    watch = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    timed_out = not poll.poll(TIME_LIMIT_MS)
    if timed_out:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(watch)
    os.set_blocking(reader, False)
    try:
        marks = os.read(reader, 65536).decode("ascii", "replace")
    except BlockingIOError:  # a process of the program lives on
        marks = ""
    os.close(reader)
    lines = os.pread(stderr, 65536, 0).decode("utf-8", "replace").strip().splitlines()
    os.close(stderr)
    return Outcome(code, marks, lines[0] if lines else "", timed_out)


def list_cases(program: str) -> list[Case]:
    listed = subprocess.run([program, "--list"], check=True, capture_output=True, text=True)
    return [Case(*line.split("\t")) for line in listed.stdout.splitlines()]


Results = dict[Case, dict[int, Cell]]


def run_all(options: argparse.Namespace, cases: list[Case], env: dict[str, str]) -> Results:
    results: Results = {case: {size: Cell() for size in options.sizes} for case in cases}
    work = [
        (case, size, kind, seed)
        for case in cases
        for size in options.sizes
        for kind in ("fault", "clean")
        for seed in range(1, options.repeat + 1)
    ]
    commands = [[options.program, item[0].name, *map(str, item[1:])] for item in work]
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:
        outcomes = pool.map(lambda command: run_once(command, env), commands)
        for (case, size, kind, _), outcome in zip(work, outcomes, strict=True):
            cell = results[case][size]
            (cell.fault if kind == "fault" else cell.clean).append(outcome)
    return results


def case_verdict(cells: Iterable[Cell]) -> str:
    """Caught means caught in every run of every size that applies; the worst verdict counts."""
    seen = {verdict for cell in cells for verdict in cell.verdicts()} - {SKIP}
    order = (HANG, FALSE_REPORT, MISSED, LATER, AT_ONCE)
    return next((worst for worst in order if worst in seen), SKIP)


def report(results: Results, sizes: list[int]) -> int:
    wide = max((len(case.name) for case in results), default=4)
    print("case".ljust(wide), *(str(size).ljust(24) for size in sizes), "first message")
    totals: Counter[str] = Counter()
    families: dict[str, Counter[str]] = {}
    harmed = bad = 0
    for case, cells in results.items():
        verdict = case_verdict(cells.values())
        totals[verdict] += 1
        families.setdefault(case.family, Counter())[verdict] += 1
        harmed += any(cell.harm() for cell in cells.values())
        message = next((cell.message() for cell in cells.values() if cell.message()), "")
        columns = [cells[size].text().ljust(24) for size in sizes]
        print(case.name.ljust(wide), *columns, message)
        for cell in cells.values():
            bad += bool({cell.clean_verdict(), *cell.verdicts()} & {FALSE_REPORT, HANG})
    print()
    for name, counts in [*families.items(), ("all", totals)]:
        shown = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        print(f"{name}: {sum(counts.values())} cases: {shown}")
    print(f"harm seen in {harmed} cases; false reports and hangs: {bad}")
    return 1 if bad else 0


def cell_as_json(cell: Cell) -> dict[str, object]:
    return {
        "fault": cell.fault_verdict(),
        "clean": cell.clean_verdict(),
        "harm": cell.harm(),
        "message": cell.message(),
        "clean_message": next((o.message for o in cell.clean if o.message), ""),
        "exit": [outcome.code for outcome in cell.fault],
    }


def as_json(results: Results) -> list[dict[str, object]]:
    return [
        vars(case)
        | {"verdict": case_verdict(cells.values())}
        | {"sizes": {str(size): cell_as_json(cell) for size, cell in cells.items()}}
        for case, cells in results.items()
    ]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Which heap misuse does the allocator catch?")
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("--preload", metavar="LIB", type=os.path.abspath)
    parser.add_argument("--env", metavar="NAME=VALUE", action="append", default=[])
    parser.add_argument("--sizes", default="24,1000,200000")
    parser.add_argument("--cases", metavar="REGEX", default="")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--repeat", metavar="N", type=int, default=1)
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2, help="processes at once")
    options = parser.parse_args()
    try:
        options.sizes = [int(size) for size in options.sizes.split(",")]
        options.cases = re.compile(options.cases)
    except (ValueError, re.error) as error:
        parser.error(str(error))
    if not all(os.access(path or "/", os.R_OK) for path in (options.program, options.preload)):
        parser.error("cannot read the program or the library")
    if options.repeat < 1 or not all("=" in item for item in options.env):
        parser.error("--repeat wants a number from 1, --env NAME=VALUE")
    return options


def main() -> int:
    options = read_options()
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    env |= dict(item.split("=", 1) for item in options.env)
    if options.preload is not None:
        env["LD_PRELOAD"] = options.preload
    try:
        cases = [case for case in list_cases(options.program) if options.cases.search(case.name)]
    except (OSError, TypeError, subprocess.CalledProcessError) as error:
        print(f"cannot list the cases: {error}", file=sys.stderr)
        return 2
    results = run_all(options, cases, env)
    if options.json is not None:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(as_json(results), file, indent=1)
    return report(results, options.sizes)


if __name__ == "__main__":
    sys.exit(main())
