# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which misuse of the heap an allocator catches: tests/security, run under each."""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ebbtide_lab.arms.allocators import EBBTIDE, Allocator
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout

AT_ONCE, LATER, MISSED, HANG = "at once", "later", "missed", "hang"
FALSE_REPORT, SKIP = "false report", "skip"
CHECKED = {"EBB_CHECK": "1"}


class Size(TypedDict):
    """A case at one size: what was seen of the fault, and of the same program without it."""

    fault: str
    clean: str
    harm: bool


class Case(TypedDict):
    """As tests/security/catalogue.py writes it."""

    name: str
    family: str
    verdict: str
    sizes: dict[str, Size]


@dataclass(frozen=True)
class Catalogue:
    """All cases under one allocator, perhaps with an option of it."""

    arm: Allocator
    options: dict[str, str]
    cases: list[Case]

    @property
    def label(self) -> str:
        return " ".join([self.arm.name, *(f"{name}={what}" for name, what in self.options.items())])

    def counts(self, family: str | None = None) -> Counter[str]:
        return Counter(
            case["verdict"] for case in self.cases if family is None or case["family"] == family
        )

    def bad(self) -> int:
        """Cases in which what is not wrong was reported, or hung."""
        bad = {FALSE_REPORT, HANG}
        cleans = [{size["clean"] for size in case["sizes"].values()} for case in self.cases]
        ended = self.counts()[FALSE_REPORT]  # before the fault
        return sum(bool(bad & clean) for clean in cleans) + ended


def program(layout: Layout) -> Path:
    """The program that holds the cases; built when it is missing."""
    path = layout.build / "release" / "tests" / "security"
    if not path.is_file():
        command = ["cmake", "--build", "--preset", "release", "--target", "security"]
        done = subprocess.run(command, cwd=layout.root, capture_output=True, text=True, check=False)
        if not path.is_file():
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
            raise LabError(f"cannot build the cases of misuse:\n{tail}")
    return path


def ways(arms: list[Allocator]) -> Iterator[tuple[Allocator, dict[str, str]]]:
    """Each allocator as it is; Ebbtide with its checks as well."""
    for arm in arms:
        yield arm, {}
        if arm.name == EBBTIDE:
            yield arm, CHECKED


def run(layout: Layout, arm: Allocator, options: dict[str, str], only: str) -> Catalogue:
    """Runs the cases whose names `only`, a regular expression, is found in."""
    if arm.problem:
        raise LabError(f"{arm.name}: {arm.problem}")
    script = layout.root / "tests" / "security" / "catalogue.py"
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [sys.executable, str(script), str(program(layout)), "--json", out.name]
        command += ["--cases", only]
        command += ["--preload", str(arm.path)] if arm.path else []
        for name, value in options.items():
            command += ["--env", f"{name}={value}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):  # 1: false reports and hangs, which are told below
            raise LabError(f"the cases of misuse under {arm.name}: {done.stderr.strip()}")
        return Catalogue(arm, options, json.load(out))
