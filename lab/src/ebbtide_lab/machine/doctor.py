# SPDX-License-Identifier: MIT OR Apache-2.0
"""What about this machine changes figures, and what to do about it.

Each check reads facts below a root folder, so a test can give it any machine, and says
what it found, what that means for figures, and the command that helps where one does.
"""

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ebbtide_lab.machine import card, kernel
from ebbtide_lab.machine.kernel import UNKNOWN

GOOD, NOTE, BAD = "good", "note", "bad"  # and UNKNOWN
BUSY_LOAD = 0.5
STEAL_NOTE_PERCENT = 0.5
STEAL_BAD_PERCENT = 2.0
MEMORY_WANTED_MB = 4000  # the burst of 1 GB, twice in an allocator that keeps it, and the rest
PERF_PARANOID_MAX = 2
TOOL_TIMEOUT_S = 10
TOOLS = {
    "gcc": "builds the peers: `apt-get install gcc`",
    "cargo": "fetches the peers' sources, builds Rust's schemes: `apt-get install cargo`",
    "pkg-config": "tells the versions of liburcu and ck: `apt-get install pkg-config`",
    "valgrind": "counts instructions: `apt-get install valgrind`",
    "strace": "counts system calls: `apt-get install strace`",
}
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")


@dataclass(frozen=True)
class Finding:
    """One fact: what it means for figures and, where it is not good, what to do."""

    name: str
    value: str
    state: str
    meaning: str
    advice: str = ""


@dataclass(frozen=True)
class Machine:
    """Where the facts come from."""

    root: Path
    environment: Mapping[str, str]
    cores: int  # that this process may use
    steal_wait_s: float = 1.0

    @classmethod
    def this(cls) -> "Machine":
        return cls(kernel.ROOT, os.environ, len(os.sched_getaffinity(0)))

    def read(self, name: str) -> str:
        return kernel.read(self.root, name)


def examine(machine: Machine) -> list[Finding]:
    return [*(check(machine) for check in CHECKS), *(_tool(name) for name in TOOLS)]


# --- processor --------------------------------------------------------------------


def _processor(machine: Machine) -> Finding:
    value = card.cpu_model(machine.root)
    return Finding("processor", value, GOOD, "absolute figures hold for this model alone")


def _cores(machine: Machine) -> Finding:
    online = _count(machine.read("sys/devices/system/cpu/online"))
    if online is None:
        return Finding("cores", str(machine.cores), UNKNOWN, "how many are online is not told")
    value = f"{machine.cores} of {online} usable"
    if machine.cores < online:
        meaning = "an affinity mask: rows with more threads share the cores that are left"
        return Finding("cores", value, NOTE, meaning, f"taskset -c 0-{online - 1} ebb ...")
    return Finding("cores", value, GOOD, "no scaling claim goes beyond them")


def _count(ranges: str) -> int | None:
    """How many numbers `0-3,8` names."""
    count = 0
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            return None
        count += int(last or first) - int(first) + 1
    return count


def _governor(machine: Machine) -> Finding:
    value = machine.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    states = {"performance": GOOD, UNKNOWN: UNKNOWN}
    state = states.get(value, BAD)
    meanings = {
        GOOD: "the clock rate does not follow the load",
        UNKNOWN: "the host sets the clock rate, and does not tell",
        BAD: "the clock rate follows the load: short runs start slow",
    }
    advice = "sudo cpupower frequency-set -g performance" if state == BAD else ""
    return Finding("governor", value, state, meanings[state], advice)


def _turbo(machine: Machine) -> Finding:
    value = card.turbo(machine.root)
    if value == "on":
        meaning = "the clock rate depends on heat and on how many cores work"
        switch = "sys/devices/system/cpu/intel_pstate/no_turbo"
        intel = machine.read(switch) != UNKNOWN
        path = f"/{switch}" if intel else "/sys/devices/system/cpu/cpufreq/boost"
        advice = f"echo {int(intel)} | sudo tee {path}"
        return Finding("turbo", value, NOTE, meaning, advice)
    if value == "off":
        return Finding("turbo", value, GOOD, "the clock rate is steady")
    return Finding("turbo", value, UNKNOWN, "the clock rate may change within a run")


def _virtual(machine: Machine) -> Finding:
    value = card.virtual(machine.root)
    if value == "yes":
        meaning = "neighbours that do not show share caches, memory and cores"
        return Finding("virtual machine", value, NOTE, meaning, "trust interleaved ratios alone")
    state = GOOD if value == "no" else UNKNOWN
    return Finding("virtual machine", value, state, "the processor does not name a hypervisor")


def _steal(machine: Machine) -> Finding:
    before = _cpu_ticks(machine)
    time.sleep(machine.steal_wait_s)
    after = _cpu_ticks(machine)
    if before is None or after is None:
        return Finding("steal time", UNKNOWN, UNKNOWN, "what the host took away is not told")
    total, stolen = after[0] - before[0], after[1] - before[1]
    share = 100 * stolen / total if total > 0 else 0.0
    bad, some = share > STEAL_BAD_PERCENT, share > STEAL_NOTE_PERCENT
    state = BAD if bad else NOTE if some else GOOD
    meaning = "core time that the host gave to others: runs take longer by it"
    advice = "wait for a quieter host, or more runs: ebb bench --runs 15" if some else ""
    return Finding("steal time", f"{share:.1f} %", state, meaning, advice)


def _cpu_ticks(machine: Machine) -> tuple[int, int] | None:
    """All ticks, and those stolen: the eighth number. Guest ticks are in user's already."""
    words = machine.read("proc/stat").partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu" or not all(word.isdigit() for word in words[1:9]):
        return None
    ticks = [int(word) for word in words[1:9]]
    return sum(ticks), ticks[7]


def _load(machine: Machine) -> Finding:
    words = machine.read("proc/loadavg").split()
    try:
        load = float(words[0])
    except ValueError:
        return Finding("load", UNKNOWN, UNKNOWN, "who else works is not told")
    if load > BUSY_LOAD:
        meaning = "other processes want the cores: wall time grows, caches are shared"
        return Finding("load", f"{load:.2f}", BAD, meaning, "top -b -n 1 -o %CPU | head -20")
    return Finding("load", f"{load:.2f}", GOOD, "nothing else works")


def _clock_source(machine: Machine) -> Finding:
    folder = "sys/devices/system/clocksource/clocksource0"
    value = machine.read(f"{folder}/current_clocksource")
    if value == UNKNOWN:
        return Finding("clock source", value, UNKNOWN, "how dear a reading is is not told")
    if value not in SLOW_CLOCKS:
        return Finding("clock source", value, GOOD, "read without a system call")
    meaning = "each reading is a system call: latency percentiles show it"
    advice = f"echo tsc | sudo tee /{folder}/current_clocksource"
    return Finding("clock source", value, BAD, meaning, advice)


def _counters(machine: Machine) -> Finding:
    text = machine.read("proc/sys/kernel/perf_event_paranoid")
    level = kernel.number(text)
    unit = (machine.root / "sys/bus/event_source/devices/cpu").exists()
    value = f"perf_event_paranoid {text}, {'with' if unit else 'no'} unit in the processor"
    if level is None or not unit:
        meaning = "no hardware counters: instructions are counted by callgrind instead"
        return Finding("hardware counters", value, NOTE, meaning)
    if level > PERF_PARANOID_MAX:
        advice = "sudo sysctl kernel.perf_event_paranoid=1"
        return Finding("hardware counters", value, NOTE, "closed to this user", advice)
    return Finding("hardware counters", value, GOOD, "perf stat can explain a row")


# --- memory -----------------------------------------------------------------------


def _thp(machine: Machine) -> Finding:
    value = kernel.selected(machine.root, "sys/kernel/mm/transparent_hugepage/enabled")
    if value == "always":
        meaning = "2 MB pages unasked: fewer faults, more resident memory, in every arm"
        path = "/sys/kernel/mm/transparent_hugepage/enabled"
        return Finding("huge pages", value, NOTE, meaning, f"echo madvise | sudo tee {path}")
    if value == UNKNOWN:
        return Finding("huge pages", value, UNKNOWN, "resident memory may come in 2 MB steps")
    return Finding("huge pages", value, GOOD, "only where an allocator asks for them")


def _overcommit(machine: Machine) -> Finding:
    value = machine.read("proc/sys/vm/overcommit_memory")
    if value == "2":
        meaning = "reserved address space counts as memory: allocators that reserve may fail"
        return Finding("overcommit", value, BAD, meaning, "sudo sysctl vm.overcommit_memory=0")
    if value in ("0", "1"):
        return Finding("overcommit", value, GOOD, "address space may be reserved freely")
    return Finding("overcommit", value, UNKNOWN, "reservations may fail")


def _memory(machine: Machine) -> Finding:
    told = kernel.table(machine.root, "proc/meminfo")
    free_kb = kernel.number(told.get("MemAvailable", ""))
    if free_kb is None:
        return Finding("free memory", UNKNOWN, UNKNOWN, "large rows may run out of memory")
    free_mb = free_kb * 1024 // 1_000_000
    if free_mb < MEMORY_WANTED_MB:
        meaning = f"below {MEMORY_WANTED_MB} MB: the bursts of 1 GB may swap or be killed"
        return Finding("free memory", f"{free_mb} MB", BAD, meaning, "ps aux --sort=-rss | head")
    return Finding("free memory", f"{free_mb} MB", GOOD, "enough for the largest row")


def _swap(machine: Machine) -> Finding:
    used = card.swap_used_mb(machine.root)
    if used is None:
        return Finding("swap", UNKNOWN, UNKNOWN, "pages on disk would not count as resident")
    if used > 0:
        meaning = "pages on disk do not count as resident: memory looks smaller than it is"
        advice = "sudo swapoff -a && sudo swapon -a"
        return Finding("swap", f"{used} MB used", BAD, meaning, advice)
    return Finding("swap", "not used", GOOD, "resident memory is all there is")


def _aslr(machine: Machine) -> Finding:
    value = machine.read("proc/sys/kernel/randomize_va_space")
    if value == "2":
        meaning = "each run has another layout, so a lucky one is averaged out"
        return Finding("address randomisation", value, GOOD, meaning)
    if value == UNKNOWN:
        return Finding("address randomisation", value, UNKNOWN, "layouts may repeat")
    advice = "sudo sysctl kernel.randomize_va_space=2"
    meaning = "each run has the same layout: luck repeats and looks like a result"
    return Finding("address randomisation", value, BAD, meaning, advice)


# --- system -----------------------------------------------------------------------


def _kernel(_: Machine) -> Finding:
    return Finding(
        "kernel", platform.release(), GOOD, "page faults and madvise cost as in this one"
    )


def _glibc(_: Machine) -> Finding:
    return Finding("glibc", card.glibc(), GOOD, "the arm glibc is this version")


def _environment(machine: Machine) -> Finding:
    found = card.settings(machine.environment)
    if not found:
        return Finding("environment", "clean", GOOD, "no variable changes an allocator")
    value = ", ".join(f"{name}={setting}" for name, setting in found.items())
    meaning = "these change what an allocator does, in the runs as well"
    return Finding("environment", value, BAD, meaning, f"unset {' '.join(found)}")


def _container(machine: Machine) -> Finding:
    value = card.container(machine.root)
    meaning = "the kernel and its switches are the host's" if value == "yes" else "none is needed"
    return Finding("container", value, NOTE if value == "yes" else GOOD, meaning)


def _limits(machine: Machine) -> Finding:
    cpu, memory = card.cpu_limit(machine.root), card.memory_limit(machine.root)
    value = f"cpu {cpu}, memory {memory}"
    if cpu == memory == "none":
        return Finding("limits of the group", value, GOOD, "nothing is throttled")
    meaning = "throttled in slices of time, or killed at the limit: rows get long tails"
    state = NOTE if cpu == "none" else BAD
    return Finding("limits of the group", value, state, meaning, "run outside of this group")


CHECKS: tuple[Callable[[Machine], Finding], ...] = (
    _processor,
    _cores,
    _governor,
    _turbo,
    _virtual,
    _container,
    _limits,
    _load,
    _steal,
    _clock_source,
    _counters,
    _thp,
    _overcommit,
    _memory,
    _swap,
    _aslr,
    _kernel,
    _glibc,
    _environment,
)


def _tool(name: str) -> Finding:
    path = shutil.which(name)
    use, _, advice = TOOLS[name].partition(": ")
    if not path:
        return Finding(name, "missing", BAD, use, advice.strip("`"))
    return Finding(name, _version(path), GOOD, use)


def _version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return done.stdout.partition("\n")[0].strip() or UNKNOWN
