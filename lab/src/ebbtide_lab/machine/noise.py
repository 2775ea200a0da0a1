# SPDX-License-Identifier: MIT OR Apache-2.0
"""How much the same work differs from one time to the next on this machine.

A fixed loop runs on each core in turn. Its CPU time is what rows are judged by; its
wall time shows who else wants the core. Each core's time is cut in blocks; the median
of a block hides what a longer run would hide as well. The level is how far the slowest
block lies above the fastest, over all cores.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from statistics import median, quantiles

BLOCKS = 8
MIN_LOOPS = 2 * BLOCKS
LOOP_BYTES = b"x" * (16 << 10)  # stays in the first cache
LOOP_TIMES = 128  # a few milliseconds


@dataclass(frozen=True)
class CoreNoise:
    """The loop's time on one core; spread is the middle half over the median."""

    core: int
    loops: int
    median_ms: float
    spread_percent: float
    worst_percent: float
    blocks_ms: list[float]


@dataclass(frozen=True)
class Noise:
    cores: list[CoreNoise]
    level_percent: float
    waiting_percent: float  # share of the time in which the loop had no core


def measure(budget_s: float) -> Noise:
    """Takes about `budget_s` seconds, shared by the cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    cpu_s = wall_s = 0.0
    found = []
    for core in cores:
        with _pinned(core):
            times = list(_loops(budget_s / len(cores)))
        found.append(judge(core, [cpu for cpu, _ in times]))
        cpu_s += sum(cpu for cpu, _ in times)
        wall_s += sum(wall for _, wall in times)
    return Noise(found, level_percent(found), max(0.0, 100 * (1 - cpu_s / wall_s)))


def judge(core: int, seconds: list[float]) -> CoreNoise:
    """The facts of one core's loop times."""
    middle = median(seconds)
    low, _, high = quantiles(seconds, n=4)
    size = len(seconds) // BLOCKS
    blocks = [seconds[at * size : (at + 1) * size] for at in range(BLOCKS)]
    return CoreNoise(
        core,
        len(seconds),
        middle * 1e3,
        100 * (high - low) / middle,
        100 * (max(seconds) / middle - 1),
        [median(block) * 1e3 for block in blocks],
    )


def level_percent(cores: list[CoreNoise]) -> float:
    blocks = [block for core in cores for block in core.blocks_ms]
    return 100 * (max(blocks) / min(blocks) - 1)


@contextmanager
def _pinned(core: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _loops(budget_s: float) -> Iterator[tuple[float, float]]:
    """CPU and wall seconds of each loop; the first, which warms up, is left out."""
    _work()
    end = time.perf_counter() + budget_s
    done = 0
    while time.perf_counter() < end or done < MIN_LOOPS:
        cpu, wall = time.thread_time(), time.perf_counter()
        _work()
        yield time.thread_time() - cpu, time.perf_counter() - wall
        done += 1


def _work() -> None:
    digest = sha256()
    for _ in range(LOOP_TIMES):
        digest.update(LOOP_BYTES)
