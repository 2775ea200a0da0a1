# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a workload under a counting tool: instructions, caches and branches, or system calls."""

from pathlib import Path

from ebbtide_lab.arms.allocators import Allocator, libc_path
from ebbtide_lab.base.errors import RunError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure.callgrind import count
from ebbtide_lab.measure.preload import environment
from ebbtide_lab.measure.process import finish
from ebbtide_lab.measure.workload import read_workload, settings_for
from ebbtide_lab.results.model import Figures, Sample
from ebbtide_lab.scenarios.model import Scenario

# What the allocator's own code has of them is told by itself.
SHARED = ("instructions", "d1_misses")
RATES = {
    "load_miss_percent": ("load_misses", "loads"),
    "ll_miss_percent": ("ll_misses", "ll_references"),
    "mispredict_percent": ("mispredicts", "branches"),
    **{f"allocator_{name}_percent": (f"allocator_{name}", name) for name in SHARED},
}
MEMORY_CALLS = ("mmap", "munmap", "madvise", "mprotect", "mremap", "brk")


def run_counted(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Sample:
    """Twice, with N and 2 N iterations: what start and end cost drops out."""
    once = _count(scenario, allocator, layout, scratch, times=1)
    twice = _count(scenario, allocator, layout, scratch, times=2)
    operations = twice.pop("operations") - once.pop("operations")
    if operations <= 0:
        raise RunError("twice the iterations were no more operations")
    spent = {name: twice[name] - once[name] for name in once}
    rates = {
        name: 100 * spent[part] / spent[whole]
        for name, (part, whole) in RATES.items()
        if spent[whole] > 0
    }
    return Sample(
        {**{f"{name}_per_op": each / operations for name, each in spent.items()}, **rates}
    )


def _count(
    scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path, times: int
) -> Figures:
    """Operations of one run under callgrind, and what they cost by its count and by its
    simulation of caches and branches."""
    program, *arguments = scenario.command
    if scenario.doubled not in arguments[:-1]:
        raise RunError(f"a row of kind instructions wants {scenario.doubled} N in its command")
    at = arguments.index(scenario.doubled) + 1
    arguments[at] = str(times * int(arguments[at]))
    command = [str(layout.program(program)), *arguments]
    output, profile = count(command, settings_for(scenario, allocator), scratch)
    figures = read_workload(output, allocator).figures
    own = profile.of(allocator.path or libc_path())
    return {
        **profile.totals,
        **{f"allocator_{name}": own[name] for name in SHARED},
        "operations": figures["ops"] + figures.get("warm_up_ops", 0.0),
    }


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
