# SPDX-License-Identifier: MIT OR Apache-2.0
"""The machine card: what absolute figures depend on."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ebbtide_lab import SCHEMA
from ebbtide_lab.machine import kernel, limits
from ebbtide_lab.machine.kernel import UNKNOWN

# Sessions that differ in one of these are two experiments.
STABLE = (
    "kernel",
    "architecture",
    "cpu",
    "cores",
    "page_size_bytes",
    "thp",
    "overcommit",
    "governor",
    "turbo",
    "aslr",
    "glibc",
    "cpu_limit",
    "memory_limit",
    "environment",
)
PLANTED = "planted_percent"  # set by a test of the lab itself
# Prefixes of variables that change what an allocator does.
SETTINGS = (
    "EBB_",
    "GLIBC_TUNABLES",
    "JE_",
    "LD_PRELOAD",
    "MALLOC_",
    "MIMALLOC_",
    "SCUDO_",
    "SNMALLOC_",
    "TCMALLOC_",
)
MODEL_KEYS = ("model name", "Model", "CPU part")


def card(
    root: Path = kernel.ROOT, environment: Mapping[str, str] = os.environ
) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": cpu_model(root),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": _memory_mb(),
        "page_size_bytes": os.sysconf("SC_PAGE_SIZE"),
        "thp": kernel.selected(root, "sys/kernel/mm/transparent_hugepage/enabled"),
        "overcommit": kernel.read(root, "proc/sys/vm/overcommit_memory"),
        "governor": kernel.read(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "turbo": turbo(root),
        "aslr": kernel.read(root, "proc/sys/kernel/randomize_va_space"),
        "clock_source": kernel.read(
            root, "sys/devices/system/clocksource/clocksource0/current_clocksource"
        ),
        "virtual": virtual(root),
        "container": container(root),
        "cpu_limit": cpu_limit(root),
        "memory_limit": memory_limit(root),
        "swap_used_mb": swap_used_mb(root),
        "environment": settings(environment),
        "glibc": glibc(),
        "load": os.getloadavg()[0],
    }


def describe(facts: Mapping[str, object]) -> str:
    """One line for tables and reports; a planted slow-down comes first."""
    planted = facts.get(PLANTED)
    warning = (
        f"NOT A RESULT: Ebbtide was slowed down by {planted} % on purpose. " if planted else ""
    )
    kind = ", virtual" if facts.get("virtual") == "yes" else ""
    kind += ", in a container" if facts.get("container") == "yes" else ""
    return (
        f"{warning}{facts['cpu']}, {facts['cores']} cores{kind}, Linux {facts['kernel']}, "
        f"glibc {facts['glibc']}, THP {facts['thp']}, overcommit {facts['overcommit']}, "
        f"load {facts['load']:.2f} at the start"
    )


def cpu_model(root: Path) -> str:
    told = kernel.table(root, "proc/cpuinfo")
    return next((told[key] for key in MODEL_KEYS if key in told), platform.machine())


def glibc() -> str:
    return (os.confstr("CS_GNU_LIBC_VERSION") or UNKNOWN).removeprefix("glibc ")


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what an allocator does."""
    found = {key: value for key, value in environment.items() if key.startswith(SETTINGS)}
    return dict(sorted(found.items()))


def turbo(root: Path) -> str:
    """Intel's driver has a switch that is 1 when off, the others' is 1 when on."""
    off = kernel.read(root, "sys/devices/system/cpu/intel_pstate/no_turbo")
    on = kernel.read(root, "sys/devices/system/cpu/cpufreq/boost")
    return {"0": "on", "1": "off"}.get(off) or {"0": "off", "1": "on"}.get(on, UNKNOWN)


def virtual(root: Path) -> str:
    """Whether the processor tells of a hypervisor; only x86 does."""
    flags = kernel.table(root, "proc/cpuinfo").get("flags")
    if flags is None:
        return UNKNOWN
    return "yes" if "hypervisor" in flags.split() else "no"


def container(root: Path) -> str:
    marks = (".dockerenv", "run/.containerenv", "run/systemd/container")
    groups = kernel.read(root, "proc/1/cgroup")
    named = any(word in groups for word in ("docker", "kubepods", "lxc", "containerd"))
    return "yes" if named or any((root / mark).exists() for mark in marks) else "no sign of one"


def swap_used_mb(root: Path) -> int | None:
    told = kernel.table(root, "proc/meminfo")
    total = kernel.number(told.get("SwapTotal", ""))
    free = kernel.number(told.get("SwapFree", ""))
    return None if total is None or free is None else (total - free) * 1024 // 1_000_000


def memory_limit(root: Path) -> str:
    limit = limits.memory_bytes(root)
    return "none" if limit is None else f"{limit // 1_000_000} MB"


def cpu_limit(root: Path) -> str:
    cores = limits.cpu_cores(root)
    return "none" if cores is None else f"{cores:g} cores"


def _memory_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000
