# SPDX-License-Identifier: MIT OR Apache-2.0
"""Shared by the tests: made-up arms and rows, the real programs of bench/, a browser."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from playwright.sync_api import Browser, sync_playwright

from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.layout import Layout, find_root
from ebbtide_lab.cli.main import main
from ebbtide_lab.measure.replaying import FLOOR_LIBRARY
from ebbtide_lab.results.model import Row, Sample
from ebbtide_lab.scenarios.model import Bar, Scenario

BROWSER = "chromium"
BROWSER_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
COMPILE = ("gcc", "-std=gnu17", "-O2", "-fPIC", "-fno-builtin-malloc", "-pthread")
SHARED = tuple(f"harness/{name}.c" for name in ("common", "histogram", "timer"))
SCOPE = tuple(f"lifetimes/{name}.c" for name in ("scope", "scope_report", "scope_sampler"))
LIFETIMES = tuple(f"lifetimes/{name}" for name in ("object", "open", "enter", "release", "slack"))
PATTERNS = ("bleed", "batches", "buffers", "leak_nth", "expiry")
PROGRAMS = (
    *("random_mixed", "lanes", "local_churn", "larson", "hand_off", "producer_consumer"),
    *("burst_idle", "tail", "soak", "request", "phase_shift", "asymmetric_free", "touch_cold"),
    *("half_freed", *PATTERNS),
)


# In the background, or under nohup, these are ignored, and what is started inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def arm(name: str, problem: str = "") -> Allocator:
    return Allocator(name, Path(f"/lib/{name}.so"), "1", problem)


def sample(cost: float, rss_kb: float = 1000, **others: float) -> Sample:
    return Sample({"wall": cost, "cpu": cost, "peak_rss_kb": rss_kb, **others})


def scenario(name: str = "row", *bars: Bar, runs: int = 2, floor: bool = False) -> Scenario:
    return Scenario(name, "workload", ["program"], runs=runs, floor=floor, bars=list(bars))


def row(samples: dict[str, list[Sample]], *bars: Bar) -> Row:
    return Row("set", scenario("row", *bars, floor=True), samples)


def invoke(layout: Layout, *arguments: str, columns: int = 80) -> Result:
    places = ["--lib", str(layout.lib), "--programs", str(layout.programs)]
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, [*places, *arguments])


def await_ready(child: subprocess.Popen[str]) -> int:
    """Its process number, once it has said that it is ready."""
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child.pid


def compile_c(sources: list[Path], target: Path, *flags: str) -> None:
    subprocess.run(
        [*COMPILE, *map(str, sources), *flags, "-o", str(target)], check=True, timeout=60
    )


def _source(bench: Path, name: str) -> Path:
    folder = "" if "/" in name else "patterns" if name in PATTERNS else "malloc"
    return bench / folder / f"{name}.c"


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """The checkout with some programs of bench/, built for these tests alone."""
    folder = tmp_path_factory.mktemp("programs")
    bench = find_root() / "bench"
    shared = folder / "shared.o"
    includes = (f"-I{find_root() / 'include'}", f"-I{bench}")
    compile_c([bench / name for name in SHARED + SCOPE], shared, "-D_GNU_SOURCE", *includes, "-r")
    (folder / "lifetimes").mkdir()
    for name in PROGRAMS + LIFETIMES:
        flags = ("-D_GNU_SOURCE", *includes, "-Wl,--no-as-needed", "-lm")
        compile_c([_source(bench, name), shared], folder / name, *flags)
    for name in ("true", "launch"):
        compile_c([bench / f"harness/{name}.c"], folder / name, "-D_GNU_SOURCE")
    for name in ("floor", "witness"):
        target = folder / f"libebb_{name}.so"
        compile_c([bench / f"harness/{name}.c"], target, "-D_GNU_SOURCE", "-shared")
    return Layout.of(folder / "no-library.so", folder)


@pytest.fixture(scope="session")
def traced(layout: Layout) -> Layout:
    """The same with the recorder, ebb-trace and ebb-replay."""
    trace = layout.root / "trace"
    recorder = ("-shared", "-fvisibility=hidden", "-Wl,-z,initfirst", "-Wl,--exclude-libs,ALL")
    for name, target, flags in (
        ("record", "libebbtide_record.so", recorder),
        ("tool", "ebb-trace", ()),
        ("replay", "ebb-replay", ()),
    ):
        sources = sorted((trace / name).glob("*.c"))
        every = ("-D_GNU_SOURCE", f"-I{layout.root}", "-l:libzstd.a", "-ldl")
        compile_c(sources, layout.programs / target, *flags, *every)
    return layout


@pytest.fixture(scope="session")
def floored(traced: Layout, tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """The same with the floor of a replay."""
    folder = tmp_path_factory.mktemp("floored")
    for each in traced.programs.iterdir():
        (folder / each.name).symlink_to(each)
    floor = traced.root / "trace" / "floor" / "floor.c"
    flags = ("-D_GNU_SOURCE", "-shared", "-fvisibility=hidden")
    compile_c([floor], folder / FLOOR_LIBRARY, *flags)
    return replace(traced, programs=folder)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A missing browser fails the tests: a check that did not run proves nothing."""
    path = shutil.which(BROWSER)
    assert path, f"{BROWSER} is not installed; `apt-get install {BROWSER}` installs it"
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=path, args=BROWSER_FLAGS)
        yield launched
        launched.close()
