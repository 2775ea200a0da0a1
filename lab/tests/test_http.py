# SPDX-License-Identifier: MIT OR Apache-2.0
"""The HTTP server under an allocator: a stand-in that says what a test wants, then the real one."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import COMPILE, SHARED

from ebbtide_lab import SCHEMA
from ebbtide_lab.arms import allocators, ways
from ebbtide_lab.arms.allocators import WITH, Allocator
from ebbtide_lab.base.errors import LabError, NotRunError, RunError
from ebbtide_lab.base.layout import Layout, find_root
from ebbtide_lab.measure import execute, http
from ebbtide_lab.scenarios import model as scenarios
from ebbtide_lab.scenarios.model import Scenario

COUNTS = {
    "policy": "malloc",
    "requests": 1000,
    "refused": 0,
    "allocations": 291000,
    "allocated_bytes": 60000000,
    "failed_allocations": 0,
    "user_s": 0.01,
    "system_s": 0.02,
    "rss_kb": 2000,
    "peak_rss_kb": 3000,
}
LOAD = {
    "schema": SCHEMA,
    "allocator": "/lib/libc.so.6",
    "verified": {"all_answered": True},
    "figures": {
        "requests_per_s": 5000.0,
        "request_p99_ns": 70000.0,
        "peak_rss_kb": 1,
        "wall_ns_per_op": 1,
        "cpu_ns_per_op": 1,
    },
    "series": {},
    "series_step_s": 0,
    "histograms": {},
}
WRK = {
    "requests": 900,
    "s": 0.5,
    "us": {"p50": 10, "p99": 20, "p999": 30},
    "errors": {"connect": 0, "status": 0},
}
STAND_IN = """#!/bin/sh
[ "$1 $2" = "--policy malloc" ] || exit 9
{first}
trap 'cat {counts}; exit {code}' TERM
while :; do sleep 0.01; done
"""
LLHTTP = Path("/usr/share/llhttp")


@pytest.fixture
def glibc(layout: Layout) -> Allocator:
    return allocators.find("glibc", layout)


def stand_in(
    folder: Path,
    layout: Layout,
    counts: str | None = None,
    first: str = 'echo "http: listening on port 8"',
    code: int = 0,
) -> tuple[Scenario, Layout]:
    """A row whose server and client say what they are given."""
    programs = folder / "programs"
    shutil.copytree(layout.programs, programs)
    (folder / "counts").write_text(json.dumps(COUNTS) if counts is None else counts)
    (folder / "load").write_text(json.dumps(LOAD))
    server = programs / "http_server"
    server.write_text(STAND_IN.format(first=first, counts=folder / "counts", code=code))
    server.chmod(0o755)
    row = Scenario(
        "http",
        "http",
        ["{programs}/http_server"],
        client=["cat", str(folder / "load")],
        scoped=True,
    )
    return row, replace(layout, programs=programs)


def test_client_and_server_are_one_sample(tmp_path: Path, layout: Layout, glibc: Allocator) -> None:
    row, layout = stand_in(tmp_path, layout)
    found = execute.run(row, glibc, layout).figures
    assert found["requests_per_s"] == 5000
    assert found["request_p99_ns"] == 70000
    assert found["wall"] == pytest.approx(200000)
    assert found["cpu"] == pytest.approx(30000)
    assert found["peak_rss_kb"] == 3000
    assert found["allocations_per_request"] == 291
    assert "wall_ns_per_op" not in found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "region"}, "policy was region, wanted malloc"),
        ({"failed_allocations": 2}, "2 allocations failed"),
        ({"refused": 3}, "refused 3 requests"),
        ({"requests": 0}, "answered no request"),
        ({"user_s": None}, "not as they should be"),
    ],
)
def test_counts_that_disprove_the_run_fail_it(
    tmp_path: Path, layout: Layout, glibc: Allocator, change: dict[str, object], message: str
) -> None:
    row, layout = stand_in(tmp_path, layout, json.dumps({**COUNTS, **change}))
    with pytest.raises(RunError, match=message):
        execute.run(row, glibc, layout)


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"first": "echo no room >&2; exit 2"}, "does not listen: exit status 2: no room"),
        ({"first": "echo hello; exit 3"}, "does not listen: exit status 3"),
        ({"code": 4}, "exit status 4"),
        ({"counts": ""}, "did not print its counts"),
        ({"counts": "[1]"}, "did not print its counts"),
    ],
)
def test_a_server_that_fails_fails_the_run(
    tmp_path: Path, layout: Layout, glibc: Allocator, says: dict[str, Any], message: str
) -> None:
    row, layout = stand_in(tmp_path, layout, **says)
    with pytest.raises(RunError, match=message):
        execute.run(row, glibc, layout)


def test_a_client_that_fails_leaves_no_server(
    tmp_path: Path, layout: Layout, glibc: Allocator
) -> None:
    note = tmp_path / "pid"
    first = f'echo $$ > {note}; echo "http: listening on port 8"'
    row, layout = stand_in(tmp_path, layout, first=first)
    with pytest.raises(RunError, match="exit status 1"):
        execute.run(replace(row, client=["false"]), glibc, layout)
    assert not Path(f"/proc/{note.read_text().strip()}").exists()


def test_a_removed_preload_fails_the_run(tmp_path: Path, layout: Layout) -> None:
    row, layout = stand_in(tmp_path, layout)
    with pytest.raises(RunError, match=r"expected .*gone\.so"):
        execute.run(row, Allocator("gone", tmp_path / "gone.so"), layout)


def test_a_missing_server_names_what_it_wants(layout: Layout, glibc: Allocator) -> None:
    row = Scenario("http", "http", ["{programs}/no_server"], client=["true"])
    with pytest.raises(RunError, match="llhttp and Jansson"):
        execute.run(row, glibc, layout)


# ---- what wrk says ------------------------------------------------------------------


def test_wrk_is_read_from_its_last_line() -> None:
    found = http.read_wrk(f"Running 3s test\n{json.dumps(WRK)}\n").figures
    assert found["requests_per_s"] == 1800
    assert found["request_p999_ns"] == 30000


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "did not print"),
        ("Running\n", "did not print"),
        ("[]", "did not print"),
        (json.dumps({**WRK, "errors": {"status": 2}}), "met errors: {'status': 2}"),
        (json.dumps({**WRK, "requests": 0}), "had no answer"),
        (json.dumps({**WRK, "s": 0}), "did not print"),
    ],
)
def test_bad_words_of_wrk_fail_the_run(output: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        http.read_wrk(output)


# ---- ways and policies ----------------------------------------------------------------


def test_ways_are_policies() -> None:
    assert http.policy_of("") == "malloc"
    assert http.policy_of("per-request") == "domain"
    assert http.policy_of("batch-100") == "domain-100"
    assert http.policy_of("region-reset") == "region-reset"
    with pytest.raises(NotRunError, match="no policy for the way heap"):
        http.policy_of("heap")


def test_every_arm_of_the_set_has_a_policy() -> None:
    group = scenarios.load_all()["http"]
    asked = [name for name in group.arms if WITH in name]
    assert len(asked) >= 5
    for name in asked:
        assert http.policy_of(ways.parts(name)[1])
    assert all(row.scoped for row in group.scenarios)


def test_a_row_without_a_client_is_refused() -> None:
    with pytest.raises(LabError, match="wants a client"):
        scenarios.scenario_of({"name": "x", "kind": "http", "command": ["y"]}, "test")


# ---- the real server ----------------------------------------------------------------


@pytest.fixture(scope="session")
def server_layout(layout: Layout) -> Layout:
    if not LLHTTP.is_dir() or not Path("/usr/include/jansson.h").is_file():
        pytest.skip("llhttp or Jansson is not installed: `tools/setup test`")
    root = find_root()
    headers = [f"-I{root / 'include'}", "-I/usr/share/include/llhttp", "-DLLHTTP_STRICT_MODE=1"]
    server = [each for each in (root / "bench" / "http").glob("*.c") if each.stem != "http_load"]
    sources = [*server, *LLHTTP.glob("*.c")]
    target = ["-o", str(layout.programs / "http_server"), "-ljansson"]
    subprocess.run([*COMPILE, *headers, *map(str, sources), *target], check=True, timeout=120)
    parts = [root / "bench" / name for name in ("http/http_load.c", *SHARED)]
    target = ["-o", str(layout.programs / "http_load")]
    subprocess.run(
        [*COMPILE, "-D_GNU_SOURCE", f"-I{root / 'bench'}", *map(str, parts), *target],
        check=True,
        timeout=60,
    )
    return layout


def shipped(name: str, **changes: list[str]) -> Scenario:
    (row,) = (each for each in scenarios.load_all()["http"].scenarios if each.name == name)
    client = [changes.get(part, [part])[0] for part in row.client]
    return replace(row, client=client)


def check_real(found: dict[str, float]) -> None:
    assert found["requests"] > 100
    assert found["allocations_per_request"] > 225
    assert found["bytes_per_request"] > 51768
    assert 0 < found["request_p50_ns"] <= found["request_p99_ns"] <= found["request_p999_ns"]
    assert found["cpu"] > 0
    assert 500 < found["rss_kb"] <= found["peak_rss_kb"]


def test_closed_loop(server_layout: Layout, glibc: Allocator) -> None:
    if not shutil.which("wrk"):
        pytest.skip("wrk is not installed: `tools/setup run`")
    row = shipped("http-closed", **{"-d3s": ["-d1s"]})
    check_real(execute.run(row, glibc, server_layout).figures)


def test_open_loop(server_layout: Layout, glibc: Allocator) -> None:
    row = shipped("http-open-20000", **{"20000": ["2000"], "3000": ["300"], "500": ["100"]})
    sample = execute.run(row, glibc, server_layout)
    check_real(sample.figures)
    assert sample.figures["rate"] == 2000
    assert sample.figures["requests"] == 800
    assert sum(count for _, count in sample.histograms["request_ns"].counts) == pytest.approx(
        600, 1
    )


def test_a_way_that_the_process_does_not_have(server_layout: Layout, glibc: Allocator) -> None:
    row = shipped("http-open-20000")
    with pytest.raises(RunError, match="wants Ebbtide"):
        execute.run(row, replace(glibc, way="region"), server_layout)


def test_the_load_wants_a_server(server_layout: Layout) -> None:
    command = [str(server_layout.program("http_load")), "--port", "1", "--run-ms", "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cannot connect to port 1" in done.stderr
