# SPDX-License-Identifier: MIT OR Apache-2.0
"""With the real programs of bench/: what they measure and what they refuse."""

import errno
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ebbtide_lab import SCHEMA
from ebbtide_lab.arms import allocators
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import LabError, RunError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure import callgrind, counting, execute, process, workload
from ebbtide_lab.scenarios.model import COUNTED, Scenario

MIXED = Scenario("mixed", "workload", ["random_mixed", "--iters", "20000"])


@pytest.fixture
def glibc(layout: Layout) -> Allocator:
    return allocators.find("glibc", layout)


@pytest.fixture
def floor(layout: Layout) -> Allocator:
    return allocators.find("floor", layout)


def test_workload_has_both_clocks_and_memory(layout: Layout, glibc: Allocator) -> None:
    found = execute.run(MIXED, glibc, layout).figures
    assert found["wall"] > 0
    assert found["cpu"] > 0
    assert found["peak_rss_kb"] > 100


def test_preloaded_workload_proves_its_allocator(layout: Layout, floor: Allocator) -> None:
    assert execute.run(MIXED, floor, layout).figures["ops"] >= 20000


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
    assert execute.run(scenario, floor, layout).figures["exit_code"] == 0


def test_hand_off_really_hands_off(layout: Layout, glibc: Allocator) -> None:
    command = ["hand_off", "--iters", "20000", "--threads", "3", "--remote", "90"]
    found = execute.run(Scenario("hand-off", "workload", command), glibc, layout).figures
    assert found["sent"] > 1000
    assert found["fallbacks"] == 0


def test_burst_idle_counts_the_survivors(layout: Layout, glibc: Allocator) -> None:
    command = ["burst_idle", "--mb", "20", "--idle-s", "1", "--survivors-per-mille", "5"]
    found = execute.run(Scenario("burst", "workload", command), glibc, layout).figures
    assert found["live_mb"] == pytest.approx(0.1, rel=0.3)
    assert 0 < found["rss_after_idle_mb"] <= found["rss_at_peak_mb"] * 1.1


def test_start_measures_small_programs(layout: Layout, glibc: Allocator) -> None:
    found = execute.run(Scenario("true", "start", ["true"], batch=5), glibc, layout).figures
    assert 0 < found["wall"] < 1
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
        ({"schema": 99}, "schema 99"),
        ({"allocator": "/lib/other.so"}, "expected libc.so"),
        ({"verified": {"contents_intact": False}}, "contents_intact"),
    ],
)
def test_a_report_that_disproves_itself_is_refused(
    glibc: Allocator, change: dict[str, object], message: str
) -> None:
    report = {
        "schema": SCHEMA,
        "allocator": "/lib/libc.so.6",
        "verified": {},
        "figures": {},
        **change,
    }
    with pytest.raises(RunError, match=message):
        workload.read_workload(json.dumps(report), glibc)


@pytest.mark.parametrize("output", ["", "[]", "{}", f'{{"schema": {SCHEMA}}}', "nan"])
def test_output_that_is_no_report_fails_the_run(glibc: Allocator, output: str) -> None:
    with pytest.raises(RunError):
        workload.read_workload(output, glibc)


@pytest.mark.parametrize(("estimate_s", "timeout_s"), [(1.0, process.TIMEOUT_S), (3600.0, 7200)])
def test_a_workload_that_takes_an_hour_has_the_time(
    layout: Layout,
    glibc: Allocator,
    monkeypatch: pytest.MonkeyPatch,
    estimate_s: float,
    timeout_s: float,
) -> None:
    given: list[float] = []

    def finish(_command: list[str], timeout_s: float, **_options: object) -> str:
        given.append(timeout_s)
        return "{}"

    monkeypatch.setattr(workload, "finish", finish)
    long = Scenario("long", "workload", ["lanes"], estimate_s=estimate_s)
    with pytest.raises(RunError):
        execute.run(long, glibc, layout)
    assert given == [timeout_s]


def counted(kind: str, *arguments: str) -> Scenario:
    command = ["random_mixed", *arguments]
    return Scenario("counted", kind, command, cost=COUNTED[kind])


def test_instructions_per_operation_repeat(
    layout: Layout, glibc: Allocator, floor: Allocator
) -> None:
    few = counted("instructions", "--iters", "2000")
    found = [
        execute.run(few, each, layout).figures["instructions_per_op"]
        for each in (glibc, glibc, floor)
    ]
    assert found[0] == pytest.approx(found[1], rel=0.01)
    assert found[2] < found[0]


def test_the_counted_kinds_of_events_and_the_allocators_part_are_told(
    layout: Layout, glibc: Allocator, floor: Allocator
) -> None:
    few = counted("instructions", "--iters", "2000")
    own, floors = (execute.run(few, each, layout).figures for each in (glibc, floor))
    for name in callgrind.EVENTS:
        assert f"{name}_per_op" in own
    assert 0 < own["mispredict_percent"] < 100
    assert 0 < floors["allocator_instructions_percent"] < own["allocator_instructions_percent"]
    assert own["allocator_instructions_per_op"] < own["instructions_per_op"]


PROFILE = """\
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw Bc Bcm Bi Bim
ob=(1) /lib/one.so
fn=(1) first
10 7 1 0 0 2 1
cob=(2) /lib/two.so
cfn=(2) second
calls=3 20
+1 900 90 90 9 9 9
* 3
ob=(2)
fn=(2)
20 40 4 0 1 1 0 0 1 2 5 1 6 1
totals: 50 5 0 1 3 1 0 1 2 5 1 6 1
"""


def test_callgrinds_file_is_read_without_the_costs_of_calls() -> None:
    profile = callgrind.read_profile(PROFILE)
    one, two = profile.of(Path("/lib/one.so")), profile.of(Path("/lib/two.so"))
    assert (one["instructions"], one["loads"], one["d1_misses"]) == (10, 1, 3)
    assert (two["ll_references"], two["ll_misses"]) == (2, 3)
    assert (two["branches"], two["mispredicts"]) == (11, 2)
    assert profile.totals["instructions"] == 50
    assert profile.of(Path("/lib/three.so"))["instructions"] == 0


def test_a_file_without_totals_is_refused() -> None:
    with pytest.raises(RunError, match="did not tell what it counted"):
        callgrind.read_profile(PROFILE.partition("totals")[0])


def test_instructions_want_a_number_of_iterations(layout: Layout, glibc: Allocator) -> None:
    with pytest.raises(RunError, match="wants --iters N"):
        execute.run(counted("instructions"), glibc, layout)


def test_a_counting_tool_does_not_hide_the_wrong_allocator(layout: Layout, tmp_path: Path) -> None:
    lost = Allocator("floor", tmp_path / "gone.so")
    for kind in COUNTED:
        with pytest.raises(RunError, match=r"expected .*gone\.so"):
            execute.run(counted(kind, "--iters", "2000"), lost, layout)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -SEGV $$", "SIGSEGV: nothing on standard error; callgrind ended with '==[0-9]+==.*"),
        ("exit 3", "exit status 3: .*; callgrind ended with '==[0-9]+== "),
    ],
)
def test_what_callgrind_said_last_is_told(
    layout: Layout, glibc: Allocator, tmp_path: Path, script: str, message: str
) -> None:
    program = tmp_path / "bad"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    bad = replace(counted("instructions", "--iters", "9"), command=[str(program), "--iters", "9"])
    with pytest.raises(RunError, match=message):
        execute.run(bad, glibc, layout)


def test_system_calls_for_memory_are_counted(layout: Layout, glibc: Allocator) -> None:
    command = ["--iters", "2000", "--min", "200000", "--max", "300000"]
    figures = execute.run(counted("syscalls", *command), glibc, layout).figures
    assert figures["mmap"] > 10
    assert figures["all_calls"] >= sum(figures[name] for name in counting.MEMORY_CALLS)
    assert figures["memory_calls_per_mop"] > 0


def test_the_table_of_calls_is_read() -> None:
    table = "    calls syscall\n--------- -------\n       12 mmap\n        3 brk\n       15 total\n"
    assert counting.read_calls(table) == {"mmap": 12, "brk": 3}


def test_a_full_disk_is_no_fault_of_the_arm(
    layout: Layout, glibc: Allocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(execute.tempfile, "mkdtemp", no_room)
    with pytest.raises(LabError, match="No space left on device") as caught:
        execute.run(MIXED, glibc, layout)
    assert not isinstance(caught.value, RunError)


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
