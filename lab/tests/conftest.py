# SPDX-License-Identifier: MIT OR Apache-2.0
"""Shared by the tests: made-up arms and rows, and the real programs of bench/."""

import subprocess
from pathlib import Path

import pytest

from ebbtide_lab.allocators import Allocator
from ebbtide_lab.layout import Layout, find_root
from ebbtide_lab.runner import Row
from ebbtide_lab.scenarios import Bar, Scenario

COMPILE = ("gcc", "-std=gnu17", "-O2", "-fPIC", "-fno-builtin-malloc", "-pthread")
PROGRAMS = ("random_mixed", "hand_off", "burst_idle")


def arm(name: str, problem: str = "") -> Allocator:
    return Allocator(name, Path(f"/lib/{name}.so"), "1", problem)


def figures(cost: float, rss_kb: float = 1000) -> dict[str, float]:
    return {"wall_cost": cost, "cpu_cost": cost, "peak_rss_kb": rss_kb}


def scenario(name: str = "row", *bars: Bar, runs: int = 2, floor: bool = False) -> Scenario:
    return Scenario(name, "workload", ["program"], runs=runs, floor=floor, bars=list(bars))


def row(samples: dict[str, list[dict[str, float]]], *bars: Bar) -> Row:
    return Row("set", scenario("row", *bars, floor=True), samples)


def _compile(sources: list[Path], target: Path, *flags: str) -> None:
    subprocess.run(
        [*COMPILE, *flags, *map(str, sources), "-o", str(target)], check=True, timeout=60
    )


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """The checkout with some programs of bench/, built for these tests alone."""
    folder = tmp_path_factory.mktemp("programs")
    bench = find_root() / "bench"
    for name in PROGRAMS:
        _compile([bench / f"{name}.c", bench / "common.c"], folder / name, "-D_GNU_SOURCE")
    for name in ("true", "launch"):
        _compile([bench / f"{name}.c"], folder / name, "-D_GNU_SOURCE")
    for name in ("floor", "witness"):
        target = folder / f"libebb_{name}.so"
        _compile([bench / f"{name}.c"], target, "-D_GNU_SOURCE", "-shared")
    return Layout.of(folder / "no-library.so", folder)
