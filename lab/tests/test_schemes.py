# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arms that are a scheme of reclamation over an allocator: found, built, run, shown."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import report_data
from conftest import COMPILE, SHARED, invoke
from rich.console import Console

from ebbtide_lab import SCHEMA
from ebbtide_lab.arms import allocators, peers, schemes
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import LabError, NotRunError, RunError
from ebbtide_lab.base.layout import Layout, find_root
from ebbtide_lab.measure import execute
from ebbtide_lab.results import journal
from ebbtide_lab.results.model import Refusal, Results, Sample
from ebbtide_lab.scenarios import model
from ebbtide_lab.scenarios.model import Bar, Scenario
from ebbtide_lab.show import tables
from ebbtide_lab.show.report import markdown
from ebbtide_lab.show.report import model as report

RETIRE = Scenario("retire", "scheme", ["retire", "--iters", "2000"])
CATALOGUE = """
[[scheme]]
name = "toy"
built = "c"
[[scheme]]
name = "oxide"
built = "rust"
crates = ["oxide-epoch"]
"""
CARGO = '[dependencies]\noxide-epoch = "=1.2.3"\n'


def checkout(folder: Path, catalogue: str = CATALOGUE, cargo: str = CARGO) -> Layout:
    """A checkout with made-up schemes; its programs are what the tests put there."""
    (folder / "lab").mkdir()
    (folder / "lab" / "peers.toml").write_text(catalogue)
    sources = folder / "bench" / "reclaim-rs"
    (sources / "src").mkdir(parents=True)
    (sources / "Cargo.toml").write_text(cargo)
    (sources / "src" / "main.rs").write_text("fn main() {}\n")
    (folder / "tools").mkdir()
    (folder / "tools" / "lock").write_text("#!/bin/sh\n[ $1 = bench/reclaim-rs ] || exit 1\n")
    (folder / "tools" / "lock").chmod(0o755)
    return Layout(folder, folder / "libebbtide.so.0.1.0", folder / "programs")


def program(layout: Layout, scheme: str, workload: str, text: str) -> None:
    path = layout.programs / "reclaim" / scheme / workload
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def report_of(malloc_of: Path | str, **verified: bool) -> str:
    """A program that prints a whole report, and on standard error what it was given."""
    figures = {"wall_ns_per_op": 2, "cpu_ns_per_op": 2, "peak_rss_kb": 900}
    data = {
        "schema": SCHEMA,
        "allocator": str(malloc_of),
        "verified": verified,
        "figures": figures,
        "series": {},
        "series_step_s": 0,
        "histograms": {},
    }
    kept = 'env > "$(dirname "$0")/env"; echo "$@" >> "$(dirname "$0")/env"'
    return f"{kept}\necho '{json.dumps(data)}'"


# --- found --------------------------------------------------------------------------


def test_an_arm_is_a_scheme_over_an_allocator(layout: Layout, tmp_path: Path) -> None:
    place = checkout(tmp_path)
    program(place, "toy", "retire", "true")
    found = schemes.find("toy/glibc", place)
    assert (found.name, found.scheme, found.path, found.problem) == ("toy/glibc", "toy", None, "")
    assert found.version.startswith("glibc 2.")
    assert schemes.find("glibc", place).scheme == ""


def test_ebbtides_ways_are_ebbtides_library(tmp_path: Path) -> None:
    place = checkout(tmp_path)
    assert "is missing" in schemes.find("ebbtide-fenced", place).problem
    place.lib.write_text("a library")
    for name in (*allocators.EBBTIDE_WAYS, "ebbtide", "ebbtide-again"):
        found = schemes.find(name, place)
        assert (found.name, found.path) == (name, place.lib)
        assert found.scheme == ("ebbtide" if name == "ebbtide-again" else name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("charm/glibc", "no scheme of reclamation is called 'charm'; there are toy, oxide"),
        ("toy/what", "no allocator is called 'what'"),
        ("toy/ebbtide", "a scheme runs over a peer, not over ebbtide"),
        ("toy/toy", "no allocator is called 'toy'"),
    ],
)
def test_names_that_mean_nothing_are_clear_errors(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        schemes.find(name, checkout(tmp_path))


def test_a_scheme_without_its_programs_is_missing_with_the_reason(tmp_path: Path) -> None:
    assert "reclaim/toy/retire is missing" in schemes.find("toy/glibc", checkout(tmp_path)).problem


def test_a_library_that_pkg_config_does_not_know_is_missing(tmp_path: Path) -> None:
    text = '[[scheme]]\nname = "toy"\nbuilt = "c"\npackage = "no-such-package"\n'
    place = checkout(tmp_path, text)
    program(place, "toy", "retire", "true")
    assert schemes.find("toy/glibc", place).problem == "pkg-config does not know no-such-package"


def test_another_language_is_a_clear_error(tmp_path: Path) -> None:
    place = checkout(tmp_path, CATALOGUE.replace('"rust"', '"zig"'))
    with pytest.raises(LabError, match="oxide: built is c or rust, not 'zig'"):
        schemes.find("oxide/glibc", place)


def test_every_crate_of_the_lab_is_pinned() -> None:
    layout = Layout.of(None, None)
    entries = allocators.load_schemes(layout).values()
    told = [schemes.version(each, layout) for each in entries if "crates" in each]
    assert len(told) == 5
    assert all(text[-1].isdigit() for text in told)


# --- built --------------------------------------------------------------------------


def test_cargo_builds_once_and_again_when_the_sources_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def cargo(command: list[str], folder: Path, what: str, environment: dict[str, str]) -> None:
        if command[0] == str(tmp_path / "tools" / "lock"):
            return
        assert command[:2] == ["cargo", "build"]
        target = Path(environment["CARGO_TARGET_DIR"])
        calls.append(str(target))
        (target / "release").mkdir(parents=True, exist_ok=True)
        (target / "release" / "reclaim").write_text("a program")

    monkeypatch.setattr(peers, "run", cargo)
    place = checkout(tmp_path)
    for _ in range(2):
        found = schemes.find("oxide/glibc", place)
        assert (found.problem, found.version.split(",")[0]) == ("", "oxide-epoch 1.2.3")
    schemes.built_by_cargo.cache_clear()
    schemes.find("oxide/glibc", place)
    assert calls == [str(tmp_path / "build" / "reclaim-rs")]
    (tmp_path / "bench" / "reclaim-rs" / "src" / "main.rs").write_text("fn main() { }\n")
    schemes.find("oxide/glibc", place)
    assert len(calls) == 2


def test_a_build_that_fails_is_told_by_all_its_arms_and_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cargo = tmp_path / "bin" / "cargo"
    cargo.parent.mkdir()
    cargo.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/calls\n"
        "echo '   Compiling' >&2; echo 'error[E0425]: cannot find value `x`' >&2\n"
        "echo 'note: more' >&2\nexit 101\n"
    )
    cargo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{cargo.parent}:{os.environ['PATH']}")
    place = checkout(tmp_path)
    for _ in range(2):
        problem = schemes.find("oxide/glibc", place).problem
        assert problem == "cannot build bench/reclaim-rs: error[E0425]: cannot find value `x`"
    assert (tmp_path / "calls").read_text() == "x\n"


def test_a_crate_that_is_not_pinned_is_refused(tmp_path: Path) -> None:
    place = checkout(tmp_path, cargo=CARGO.replace("=1.2.3", "1.2"))
    with pytest.raises(LabError, match="does not pin oxide-epoch"):
        schemes.version(allocators.load_schemes(place)["oxide"], place)


# --- run ----------------------------------------------------------------------------

OVER_GLIBC = Allocator("toy/glibc", None, "1", scheme="toy")


def test_a_scheme_is_run_with_its_options_and_its_allocator_preloaded(tmp_path: Path) -> None:
    place = checkout(tmp_path)
    other = tmp_path / "libother.so"
    program(place, "toy", "retire", report_of(other))
    arm = replace(OVER_GLIBC, name="toy/other", path=other)
    assert execute.run(RETIRE, arm, place).figures["cpu"] == 2
    told = (place.programs / "reclaim" / "toy" / "env").read_text().splitlines()
    assert f"LD_PRELOAD={other}" in told
    assert f"LAB_EXPECT={other}" in told
    assert told[-1] == "--iters 2000"


def test_a_rust_scheme_is_one_program_with_scheme_and_workload_in_front(tmp_path: Path) -> None:
    place = checkout(tmp_path)
    found = schemes.command("oxide", "pin", place)
    assert found == [str(tmp_path / "build/reclaim-rs/release/reclaim"), "oxide", "pin"]


def test_a_linked_library_is_not_preloaded_and_must_be_the_very_file(tmp_path: Path) -> None:
    place = checkout(tmp_path)
    place.lib.write_text("a library")
    short = tmp_path / "libebbtide.so.0"
    short.symlink_to(place.lib.name)
    program(place, "ebbtide-fenced", "retire", report_of(short))
    fenced = schemes.find("ebbtide-fenced", place)
    assert execute.run(RETIRE, fenced, place).figures["cpu"] == 2
    told = (place.programs / "reclaim" / "ebbtide-fenced" / "env").read_text().splitlines()
    assert "LAB_EXPECT=libebbtide.so" in told
    assert not [line for line in told if line.startswith("LD_PRELOAD")]
    installed = tmp_path / "elsewhere" / "libebbtide.so.0"
    program(place, "ebbtide-fenced", "retire", report_of(installed))
    with pytest.raises(RunError, match=r"malloc came from .*elsewhere"):
        execute.run(RETIRE, fenced, place)


def test_a_program_of_an_earlier_build_fails_the_run(tmp_path: Path) -> None:
    place = checkout(tmp_path)
    program(place, "ebbtide-fenced", "retire", report_of(place.lib))
    place.lib.write_text("a library")
    os.utime(place.lib, (2**31, 2**31))
    with pytest.raises(RunError, match="is older than the library"):
        execute.run(RETIRE, schemes.find("ebbtide-fenced", place), place)


def test_the_wrong_allocator_fails_the_run(tmp_path: Path) -> None:
    place = checkout(tmp_path)
    program(place, "toy", "retire", report_of("/opt/other.so"))
    with pytest.raises(RunError, match=r"malloc came from /opt/other\.so, expected libc\.so"):
        execute.run(RETIRE, OVER_GLIBC, place)


def test_what_was_not_reclaimed_fails_the_run(tmp_path: Path) -> None:
    place = checkout(tmp_path)
    program(place, "toy", "retire", report_of("/lib/libc.so.6", all_reclaimed=False))
    with pytest.raises(RunError, match="check failed: all_reclaimed"):
        execute.run(RETIRE, OVER_GLIBC, place)


def test_exit_status_3_with_a_reason_is_no_failure(tmp_path: Path) -> None:
    place = checkout(tmp_path)
    program(place, "toy", "retire", "echo 'not run: toy has no such thing' >&2; exit 3")
    with pytest.raises(NotRunError, match=r"^toy has no such thing$"):
        execute.run(RETIRE, OVER_GLIBC, place)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exit 3", "exit status 3: nothing on standard error"),
        ("echo 'bench: no memory' >&2; exit 3", "exit status 3: bench: no memory"),
        ("echo 'not run: really' >&2; exit 1", "exit status 1: not run: really"),
        ("kill -SEGV $$", "SIGSEGV"),
    ],
)
def test_everything_else_is_a_failure(tmp_path: Path, text: str, message: str) -> None:
    place = checkout(tmp_path)
    program(place, "toy", "retire", text)
    with pytest.raises(RunError, match=message):
        execute.run(RETIRE, OVER_GLIBC, place)


def test_a_workload_that_a_scheme_has_no_program_for_fails(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="reclaim/toy/retire is missing"):
        execute.run(RETIRE, OVER_GLIBC, checkout(tmp_path))


def compiled(place: Layout, scheme: str, workload: str) -> None:
    """A program of bench/reclaim, where the lab looks for it."""
    bench = find_root() / "bench"
    folder = place.programs / "reclaim" / scheme
    folder.mkdir(parents=True, exist_ok=True)
    sources = [bench / name for name in SHARED] + [
        bench / "reclaim" / name for name in (f"{workload}.c", "harness.c")
    ]
    flags = [
        "-D_GNU_SOURCE",
        f'-DSCHEME_HEADER="scheme_{scheme}.h"',
        f"-I{find_root() / 'include'}",
        f"-I{bench}",
    ]
    command = [*COMPILE, *flags, *map(str, sources), "-o", str(folder / workload)]
    subprocess.run(command, check=True, timeout=60)


def test_a_program_of_bench_runs_as_a_scheme(tmp_path: Path) -> None:
    place = checkout(tmp_path, CATALOGUE.replace("toy", "free"))
    compiled(place, "free", "retire")
    found = schemes.find("free/glibc", place)
    assert found.problem == ""
    figures = execute.run(RETIRE, found, place).figures
    assert {"ns_per_op", "cpu_ns_per_op", "op_p999_ns", "peak_growth_kb"} <= set(figures)
    assert figures["unreclaimed"] == 0
    with pytest.raises(RunError, match=r"expected .*gone\.so"):
        execute.run(RETIRE, replace(found, path=tmp_path / "gone.so"), place)


@pytest.mark.parametrize(
    ("workload", "options", "histogram"),
    [
        ("pin", [], "pin_ns"),
        ("pin", ["--mode", "nested"], "pin_ns"),
        ("atomic_swap", [], "swap_ns"),
    ],
)
def test_single_operations_are_timed_under_a_mutex(
    tmp_path: Path, workload: str, options: list[str], histogram: str
) -> None:
    place = checkout(tmp_path, CATALOGUE.replace("toy", "mutex"))
    for each in ("retire", workload):
        compiled(place, "mutex", each)
    command = [workload, "--threads", "3", "--iters", "2000", "--timed", "100", *options]
    found = schemes.find("mutex/glibc", place)
    sample = execute.run(Scenario("one", "scheme", command), found, place)
    assert sum(count for _, count in sample.histograms[histogram].counts) == 300
    untimed = Scenario("none", "scheme", [*command, "--timed", "0"])
    assert execute.run(untimed, found, place).histograms == {}


# --- a session and what it shows ----------------------------------------------------

SET = """
purpose = "schemes"
arms = ["ebbtide", "toy/glibc", "oxide/glibc", "glibc", "ebbtide-again"]
[[scenario]]
name = "retire"
kind = "scheme"
command = ["retire", "--iters", "10"]
runs = 2
bars = [{ kind = "against", peers = ["toy/glibc"], at_most = 1.0 }]
"""


def test_a_session_tells_what_was_not_run_and_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = checkout(tmp_path)
    place.lib.write_text("a library")
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "short.toml").write_text(SET)
    monkeypatch.setattr(model, "SCENARIO_SETS", tmp_path / "sets")
    monkeypatch.setattr(Layout, "of", lambda *_: place)
    monkeypatch.setattr(peers, "run", _no_cargo)
    program(place, "ebbtide", "retire", report_of(place.lib))
    program(place, "toy", "retire", "echo 'not run: a toy' >&2; exit 3")
    out = tmp_path / "out"
    done = invoke(place, "bench", "short", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "cannot build" in done.output
    results = journal.load(out)
    (row,) = results.rows
    assert {arm: len(each) for arm, each in row.samples.items()} == {
        "ebbtide": 2,
        "ebbtide-again": 2,
    }
    assert row.refusals == {"toy/glibc": "a toy"}
    assert "not run: a toy" in markdown.render(report.page(results))


def _no_cargo(*_: object) -> None:
    raise LabError("cannot build bench/reclaim-rs: no network")


def _results(folder: Path) -> Results:
    """Reclamation beside a row of allocators, with a refusal and a failure."""
    names = ("ebbtide", "ebbtide-fenced", "ck/glibc", "sdd/glibc", "free/glibc", "ebbtide-again")
    arms = [Allocator(name, None, "1") for name in (*names, "glibc")]
    bar = Bar("against", at_most=1, arm="ebbtide-fenced", peers=["ck/glibc"])
    swap = Scenario("swap", "scheme", ["atomic_swap", "--threads", "4"], bars=[bar])
    mixed = Scenario("mixed", "workload", ["random_mixed"])
    kept = journal.Journal(folder, arms)
    for at, name in enumerate(names):
        if name == "sdd/glibc":
            kept.write("reclaim", swap, name, Refusal("sdd counts nothing"))
            continue
        for number in range(5):
            cost = 2.0 + at + number / 100
            sample = Sample({"cpu": cost, "wall": cost, "peak_rss_kb": 900.0 + at})
            kept.write("reclaim", swap, name, sample)
    for name in ("ebbtide", "glibc"):
        kept.write("quick", mixed, name, Sample({"cpu": 5.0, "wall": 5.0, "peak_rss_kb": 800}))
    kept.close()
    return journal.load(folder)


def test_a_report_has_a_matrix_for_allocators_and_one_for_schemes(tmp_path: Path) -> None:
    page = report.page(_results(tmp_path))
    allocator_table, scheme_table = page.costs
    assert allocator_table.columns == ["workload", "ebbtide", "glibc", "A/A"]
    over = ["ebbtide-fenced", "ck/glibc", "sdd/glibc", "free/glibc"]
    assert scheme_table.columns == ["workload", "ebbtide", *over, "A/A"]
    (line,) = scheme_table.rows
    assert line[1].note == "cpu ns per op"
    assert line[4].note == "not run: sdd counts nothing"
    assert page.title == "Ebbtide beside 3 allocators"
    parts = {row[0].text: row[3].text for row in page.allocators.rows}
    assert parts["free/glibc"].startswith("no reclamation")
    assert parts["ebbtide-fenced"] == "measured: another way to reclaim"


def test_the_report_names_refusals_and_bars_in_both_forms(tmp_path: Path) -> None:
    found = _results(tmp_path)
    for text in (report_data.html_of(found), markdown.render(report.page(found))):
        assert "sdd counts nothing" in text
        assert "ebbtide-fenced: cpu over that of ck/glibc" in text
        assert "Cost of reclamation: Ebbtide" in text


def test_two_sessions_of_schemes_are_compared(tmp_path: Path) -> None:
    layout = Layout.of(None, None)
    for name in ("a", "b"):
        _results(tmp_path / name)
    folders = [str(tmp_path / name) for name in ("a", "b")]
    done = invoke(layout, "compare", *folders, "--arm", "ebbtide-fenced")
    assert done.exit_code == 0, done.output
    assert "0 regressions" in done.output
    assert "2 figures without a clear change" in done.output.replace("\n", " ")


def test_the_terminal_shows_every_arm_of_a_scheme(tmp_path: Path) -> None:
    console = Console(width=200, record=True, file=(tmp_path / "log").open("w"))
    tables.print_results(_results(tmp_path), console)
    text = console.export_text()
    for word in ("ck/glibc", "not run", "sdd counts nothing", "1 claims held, 0 missed"):
        assert word in text
