# SPDX-License-Identifier: MIT OR Apache-2.0
"""The histograms of bench/ against the `hdrhistogram` package, which knows the layout."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import SCOPE, SHARED
from hdrh.histogram import HdrHistogram

from ebbtide_lab.base.layout import find_root

HIGHEST_NS = 60_000_000_000
PERCENTILES = {"p50": 50, "p99": 99, "p999": 99.9, "p9999": 99.99, "max": 100}
COMPILE = ("gcc", "-std=gnu17", "-O2", "-D_GNU_SOURCE", "-fno-builtin-malloc", "-pthread")

# Reads values, one a line: prints where each is counted, then the report of all,
# recorded in two histograms and merged as two threads' would be.
DRIVER = """
#include "harness/histogram.h"
#include <inttypes.h>
#include <stdio.h>
static const struct bench_program program = {"driver", "for a test", NULL, 0};
int main(int argc, char **argv)
{
    static struct bench_result result;
    struct histogram *halves[] = {histogram_create(), histogram_create()};
    uint64_t value = 0;
    bench_open(&program, argc, argv);
    for (int i = 0; scanf("%" SCNu64, &value) == 1; i++) {
        size_t index = histogram_index(value);
        histogram_record(halves[i % 2], value);
        printf("%zu %" PRIu64 " %" PRIu64 "\\n", index, histogram_lowest_at(index),
               histogram_highest_at(index));
    }
    fflush(stdout);
    histogram_merge(halves[0], halves[1]);
    histogram_report(&result, "made", halves[0]);
    bench_verify(&result, "merged_is_empty", histogram_total(halves[1]) == 0);
    return bench_report(&program, &result);
}
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("histograms")
    bench = find_root() / "bench"
    (folder / "driver.c").write_text(DRIVER, encoding="utf-8")
    for source in (folder / "driver.c", *(bench / f"malloc/{each}.c" for each in WORKLOADS)):
        parts = [str(source), *(str(bench / part) for part in SHARED + SCOPE)]
        includes = ["-I", str(bench), "-I", str(find_root() / "include")]
        flags = [*includes, "-o", str(folder / source.stem), "-lm", "-ldl"]
        subprocess.run([*COMPILE, *parts, *flags], check=True, timeout=60)
    return folder


def drive(programs: Path, values: list[int]) -> tuple[list[list[int]], dict[str, Any]]:
    """Where each value is counted (index, lowest and highest alike), and the report."""
    text = "\n".join(map(str, values))
    done = subprocess.run(
        [programs / "driver"], input=text, capture_output=True, text=True, check=True, timeout=60
    )
    *lines, report = done.stdout.splitlines()
    return [[int(word) for word in line.split()] for line in lines], json.loads(report)


def reference(counts: list[list[int]]) -> HdrHistogram:
    """The package's histogram that holds these counts."""
    histogram = HdrHistogram(1, HIGHEST_NS, 3)
    for index, count in counts:
        histogram.record_value(histogram.get_value_from_index(index), count)
    return histogram


def assert_agrees(report: dict[str, Any], name: str) -> None:
    """What the program computed from its counts is what the package computes."""
    layout = report["histograms"][f"{name}_ns"]
    assert (layout["lowest"], layout["highest"]) == (1, HIGHEST_NS)
    assert layout["significant_figures"] == 3
    histogram, figures = reference(layout["counts"]), report["figures"]
    for suffix, percentile in PERCENTILES.items():
        expected = histogram.get_value_at_percentile(percentile)
        assert figures[f"{name}_{suffix}_ns"] == pytest.approx(expected, rel=1e-8), suffix
    mean = histogram.get_mean_value()
    assert figures[f"{name}_mean_ns"] == pytest.approx(mean, rel=1e-8)


def edges() -> list[int]:
    """Around each power of two, where the layout changes its step."""
    powers = [1 << bit for bit in range(36)]
    near = {value + off for value in powers for off in (-1, 0, 1)}
    return sorted({0, 3, 1000, 2046, 2047, 2048, 2049, HIGHEST_NS, *near} - {1 << 36})


def spread(count: int) -> list[int]:
    """As many values in each power of two, and a few beyond a second."""
    draw = random.Random(5)
    return [int(2 ** draw.uniform(0, 35.8)) for _ in range(count)]


def test_each_value_is_counted_where_the_package_counts_it(programs: Path) -> None:
    values = edges() + spread(3000)
    places, _ = drive(programs, values)
    package = HdrHistogram(1, HIGHEST_NS, 3)
    expected = [
        [
            package._counts_index_for(value),
            package.get_lowest_equivalent_value(value),
            package.get_highest_equivalent_value(value),
        ]
        for value in values
    ]
    assert places == expected
    assert all(package.get_value_from_index(place[0]) == place[1] for place in places)


def test_the_counts_are_those_of_the_package(programs: Path) -> None:
    values = spread(5000)
    _, report = drive(programs, values)
    package = HdrHistogram(1, HIGHEST_NS, 3)
    for value in values:
        package.record_value(value)
    counts = {index: count for index, count in enumerate(package.counts) if count}
    assert dict(report["histograms"]["made_ns"]["counts"]) == counts


@pytest.mark.parametrize("count", [1, 2, 3, 10, 999, 20000])
def test_percentiles_and_mean_are_those_of_the_package(programs: Path, count: int) -> None:
    _, report = drive(programs, spread(count))
    assert_agrees(report, "made")


def test_an_empty_histogram_reports_zeros(programs: Path) -> None:
    _, report = drive(programs, [])
    assert report["histograms"]["made_ns"]["counts"] == []
    assert {report["figures"][f"made_{name}_ns"] for name in [*PERCENTILES, "mean"]} == {0}


def test_a_value_above_the_highest_is_counted_as_the_highest(programs: Path) -> None:
    _, report = drive(programs, [10 * HIGHEST_NS, 2**63])
    top = HdrHistogram(1, HIGHEST_NS, 3)._counts_index_for(HIGHEST_NS)
    assert report["histograms"]["made_ns"]["counts"] == [[top, 2]]


WORKLOADS = {
    "tail": (["--iters", "50000", "--threads", "2"], ["malloc", "free"]),
    "soak": (["--seconds", "1", "--epoch-ms", "100"], ["op"]),
    "request": (["--requests", "500"], ["request"]),
}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_figures_of_a_workload_follow_from_its_counts(programs: Path, workload: str) -> None:
    arguments, names = WORKLOADS[workload]
    report = run(programs, workload, *arguments)
    assert sorted(report["histograms"]) == sorted(f"{name}_ns" for name in names)
    for name in names:
        assert_agrees(report, name)
    figures = report["figures"]
    assert figures["timer_resolution_ns"] > 0
    assert figures["peak_rss_kb"] > 0


def run(programs: Path, workload: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [programs / workload, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["verified"], "a workload verifies something"
    assert all(report["verified"].values())
    return report


def total(report: dict[str, Any], name: str) -> int:
    return sum(count for _, count in report["histograms"][name]["counts"])


@pytest.mark.parametrize("variant", range(4))
@pytest.mark.parametrize("loop", ["0", "1"])
def test_each_request_is_counted_once(programs: Path, variant: int, loop: str) -> None:
    choice = ["--variant", str(variant), "--loop", loop, "--survive-ms", "1"]
    report = run(programs, "request", "--requests", "400", *choice)
    assert report["figures"]["ops"] == 400
    assert total(report, "request_ns") == 400
    assert (report["figures"]["survivors"] > 0) == (variant >= 2)


def test_a_full_queue_of_survivors_lets_the_oldest_go(programs: Path) -> None:
    limits = ["--survive-ms", "3600000", "--queue-limit", "3", "--workers", "1"]
    report = run(programs, "request", "--requests", "400", "--variant", "2", *limits)
    figures = report["figures"]
    assert 0 < figures["survivors_cut_short"] < figures["survivors"]


def test_the_open_loop_counts_from_the_time_when_a_request_was_due(programs: Path) -> None:
    """All are due in the first 3 us: the waits of one worker's requests overlap, where in
    the closed loop they follow each other and so add up to less than the whole time."""
    flood = ["--requests", "3000", "--workers", "1", "--rate", "1000000000"]
    sums = []
    for loop in ("0", "1"):
        figures = run(programs, "request", *flood, "--loop", loop)["figures"]
        sums.append(figures["request_mean_ns"] * 3000 / (figures["wall_s"] * 1e9))
    assert sums[0] < 1
    assert sums[1] > 10


def test_a_wrong_thread_needs_a_second_worker(programs: Path) -> None:
    command = [programs / "request", "--variant", "3", "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "two workers" in done.stderr


def test_a_long_soak_thins_its_series(programs: Path) -> None:
    report = run(programs, "soak", "--seconds", "3", "--epoch-ms", "10")
    assert report["figures"]["epochs"] == 300
    assert len(report["series"]["rss_mb"]) == 150
    assert report["series_step_s"] == pytest.approx(0.02)


def test_too_few_epochs_have_no_drift(programs: Path) -> None:
    command = [programs / "soak", "--seconds", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "4 epochs" in done.stderr


# Breaks the first byte of every fourth block that is freed, or gives NULL at times.
SABOTAGE = """
#include <stddef.h>
#include <stdlib.h>
extern void *__libc_malloc(size_t size_bytes);
void *malloc(size_t size_bytes)
{
    static _Thread_local unsigned calls;
    static _Thread_local unsigned char *last;
    calls++;
    if (SABOTAGE_NULL && size_bytes == 376 && calls % 1000 == 0)
        return NULL;
    if (!SABOTAGE_NULL && last != NULL && calls % 1000 == 0)
        last[0] ^= 1;
    unsigned char *block = __libc_malloc(size_bytes);
    last = size_bytes == 376 ? block : NULL;
    return block;
}
"""


@pytest.mark.parametrize(
    ("gives_null", "check"), [(0, "contents_intact"), (1, "no_failed_allocation")]
)
def test_a_broken_allocator_fails_a_check(
    programs: Path, tmp_path: Path, gives_null: int, check: str
) -> None:
    source, library = tmp_path / "sabotage.c", tmp_path / "libsabotage.so"
    source.write_text(SABOTAGE, encoding="utf-8")
    flags = ["-shared", "-fPIC", f"-DSABOTAGE_NULL={gives_null}", "-o", str(library)]
    subprocess.run([*COMPILE, *flags, str(source)], check=True, timeout=60)
    done = subprocess.run(
        [programs / "request"],
        env={"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    failed = [name for name, holds in json.loads(done.stdout)["verified"].items() if not holds]
    assert failed == [check]
