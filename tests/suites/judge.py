# SPDX-License-Identifier: MIT OR Apache-2.0
"""One test three ways, and what that says: the words of the summary."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

OWN_LINE = re.compile(rb"^ebbtide: ", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """A test that ran once. status: negative for a signal, None where its time was over."""

    status: int | None
    output: bytes
    checks: int
    reports: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.status == 0


def count_checks(pattern: str | None, outcome_passed: bool, output: bytes) -> int:
    """Of a pattern with a group the sum of its numbers, else how often it matches."""
    if pattern is None:
        return int(outcome_passed)
    found = re.findall(pattern.encode(), output, re.MULTILINE)
    return sum(int(match) if match.isdigit() else 1 for match in found)


def read_reports(path: Path, output: bytes) -> tuple[str, ...]:
    """The file's messages, or, where a suite has cleared the environment, the lines that went to stderr."""
    if path.exists():
        return tuple(json.loads(line)["message"] for line in path.read_text().splitlines())
    lines = [line for line in output.splitlines() if OWN_LINE.match(line)]
    return tuple(line.decode(errors="replace") for line in lines)


def new_failure(plain: Outcome, other: Outcome, same: bool) -> str | None:
    """What passes plain and not so, or None. A test that fails plain still has the checks in it that pass."""
    if plain.passed and not other.passed:
        return "out of time" if other.status is None else f"status {other.status}"
    if other.checks < plain.checks:
        return f"{other.checks} checks pass, plain {plain.checks}"
    if same and other.output != plain.output:
        return "another output"
    return None


@dataclass
class Verdict:
    """Of a program: all its tests."""

    name: str
    kind: str
    tests: int = 0
    checks: int = 0
    unjudged: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    planted: int = 0
    skipped: str = ""
    seconds: float = 0.0

    def add(self, test: str, outcomes: dict[str, Outcome], same: bool, reason: str | None) -> None:
        plain = outcomes["plain"]
        if plain.checks == 0:
            self.unjudged.append(test)
        else:
            self.tests += 1
            self.checks += plain.checks
        faults = []
        for way, outcome in outcomes.items():
            what = new_failure(plain, outcome, same)
            if what is not None and way != "plain" and plain.checks != 0:
                faults.append(f"{test}, {way}: {what}")
            self.reports += [f"{test}, {way}: {report}" for report in outcome.reports if reason is None]
            faults += [f"{test}, {way}: {report}" for report in outcome.reports if reason is not None]
        if reason is None:
            self.failures += faults
        elif faults:
            self.known.append(f"{test}: {reason}")
        else:
            self.stale.append(f"{test}: said to fail, and does not: {reason}")

    @property
    def good(self) -> bool:
        return not (self.failures or self.reports or self.stale) and (bool(self.skipped) or self.tests > 0)

    def line(self) -> str:
        if self.skipped:
            return f"{self.name:12} skipped: {self.skipped}"
        parts = [f"{self.tests:5} tests, {self.checks:6} checks"]
        parts += [f"{self.planted} planted faults found"] if self.planted else []
        parts += [f"{len(names)} {what}" for names, what in (
            (self.failures, "NEW FAILURES"), (self.reports, "REPORTS"), (self.known, "known"),
            (self.stale, "STALE"), (self.unjudged, "fail without the library, too")) if names]
        return f"{self.name:12} {self.kind:5} {self.seconds:4.0f} s {', '.join(parts)}"

    def details(self) -> list[str]:
        return [f"    {text}" for text in [*self.failures, *self.reports, *self.stale, *self.known]]


def total(verdicts: list[Verdict]) -> str:
    ran = [verdict for verdict in verdicts if not verdict.skipped]
    return (f"{len(ran)} programs, {sum(v.tests for v in ran)} tests with {sum(v.checks for v in ran)} checks: "
            f"{sum(len(v.failures) for v in ran)} pass plain and fail with the library, "
            f"{sum(len(v.reports) for v in ran)} reports, {sum(len(v.known) for v in ran)} known; "
            f"{sum(v.planted for v in ran)} planted faults found; "
            f"{len(verdicts) - len(ran)} programs skipped")
