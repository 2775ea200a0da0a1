# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb replay: under the real allocators, and under some that are broken on purpose."""

import io
import json
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import compile_c, invoke
from rich.console import Console
from test_cli import user_command, with_library
from test_record import build, record

from ebbtide_lab.arms import allocators, peers
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure import replaying
from ebbtide_lab.measure.replaying import Row
from ebbtide_lab.show.replays import print_counts, print_replays

WORKS = """
#include <stdlib.h>
#include <string.h>
static char *kept[500];
int main(void)
{
    for (int i = 0; i < 20000; i++) {
        int at = i * 7 % 500;
        free(kept[at]);
        kept[at] = malloc((size_t)(i % 900) + 16);
        memset(kept[at], 1, 16);
    }
    kept[0] = realloc(kept[0], 2000000);
    memset(kept[0], 1, 2000000);
    for (int i = 0; i < 2000; i++)
        free(malloc(100));
    return 0;
}
"""
WRAPS = """
#include <errno.h>
#include <stddef.h>
void *__libc_malloc(size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);
"""
AS_EVER = WRAPS + "void *malloc(size_t bytes) { return __libc_malloc(bytes); }\n"
REFUSES = (
    AS_EVER
    + """
void *realloc(void *block, size_t bytes)
{
    if (bytes > 1000000) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(block, bytes);
}
"""
)
GIVES_TWICE = (
    WRAPS
    + """
static void *twice;
void *malloc(size_t bytes)
{
    if (bytes < 500 || bytes >= 520)
        return __libc_malloc(bytes);
    if (twice == NULL)
        twice = __libc_malloc(520);
    return twice;
}
void free(void *block)
{
    if (block != twice)
        __libc_free(block);
}
"""
)
CRASHES = (
    WRAPS
    + """
#include <stdlib.h>
void *malloc(size_t bytes)
{
    if (bytes == 777)
        abort();
    return __libc_malloc(bytes);
}
"""
)


@pytest.fixture(scope="session")
def works(traced: Layout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("works")
    done = record(traced, folder, build(folder, "works", WORKS))
    assert done.returncode == 0, done.stderr
    return folder / "works.ebt"


def kept(path: Path) -> dict[str, dict[str, Any]]:
    data = json.loads(path.read_text(encoding="utf-8"))
    return {row["arm"]["name"]: row for row in data["rows"]}


def test_allocators_are_compared_and_all_that_they_told_is_kept(
    traced: Layout, works: Path, tmp_path: Path
) -> None:
    library = with_library(traced, tmp_path, AS_EVER)
    raw = tmp_path / "raw.json"
    # Wide enough for times of any length: a table that does not fit is printed as a list.
    command = ["replay", str(works), "--runs", "2", "--json", str(raw)]
    done = invoke(library, *command, columns=160)
    assert done.exit_code == 0, done.output
    rows = kept(raw)
    assert list(rows)[:2] == ["ebbtide", "glibc"]
    for name, row in rows.items():
        assert len(row["runs"]) == 2
        assert row["runs"][0]["events"] > 40000
        assert row["runs"][0]["peak_anonymous_bytes"] > 1_900_000
        assert len(re.findall(rf"^│ {name} ", done.output, re.MULTILINE)) == 2
    assert rows["ebbtide"]["arm"]["path"] == str(library.lib)
    cpu = [float(each) for each in re.findall(r"^│ \w+ +│ +([\d.]+) \(", done.output, re.MULTILINE)]
    assert cpu == sorted(cpu)
    assert len(cpu) == len(rows)
    assert re.search(r"CPU time: Ebbtide is \d+\.\d\d of the best peer, \w+\.", done.output)
    assert " raw " in done.output


# What is wrong with an allocator: its source, what is told of it, how many runs have figures.
BROKEN = {
    "refuses": (REFUSES, r"1 requests refused, the first of 2,000,000 bytes", 1),
    "gives-twice": (GIVES_TWICE, r"\d+ damaged blocks", 1),
    "crashes": (CRASHES, r"ended by SIGABRT", 0),
    "not-used": ("int nothing_of_malloc;", r"malloc came from .*, expected .*library.so", 0),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_allocator_is_told_of_and_the_others_go_on(
    traced: Layout, works: Path, tmp_path: Path, how: str
) -> None:
    source, message, runs = BROKEN[how]
    library = with_library(traced, tmp_path, source)
    raw = tmp_path / "raw.json"
    options = ("--with", "ebbtide,glibc", "--runs", "2", "--json", str(raw))
    done = invoke(library, "replay", str(works), *options)
    assert done.exit_code == 1
    text = " ".join(done.output.split())
    assert re.search(f"failed under ebbtide: {message}", text), text
    assert "of the best peer" not in text
    rows = kept(raw)
    assert (len(rows["ebbtide"]["runs"]), len(rows["glibc"]["runs"])) == (runs, 2)
    assert ("ebbtide failed" in text) == bool(runs)


def test_the_pauses_of_the_program_are_kept_if_asked(traced: Layout, tmp_path: Path) -> None:
    pauses = build(
        tmp_path,
        "pauses",
        "#include <stdlib.h>\n#include <unistd.h>\n"
        "int main(void) { free(malloc(9)); usleep(400000); free(malloc(9)); return 0; }\n",
    )
    assert record(traced, tmp_path, pauses).returncode == 0
    walls = []
    for pace in ("asap", "recorded"):
        raw = tmp_path / f"{pace}.json"
        options = ("--with", "glibc", "--runs", "1", "--pace", pace, "--json", str(raw))
        done = invoke(traced, "replay", str(tmp_path / "pauses.ebt"), *options)
        assert done.exit_code == 0, done.output
        walls.append(kept(raw)["glibc"]["runs"][0]["wall_s"])
    assert walls[0] < 0.2
    assert walls[1] > 0.35


def test_memory_is_looked_at_again_after_a_while(traced: Layout, works: Path) -> None:
    options = ("--with", "glibc", "--runs", "1", "--settle", "50")
    done = invoke(traced, "replay", str(works), *options)
    assert done.exit_code == 0
    assert "after 50 ms" in done.output
    assert "Time, one run" in done.output


def test_the_floor_is_taken_off_when_it_is_there(
    traced: Layout, works: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = tmp_path / "floor.c"
    floor.write_text(AS_EVER, encoding="utf-8")
    monkeypatch.setattr(replaying, "FLOOR_LIBRARY", "libebb_test_floor.so")
    compile_c([floor], traced.programs / "libebb_test_floor.so", "-shared")
    done = invoke(traced, "replay", str(works), "--with", "glibc", "--runs", "1")
    (traced.programs / "libebb_test_floor.so").unlink()
    assert done.exit_code == 0, done.output
    assert re.search(r"own: without the [\d.]+ s of the replay itself", done.output)
    assert " raw " not in done.output
    assert " floor " not in done.output


def test_instructions_are_counted(traced: Layout, works: Path) -> None:
    done = invoke(traced, "replay", str(works), "--with", "glibc", "--counts", columns=160)
    assert done.exit_code == 0, done.output
    found = re.search(r"^│ glibc +│ +([\d.]+) ", done.output, re.MULTILINE)
    assert found
    assert 50 < float(found[1]) < 2000


def test_what_cannot_be_replayed_is_one_line(traced: Layout, works: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.ebt"
    damaged.write_bytes(works.read_bytes()[:-70])
    for file, options, message in (
        ("/bin/sh", (), "is no recording"),
        (str(damaged), (), "damaged or cut off"),
        (str(works), ("--with", "what"), "no allocator is called 'what'"),
        (str(works), ("--with", "ebbtide"), "no-library.so is missing"),
        (str(works), (), "no-library.so is missing"),
        (str(works), ("--with", "glibc", "--runs", "1000", "--json", "/proc/x"), "cannot write"),
    ):
        done = invoke(traced, "replay", file, *options)
        assert done.exit_code == 1
        line = done.output.splitlines()[-1]
        assert line.startswith("Error: ")
        assert message in line


def wait_for_children(pid: int, count: int) -> None:
    """Until the process has had so many, one after the other: all but the last have ended."""
    seen: set[str] = set()
    for _ in range(60_000):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            seen.update(task.read_text().split())
        if len(seen) >= count:
            return
        time.sleep(0.001)
    raise AssertionError(seen)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_the_runs_that_were_finished(
    traced: Layout, works: Path, tmp_path: Path, number: signal.Signals
) -> None:
    raw = tmp_path / "raw.json"
    options = ("--with", "glibc", "--runs", "1000", "--json", str(raw))
    command = user_command(traced, "replay", str(works), *options)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as lab:
        wait_for_children(lab.pid, 10)
        lab.send_signal(number)
        output, errors = lab.communicate(timeout=30)
    assert lab.returncode == 128 + number
    assert "interrupted" in errors
    assert " glibc " in output
    assert 0 < len(kept(raw)["glibc"]["runs"]) < 1000


@pytest.fixture
def asked(traced: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is looked for, of allocators that are all there but for jemalloc."""
    names: list[str] = []

    def find(name: str, _: Layout) -> Allocator:
        names.append(name)
        return Allocator(name, tmp_path, problem="it is away" if name == "jemalloc" else "")

    monkeypatch.setattr(allocators, "find", find)
    return names


def crates(layout: Layout) -> list[str]:
    catalogue = allocators.load_catalogue(layout)
    return [name for name, entry in catalogue.items() if entry["kind"] == "crate"]


def test_peers_that_would_have_to_be_built_are_not_at_hand(
    traced: Layout, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = crates(traced)[0]
    monkeypatch.setattr(peers, "is_built", lambda recipe, _: recipe.name == built)
    found = [arm.name for arm in allocators.at_hand(traced)]
    assert asked[:2] == ["ebbtide", "glibc"]
    assert set(crates(traced)) & set(asked) == {built}
    assert found == [name for name in asked if name != "jemalloc"]


def test_all_builds_peers_and_tells_of_those_that_are_missing(
    traced: Layout, works: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "replay", lambda _, arms, *__: (list(map(Row, arms)), 0))
    done = invoke(traced, "replay", str(works), "--with", "all")
    assert done.exit_code == 0
    assert set(crates(traced)) < set(asked)
    assert "floor" not in asked
    assert "missing jemalloc: it is away" in done.output


# --- what is printed --------------------------------------------------------------------


def run(**others: Any) -> dict[str, Any]:  # noqa: ANN401
    fields = {
        "cpu_s": 12345.678,
        "wall_s": 98765.432,
        "minor_faults": 123_456_789,
        "peak_anonymous_bytes": 999 << 30,
        "mean_anonymous_bytes": 888 << 30,
        "end_anonymous_bytes": 777 << 30,
        "settled_anonymous_bytes": 666 << 30,
        "anonymous_bytes": [1 << 30, 999 << 30, 7],
        "live_bytes": [1 << 30, 333 << 30, 9],
        "live_end_bytes": 7 << 30,
        "live_peak_bytes": 400 << 30,
    }
    return {**fields, **others}


def rows_of(*names: str) -> list[Row]:
    return [Row(Allocator(name, Path(f"/{name}.so")), [run(), run(cpu_s=1.0)]) for name in names]


@pytest.mark.parametrize("width", [80, 160])
def test_the_tables_are_not_cut(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width)
    rows = rows_of("ebbtide", "jemalloc531", "snmalloc", "floor")
    rows[3].runs = [run(cpu_s=0.5)]
    rows[2].failure = "12 damaged blocks; 3 sums that differ"
    print_replays(rows, 60_000, console)
    text = out.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for figure in ("123,456,789", "999 GiB", "3.00", "888 GiB", "777 GiB", "666 GiB", "111"):
        assert text.count(figure) >= 3, figure
    assert "failed under snmalloc: 12 damaged blocks; 3 sums that differ" in text
    counts = {"instructions": 123456.7, "d1_misses": 12345.6, "ll_misses": 1234.5}
    print_counts([replace(row, counts=counts) for row in rows], console)
    assert "…" not in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= width


def test_fragmentation_is_that_of_the_fullest_sample() -> None:
    (row,) = rows_of("glibc")
    assert row.fragmentation(at_end=False) == 3.0
    assert row.fragmentation(at_end=True) == 111.0
    nothing = Row(row.arm, [run(live_end_bytes=0, anonymous_bytes=[], live_bytes=[])])
    assert nothing.fragmentation(at_end=False) is None
    assert nothing.fragmentation(at_end=True) is None


def test_own_time_is_what_the_floor_does_not_take() -> None:
    out = io.StringIO()
    ours, peer, floor = rows_of("ebbtide", "glibc", "floor")
    ours.runs, peer.runs, floor.runs = [run(cpu_s=2.0)], [run(cpu_s=3.0)], [run(cpu_s=1.5)]
    print_replays([floor, ours, peer], 0, Console(file=out, width=120))
    text = out.getvalue()
    assert re.search(r"ebbtide +│ +2\.00 +│ +0\.500 ", text)
    assert "Own CPU time: Ebbtide is 0.33 of the best peer, glibc." in text
    assert text.index("ebbtide") < text.index("glibc")
    floor.runs = [run(cpu_s=3.5)]
    print_replays([floor, ours, peer], 0, Console(file=out, width=120))
    assert "Own CPU time: nothing to compare, glibc had runs that took none." in out.getvalue()
    floor.failure = "exit status 2"
    print_replays([floor, ours, peer], 0, Console(file=out, width=120))
    assert re.search(r"ebbtide +│ +2\.00 +│ +raw ", out.getvalue())
    assert "failed under floor: exit status 2" in out.getvalue()
