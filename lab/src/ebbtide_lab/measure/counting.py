# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a workload under a counting tool: instructions and cache misses, system calls."""

import re
from pathlib import Path

from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import RunError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure.preload import environment
from ebbtide_lab.measure.process import TIMEOUT_S, ExitError, finish
from ebbtide_lab.measure.workload import read_workload, settings_for
from ebbtide_lab.results.model import Figures, Sample
from ebbtide_lab.scenarios.model import Scenario

COUNTED_LINES = {
    "instructions": "I +refs:",
    "d1_misses": "D1 +misses:",
    "ll_misses": "LLd misses:",
}
MEMORY_CALLS = ("mmap", "munmap", "madvise", "mprotect", "mremap", "brk")


def run_counted(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Sample:
    """Twice, with N and 2 N iterations: what start and end cost drops out."""
    once = _count(scenario, allocator, layout, scratch, times=1)
    twice = _count(scenario, allocator, layout, scratch, times=2)
    operations = twice.pop("operations") - once.pop("operations")
    if operations <= 0:
        raise RunError("twice the iterations were no more operations")
    return Sample({f"{name}_per_op": (twice[name] - once[name]) / operations for name in once})


def _count(
    scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path, times: int
) -> Figures:
    """Operations of one run under callgrind, and what they cost by its count and by its
    simulation of the first-level data cache and the last-level cache."""
    program, *arguments = scenario.command
    if scenario.doubled not in arguments[:-1]:
        raise RunError(f"a row of kind instructions wants {scenario.doubled} N in its command")
    at = arguments.index(scenario.doubled) + 1
    arguments[at] = str(times * int(arguments[at]))
    command = [str(layout.program(program)), *arguments]
    output, counts = count(command, settings_for(scenario, allocator), scratch)
    figures = read_workload(output, allocator).figures
    return {**counts, "operations": figures["ops"] + figures.get("warm_up_ops", 0.0)}


def count(
    command: list[str],
    settings: dict[str, str],
    scratch: Path,
    timeout_s: float | None = TIMEOUT_S,
) -> tuple[str, Figures]:
    """What a command prints under callgrind, and what callgrind counted."""
    log = scratch / "callgrind.log"
    callgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    callgrind += ["--cache-sim=yes", f"--log-file={log}"]
    try:
        output = finish([*callgrind, *command], timeout_s, env=settings, cwd=scratch)
    except ExitError as error:
        raise RunError(f"{error}; {_last_words(log)}") from error
    return output, read_counts(log.read_text(encoding="utf-8"))


def _last_words(log: Path) -> str:
    """Whether valgrind itself died or the program under it."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return "callgrind ended with " + repr(lines[-1]) if lines else "callgrind wrote no line"


def read_counts(log: str) -> Figures:
    """What callgrind counted, from the lines that it ends with."""
    counts = {}
    for name, line in COUNTED_LINES.items():
        found = re.search(rf"{line} *([\d,]+)", log)
        if not found:
            raise RunError(f"callgrind did not tell {name.replace('_', ' ')}")
        counts[name] = float(found[1].replace(",", ""))
    return counts


def run_traced(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Sample:
    """Counts the system calls that move memory, those of start and end included."""
    program, *arguments = scenario.command
    log = scratch / "strace.txt"
    settings = settings_for(scenario, allocator)
    # strace itself runs under glibc: only its child gets the preload.
    kept = [part for key in ("LD_PRELOAD", "LAB_EXPECT") for part in _strace_set(key, settings)]
    command = ["strace", "-f", "-c", "-U", "calls,name", "-o", str(log), *kept]
    command += [str(layout.program(program)), *arguments]
    output = finish(command, env=environment(scenario), cwd=scratch)
    sample = read_workload(output, allocator)
    calls = read_calls(log.read_text(encoding="utf-8"))
    memory = {name: calls.get(name, 0.0) for name in MEMORY_CALLS}
    per_mop = sum(memory.values()) / (sample.figures["ops"] * 1e-6)
    return Sample({**memory, "memory_calls_per_mop": per_mop, "all_calls": sum(calls.values())})


def _strace_set(key: str, settings: dict[str, str]) -> list[str]:
    return ["-E", f"{key}={settings[key]}"] if key in settings else []


def read_calls(table: str) -> dict[str, float]:
    """Calls by name from the table that `strace -c -U calls,name` prints."""
    lines = (line.split() for line in table.splitlines())
    return {
        fields[1]: float(fields[0])
        for fields in lines
        if len(fields) == 2 and fields[0].isdigit() and fields[1] != "total"
    }
