# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a program of bench/, which reports on itself in JSON."""

import json
from pathlib import Path
from typing import Any

from ebbtide_lab import SCHEMA
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import RunError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure.preload import environment
from ebbtide_lab.measure.process import finish
from ebbtide_lab.results.model import Figures, Histogram, Sample
from ebbtide_lab.scenarios.model import Scenario


def run_workload(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Sample:
    program, *arguments = scenario.command
    command = [str(layout.program(program)), *arguments]
    settings = settings_for(scenario, allocator)
    return read_workload(finish(command, env=settings, cwd=scratch), allocator)


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
    if allocator.expected not in data["allocator"]:
        raise RunError(f"malloc came from {data['allocator']}, expected {allocator.expected}")
    failed = [name for name, holds in data["verified"].items() if not holds]
    if failed:
        raise RunError(f"the workload's check failed: {', '.join(failed)}")
    figures: Figures = data["figures"]
    costs = {"wall": figures["wall_ns_per_op"], "cpu": figures["cpu_ns_per_op"]}
    histograms = {name: _histogram(each) for name, each in data["histograms"].items()}
    return Sample({**figures, **costs}, data["series"], histograms, data["series_step_s"])


def _histogram(data: dict[str, Any]) -> Histogram:
    return Histogram(**{**data, "counts": [(at, count) for at, count in data["counts"]]})
