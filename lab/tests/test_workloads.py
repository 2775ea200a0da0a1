# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every workload program: its report, its refusals, and that its checks can fail."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import PATTERNS, PROGRAMS

from ebbtide_lab import SCHEMA
from ebbtide_lab.base.layout import Layout

TINY = {
    "random_mixed": ["--iters", "20000"],
    "lanes": ["--iters", "20000"],
    "local_churn": ["--iters", "20000"],
    "larson": ["--run-ms", "250", "--chunks", "64"],
    "hand_off": ["--iters", "20000", "--threads", "3", "--remote", "90"],
    "producer_consumer": ["--blocks", "50000"],
    "burst_idle": ["--mb", "20", "--idle-s", "1"],
    "tail": ["--iters", "20000"],
    "soak": ["--seconds", "1", "--epoch-ms", "100"],
    "request": ["--requests", "200"],
    "phase_shift": ["--phase-ms", "50", "--live-mb", "4"],
    "asymmetric_free": ["--blocks", "200000", "--live-mb", "2"],
    "touch_cold": ["--nodes", "100000", "--rounds", "4"],
    "half_freed": ["--blocks", "2000", "--run-ms", "50"],
    "bleed": ["--threads", "3", "--generations", "3", "--visits", "4"],
    "batches": ["--threads", "3", "--rounds", "20", "--pass", "1"],
    "buffers": ["--replacements", "60", "--min-kb", "40", "--max-kb", "900"],
    "leak_nth": ["--requests", "600", "--nth", "16"],
    "expiry": ["--iters", "20000", "--keys", "500", "--burst-every", "2000", "--burst", "400"],
}

# Broken on purpose: TWICE gives every other block a second time, LEAK reuses
# nothing, NO_MEMORY refuses. What is not malloc is for libc's own needs and works.
# The arena wraps, because a workload that runs for a time may ask for any amount.
BROKEN = """
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
enum { ARENA = 1 << 28, LARGEST = 1 << 21 };
static _Alignas(64) char arena[ARENA], kept[ARENA];
static _Atomic size_t arena_used, kept_used;
static void *fresh(size_t size)
{
    size_t start = atomic_fetch_add(&arena_used, (size + 63) & ~(size_t)63);
    return arena + start % (ARENA - LARGEST);
}
void *memalign(size_t alignment, size_t size)
{
    size_t start = atomic_fetch_add(&kept_used, (size + alignment + 63) & ~(size_t)63);
    return kept + ((start + alignment - 1) & ~(alignment - 1));
}
#if defined(TWICE)
static __thread char *previous;
static __thread size_t previous_size;
void *malloc(size_t size)
{
    char *again = previous;
    if (again != NULL && size <= previous_size) {
        previous = NULL;
        return again;
    }
    previous_size = size;
    return previous = fresh(size);
}
#elif defined(LEAK)
void *malloc(size_t size) { return fresh(size); }
#else
void *malloc(size_t size)
{
    errno = ENOMEM;
    return size == 0 ? memalign(16, 1) : NULL;
}
#endif
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return memalign(64, count * size); }
void *realloc(void *block, size_t size)
{
    char *grown = memalign(16, size);
    return block == NULL ? grown : memmove(grown, block, size);
}
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = memalign(alignment, size);
    return 0;
}
"""


def _run(
    layout: Layout, program: str, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    unset = ("LD_PRELOAD", "LAB_EXPECT")
    clean = {key: value for key, value in os.environ.items() if key not in unset}
    return subprocess.run(
        [str(layout.program(program)), *arguments],
        env={**clean, **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _failed_checks(done: subprocess.CompletedProcess[str]) -> set[str]:
    report: dict[str, Any] = json.loads(done.stdout)
    return {name for name, holds in report["verified"].items() if not holds}


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Allocators to preload, by what is wrong with them."""
    folder = tmp_path_factory.mktemp("broken")
    source = folder / "broken.c"
    source.write_text(BROKEN, encoding="utf-8")
    built = {}
    for fault in ("TWICE", "LEAK", "NO_MEMORY"):
        target = folder / f"{fault}.so"
        flags = ["-O1", "-fPIC", "-shared", "-fno-builtin", f"-D{fault}"]
        subprocess.run(["gcc", *flags, str(source), "-o", str(target)], check=True, timeout=60)
        built[fault] = str(target)
    return built


def test_no_program_is_forgotten() -> None:
    assert set(TINY) == set(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_small_run_prints_a_whole_report(layout: Layout, program: str) -> None:
    done = _run(layout, program, *TINY[program], LAB_EXPECT="libc.so")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == SCHEMA
    assert report["workload"].replace("-", "_") == program
    assert "libc.so" in report["allocator"]
    given = dict(zip(TINY[program][::2], map(int, TINY[program][1::2]), strict=True))
    assert (
        given.items() <= {f"--{name}": each for name, each in report["parameters"].items()}.items()
    )
    assert all(value is True for value in report["verified"].values())
    assert len(report["verified"]) >= 2
    assert {"ops", "wall_ns_per_op", "cpu_ns_per_op", "peak_rss_kb"} <= set(report["figures"])
    assert report["figures"]["ops"] > 0
    series = report["series"].get("rss_mb", [])
    assert all(value > 0 for value in series)
    assert (report["series_step_s"] > 0) == bool(series)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_planted_slow_down_is_on_record(layout: Layout, program: str) -> None:
    plain = json.loads(_run(layout, program, *TINY[program]).stdout)
    planted = json.loads(_run(layout, program, *TINY[program], "--plant-percent", "50").stdout)
    assert plain["parameters"]["plant-percent"] == 0
    assert planted["parameters"]["plant-percent"] == 50
    assert "--plant-percent" in _run(layout, program, "--help").stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_another_allocator_than_expected_is_refused(layout: Layout, program: str) -> None:
    done = _run(layout, program, *TINY[program], LAB_EXPECT="nonsense")
    assert done.returncode == 2
    assert "expected nonsense" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("program", PROGRAMS)
def test_bad_options_are_named(layout: Layout, program: str) -> None:
    for bad in (["--nonsense", "1"], ["--plant-percent", "101"], ["--seed", "x"], ["--seed"]):
        done = _run(layout, program, *bad)
        assert done.returncode == 2
        assert bad[0] in done.stderr
        assert done.stderr.startswith("bench: ")


CONTENTS = {
    "random_mixed": "blocks_apart",
    "lanes": "blocks_apart",
    "local_churn": "blocks_apart",
    "half_freed": "blocks_apart",
    "larson": "contents_intact",
    "producer_consumer": "contents_intact",
    "burst_idle": "contents_intact",
    "phase_shift": "contents_intact",
    "asymmetric_free": "contents_intact",
    "touch_cold": "contents_intact",
    **dict.fromkeys(PATTERNS, "contents_intact"),
}


@pytest.mark.parametrize("program", CONTENTS)
def test_a_block_that_is_given_twice_is_found(
    layout: Layout, broken: dict[str, str], program: str
) -> None:
    done = _run(layout, program, *TINY[program], LD_PRELOAD=broken["TWICE"])
    assert done.returncode == 1, done.stderr
    assert CONTENTS[program] in _failed_checks(done)


@pytest.mark.parametrize(
    ("program", "check"),
    [("touch_cold", "freed_memory_reused"), ("asymmetric_free", "memory_does_not_ratchet")],
)
def test_memory_that_is_not_reused_is_found(
    layout: Layout, broken: dict[str, str], program: str, check: str
) -> None:
    done = _run(layout, program, *TINY[program], LD_PRELOAD=broken["LEAK"])
    assert done.returncode == 1, done.stderr
    assert _failed_checks(done) == {check}


@pytest.mark.parametrize(
    "program",
    ["random_mixed", "lanes", "larson", "touch_cold", "half_freed", "bleed", "buffers", "expiry"],
)
def test_a_refused_allocation_ends_the_run(
    layout: Layout, broken: dict[str, str], program: str
) -> None:
    done = _run(layout, program, *TINY[program], LD_PRELOAD=broken["NO_MEMORY"])
    assert done.returncode == 2
    assert "gave NULL" in done.stderr
    assert done.stdout == ""


def test_the_floor_is_for_workloads_that_check_no_contents(layout: Layout) -> None:
    floor = str(Path(layout.program("libebb_floor.so")))
    done = _run(layout, "random_mixed", *TINY["random_mixed"], LD_PRELOAD=floor)
    assert done.returncode == 0
    assert "blocks_apart" not in json.loads(done.stdout)["verified"]
    assert _run(layout, "touch_cold", *TINY["touch_cold"], LD_PRELOAD=floor).returncode == 1


@pytest.mark.parametrize("program", PATTERNS)
def test_a_pattern_grows_by_its_scale_and_repeats(layout: Layout, program: str) -> None:
    def ops(scale: str) -> float:
        done = _run(layout, program, *TINY[program], "--scale", scale)
        return float(json.loads(done.stdout)["figures"]["ops"])

    assert ops("400") > 2 * ops("100")
    assert ops("100") == ops("100")


def test_too_few_blocks_to_see_growth_are_refused(layout: Layout) -> None:
    done = _run(layout, "asymmetric_free", "--blocks", "1000", "--live-mb", "64")
    assert done.returncode == 2
    assert "--blocks is too small" in done.stderr


BURSTS = ["--loop", "1", "--rate", "2000", "--burst", "10", "--burst-ms", "50"]


def test_bursts_have_as_many_requests_as_they_are_long(layout: Layout) -> None:
    """Two periods of 100 ms: 100 requests, then 1000 within 50 ms."""
    options = [*BURSTS, "--period-ms", "100", "--requests", "2200"]
    done = _run(layout, "request", *options)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    counted = {
        name: sum(count for _, count in each["counts"])
        for name, each in report["histograms"].items()
    }
    assert counted == {"request_ns": 2200, "burst_ns": 2000}
    assert report["figures"]["wall_s"] > 0.19
    assert report["figures"]["burst_recovery_ms"] >= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--burst", "2"], "--burst wants --loop 1"),
        ([*BURSTS, "--period-ms", "50"], "--burst-ms is not below --period-ms"),
        (["--loop", "1", "--rate", "1", "--burst", "2"], "no request is due in a burst"),
    ],
)
def test_bursts_that_cannot_be_are_refused(
    layout: Layout, options: list[str], message: str
) -> None:
    done = _run(layout, "request", *options)
    assert done.returncode == 2
    assert message in done.stderr
