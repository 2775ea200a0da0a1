# SPDX-License-Identifier: MIT OR Apache-2.0
"""The machine card: what absolute figures depend on."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from ebbtide_lab import SCHEMA


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return "unknown"


def _cpu_model() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith(("model name", "CPU part")):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _selected(path: str) -> str:
    """The word in brackets of a kernel switch."""
    text = _read(path)
    return text.split("[", 1)[1].split("]", 1)[0] if "[" in text else text


def _memory_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000


def card() -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": _memory_mb(),
        "page_size_bytes": os.sysconf("SC_PAGE_SIZE"),
        "thp": _selected("/sys/kernel/mm/transparent_hugepage/enabled"),
        "overcommit": _read("/proc/sys/vm/overcommit_memory"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "glibc": (os.confstr("CS_GNU_LIBC_VERSION") or "unknown").removeprefix("glibc "),
        "load": os.getloadavg()[0],
    }


def describe(facts: dict[str, object]) -> str:
    return (
        f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, "
        f"glibc {facts['glibc']}, THP {facts['thp']}, overcommit {facts['overcommit']}, "
        f"load {facts['load']:.2f} at the start"
    )
