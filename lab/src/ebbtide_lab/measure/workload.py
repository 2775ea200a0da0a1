# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a program of bench/, which reports on itself in JSON."""

import json
from pathlib import Path
from typing import Any

from ebbtide_lab import SCHEMA
from ebbtide_lab.arms import schemes, ways
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import NotRunError, RunError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure.preload import environment
from ebbtide_lab.measure.process import TIMEOUT_S, ExitError, finish
from ebbtide_lab.results.model import Figures, Histogram, Sample
from ebbtide_lab.scenarios.model import Scenario

LINKED = "libebbtide.so"
# What a scheme's program does about a workload that it cannot do.
EXIT_NOT_RUN = 3
NOT_RUN = "not run: "


def run_workload(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Sample:
    program, *arguments = scenario.command
    command = [str(layout.program(program)), *arguments, *ways.options(allocator.way)]
    settings = settings_for(scenario, allocator)
    timeout_s = max(TIMEOUT_S, 2 * scenario.estimate_s)
    return read_workload(finish(command, timeout_s, env=settings, cwd=scratch), allocator)


def run_scheme(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Sample:
    """By the program of the arm's scheme. One that is linked to its allocator is run
    without a preload, and the object that malloc came from must be that very file."""
    workload, *arguments = scenario.command
    command = [*schemes.command(allocator.scheme, workload, layout), *arguments]
    settings = settings_for(scenario, allocator)
    if allocator.linked:
        _check_age(Path(command[0]), allocator)
        settings = {**environment(scenario), "LAB_EXPECT": LINKED}
    try:
        output = finish(command, env=settings, cwd=scratch)
    except ExitError as error:
        reason = error.last_line.removeprefix(NOT_RUN)
        if error.code == EXIT_NOT_RUN and reason != error.last_line:
            raise NotRunError(reason) from error
        raise
    return read_workload(output, allocator)


def _check_age(program: Path, allocator: Allocator) -> None:
    """Half of a pin is inline: a program of an earlier build would not fit the library."""
    if allocator.path and program.stat().st_mtime_ns < allocator.path.stat().st_mtime_ns:
        raise RunError(f"{program} is older than the library; `make bench-programs` builds it")


def settings_for(scenario: Scenario, allocator: Allocator) -> dict[str, str]:
    preload = {"LD_PRELOAD": str(allocator.path)} if allocator.path else {}
    return {**environment(scenario), "LAB_EXPECT": allocator.expected, **preload}


def read_workload(output: str, allocator: Allocator) -> Sample:
    """The sample in a workload's JSON, after checking what it says of itself."""
    try:
        data = json.loads(output)
    except json.JSONDecodeError as error:
        raise RunError("the workload did not print JSON") from error
    try:
        return _read_report_of_workload(data, allocator)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"the workload's report is not as it should be: {error!r}") from error


def _read_report_of_workload(data: dict[str, Any], allocator: Allocator) -> Sample:
    if data["schema"] != SCHEMA:
        raise RunError(f"the workload prints schema {data['schema']}, this lab reads {SCHEMA}")
    if not _is_from(data["allocator"], allocator):
        raise RunError(f"malloc came from {data['allocator']}, expected {allocator.expected}")
    failed = [name for name, holds in data["verified"].items() if not holds]
    if failed:
        raise RunError(f"the workload's check failed: {', '.join(failed)}")
    figures: Figures = data["figures"]
    costs = {"wall": figures["wall_ns_per_op"], "cpu": figures["cpu_ns_per_op"]}
    histograms = {name: _histogram(each) for name, each in data["histograms"].items()}
    return Sample({**figures, **costs}, data["series"], histograms, data["series_step_s"])


def _is_from(loaded: str, allocator: Allocator) -> bool:
    """A linked library is found by its short name, which is a link to the file."""
    return allocator.expected in loaded or str(Path(loaded).resolve()) == allocator.expected


def _histogram(data: dict[str, Any]) -> Histogram:
    return Histogram(**{**data, "counts": [(at, count) for at, count in data["counts"]]})
