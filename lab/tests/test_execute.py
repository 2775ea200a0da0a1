# SPDX-License-Identifier: MIT OR Apache-2.0
"""With the real programs of bench/: what they measure and what they refuse."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ebbtide_lab import allocators, execute
from ebbtide_lab.allocators import Allocator
from ebbtide_lab.errors import RunError
from ebbtide_lab.layout import Layout
from ebbtide_lab.scenarios import Scenario

MIXED = Scenario("mixed", "workload", ["random_mixed", "--iters", "20000"])


@pytest.fixture
def glibc(layout: Layout) -> Allocator:
    return allocators.find("glibc", layout)


@pytest.fixture
def floor(layout: Layout) -> Allocator:
    return allocators.find("floor", layout)


def test_workload_has_both_clocks_and_memory(layout: Layout, glibc: Allocator) -> None:
    found = execute.run(MIXED, glibc, layout)
    assert found["wall_cost"] > 0
    assert found["cpu_cost"] > 0
    assert found["peak_rss_kb"] > 100


def test_preloaded_workload_proves_its_allocator(layout: Layout, floor: Allocator) -> None:
    assert execute.run(MIXED, floor, layout)["ops"] >= 20000


def test_a_removed_preload_fails_the_run(layout: Layout, tmp_path: Path) -> None:
    lost = Allocator("floor", tmp_path / "gone.so")
    with pytest.raises(RunError, match=r"expected .*gone\.so"):
        execute.run(MIXED, lost, layout)
    with pytest.raises(RunError, match=r"expected .*gone\.so"):
        execute.run(Scenario("echo", "command", ["echo"]), lost, layout)


def test_the_witness_sees_past_the_stub_of_a_fixed_address_program(
    layout: Layout, floor: Allocator, tmp_path: Path
) -> None:
    source = tmp_path / "stub.c"
    source.write_text(
        "#include <stdlib.h>\nvoid *(*keep)(size_t) = malloc;\n"
        "int main(void) { return keep == 0; }\n"
    )
    program = tmp_path / "stub"
    command = ["gcc", "-fno-pie", "-no-pie", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    scenario = Scenario("stub", "command", [str(program)])
    assert execute.run(scenario, floor, layout)["exit_code"] == 0


def test_hand_off_really_hands_off(layout: Layout, glibc: Allocator) -> None:
    command = ["hand_off", "--iters", "20000", "--threads", "3", "--remote", "90"]
    found = execute.run(Scenario("hand-off", "workload", command), glibc, layout)
    assert found["sent"] > 1000
    assert found["fallbacks"] == 0


def test_burst_idle_counts_the_survivors(layout: Layout, glibc: Allocator) -> None:
    command = ["burst_idle", "--mb", "20", "--idle-s", "1", "--survivors-per-mille", "5"]
    found = execute.run(Scenario("burst", "workload", command), glibc, layout)
    assert found["live_mb"] == pytest.approx(0.1, rel=0.3)
    assert 0 < found["rss_after_idle_mb"] <= found["rss_at_peak_mb"] * 1.1


def test_start_measures_small_programs(layout: Layout, glibc: Allocator) -> None:
    found = execute.run(Scenario("true", "start", ["true"], batch=5), glibc, layout)
    assert 0 < found["wall_cost"] < 1
    # A program this small would be hidden by the memory of its Python grandparent.
    assert found["peak_rss_kb"] < 8000


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["sh", "-c", "kill -SEGV $$"], "SIGSEGV"),
        (["sh", "-c", "echo sad >&2; exit 4"], "exit status 4: sad"),
        (["no-such-program"], "cannot start no-such-program"),
    ],
)
def test_a_failing_program_fails_the_run(
    layout: Layout, glibc: Allocator, command: list[str], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        execute.run(Scenario("bad", "command", command), glibc, layout)


def test_a_program_that_makes_too_little_fails(layout: Layout, glibc: Allocator) -> None:
    small = Scenario("small", "command", ["touch", "made"], made="made", made_mb=1)
    with pytest.raises(RunError, match="wanted 1"):
        execute.run(small, glibc, layout)
    with pytest.raises(RunError, match="lacks 'done'"):
        execute.run(replace(small, made="", output="done"), glibc, layout)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema 2"),
        ({"allocator": "/lib/other.so"}, "expected libc.so"),
        ({"verified": {"contents_intact": False}}, "contents_intact"),
    ],
)
def test_a_report_that_disproves_itself_is_refused(
    glibc: Allocator, change: dict[str, object], message: str
) -> None:
    report = {"schema": 1, "allocator": "/lib/libc.so.6", "verified": {}, "figures": {}, **change}
    with pytest.raises(RunError, match=message):
        execute.read_workload(json.dumps(report), glibc)


def test_bad_arguments_of_a_workload_are_errors(layout: Layout) -> None:
    for arguments in (
        ["--iters", "-1"],
        ["--what", "1"],
        ["--iters"],
        ["--min", "9", "--max", "8"],
    ):
        command = [str(layout.program("random_mixed")), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("bench: ")
