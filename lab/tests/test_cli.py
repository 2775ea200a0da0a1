# SPDX-License-Identifier: MIT OR Apache-2.0
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import invoke, sample
from verbs import fault_of, user_command

from ebbtide_lab import SCHEMA
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.layout import Layout, find_root
from ebbtide_lab.cli.main import main
from ebbtide_lab.measure import execute
from ebbtide_lab.results import journal
from ebbtide_lab.results.model import Sample
from ebbtide_lab.scenarios import model
from ebbtide_lab.scenarios.model import Scenario
from ebbtide_lab.show.console import LOG_COLUMNS, open_console

CMAKE = find_root() / "CMakeLists.txt"


@pytest.mark.parametrize("asked", ["--help", "--version"])
def test_a_full_disk_is_told_of_what_no_verb_prints(asked: str) -> None:
    command = [sys.executable, "-c", "from ebbtide_lab.cli.main import main; main()", asked]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: cannot write: No space left on device\n"


def test_the_version_needs_no_installed_package() -> None:
    """As from Debian's package, which has the sources and no metadata."""
    code = (
        "import importlib.metadata as told;"
        "told.distributions = told.distribution = told.version = None;"
        "from ebbtide_lab.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    version = re.search(r"^project\(ebbtide VERSION (\S+)", CMAKE.read_text(), re.M)
    assert version is not None
    assert (done.returncode, done.stdout) == (0, f"ebb, version {version[1]}\n"), done.stderr


def test_missing_library_and_unknown_names_are_clear_errors(layout: Layout) -> None:
    for arguments, message in (
        (["run", "--", "true"], f"{layout.lib} is missing\n"),
        (["bench", "quick"], f"{layout.lib} is missing; --arms chooses others"),
        (["bench", "nothing"], "no scenario or set is called 'nothing'"),
        (["bench", "--arms", "what"], "no allocator is called 'what'"),
        (["run", "--with", "what", "--", "true"], "no allocator is called 'what'"),
    ):
        result = invoke(layout, *arguments)
        assert result.exit_code == 1
        assert message in result.output


def test_bench_prints_the_table_and_keeps_the_runs(layout: Layout, tmp_path: Path) -> None:
    result = invoke(
        layout, "bench", "start", "--arms", "glibc,floor", "--runs", "1", "--out", str(tmp_path)
    )
    assert result.exit_code == 0, result.output
    assert "true" in result.output
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1


def test_list_shows_every_bar_row(layout: Layout) -> None:
    assert "hand-off-t16-r90" in invoke(layout, "list").output


# --- ebb bench: what goes wrong -----------------------------------------------------

SET = """
purpose = "short runs"
arms = ["ebbtide", "glibc"]
[[scenario]]
name = "mixed"
kind = "workload"
command = ["random_mixed", "--iters", "20000"]
runs = 3
"""
NOT_AN_ALLOCATOR = "int nothing_of_malloc;\n"
CRASHES_LATE = """
#include <stdlib.h>
void *__libc_malloc(size_t size_bytes);
void *malloc(size_t size_bytes)
{
    static int calls;
    if (++calls > 1000)
        abort();
    return __libc_malloc(size_bytes);
}
"""


@pytest.fixture
def short_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "short.toml").write_text(SET)
    monkeypatch.setattr(model, "SCENARIO_SETS", tmp_path / "sets")


def with_library(layout: Layout, folder: Path, source: str) -> Layout:
    """The layout with this as Ebbtide's library."""
    code, library = folder / "library.c", folder / "library.so"
    code.write_text(source)
    command = ["gcc", "-shared", "-fPIC", "-fno-builtin", str(code), "-o", str(library)]
    subprocess.run(command, check=True, timeout=60)
    return replace(layout, lib=library)


def with_floor_as_ebbtide(layout: Layout) -> Layout:
    return replace(layout, lib=layout.program("libebb_floor.so"))


@pytest.mark.usefixtures("short_set")
@pytest.mark.parametrize(
    ("source", "message"),
    [(NOT_AN_ALLOCATOR, "expected .*library.so"), (CRASHES_LATE, "ended by SIGABRT")],
    ids=["preload-not-used", "crash"],
)
def test_a_failing_arm_is_told_of_and_the_others_finish(
    layout: Layout, tmp_path: Path, source: str, message: str
) -> None:
    broken = with_library(layout, tmp_path, source)
    result = invoke(broken, "bench", "short", "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "failed mixed under ebbtide" in result.output
    (row,) = journal.load(tmp_path / "out").rows
    assert re.search(message, row.failures["ebbtide"])
    assert "ebbtide" not in row.samples
    assert len(row.samples["glibc"]) == 3


@pytest.mark.usefixtures("short_set")
def test_an_interrupted_session_says_how_to_go_on_and_does(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, run, calls = with_floor_as_ebbtide(layout), execute.run, iter(range(100))

    def interrupted(scenario: Scenario, arm: Allocator, layout: Layout) -> Sample:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return run(scenario, arm, layout)

    monkeypatch.setattr(execute, "run", interrupted)
    result = invoke(places, "bench", "short", "--runs", "2", "--out", str(tmp_path / "out"))
    assert result.exit_code == 130
    (line,) = [each for each in result.output.splitlines() if each.startswith("To go on: ")]
    program, *arguments = shlex.split(line.removeprefix("To go on: "))
    assert program == "ebb"
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 0, again.output
    assert "2 of 4 runs are there already." in again.output
    assert len((tmp_path / "out" / "runs.jsonl").read_text().splitlines()) == 4


# In place of the program `true`: once a run is on record it says so and stays.
STAYS = """
#include <sys/stat.h>
#include <unistd.h>
int main(void)
{
    struct stat runs;
    if (stat("RUNS", &runs) == 0 && runs.st_size > 0) {
        mkdir("WAITS", 0755);
        for (;;)
            pause();
    }
    return 0;
}
"""


def with_a_program_that_stays(layout: Layout, folder: Path, runs: Path, waits: Path) -> Layout:
    programs = folder / "programs"
    programs.mkdir()
    for each in layout.programs.iterdir():
        (programs / each.name).symlink_to(each)
    (programs / "true").unlink()
    code = STAYS.replace("RUNS", str(runs)).replace("WAITS", str(waits))
    command = ["gcc", "-x", "c", "-", "-o", str(programs / "true")]
    subprocess.run(command, input=code, text=True, check=True, timeout=60)
    return replace(layout, programs=programs)


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_keep_the_finished_runs(
    layout: Layout, tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    """A real signal to a real session, sent in its second run, which has no other end."""
    out, waits = tmp_path / "out", tmp_path / "waits"
    places = with_a_program_that_stays(layout, tmp_path, out / "runs.jsonl", waits)
    arguments = ["bench", "start", "--arms", "glibc", "--runs", "2", "--out", str(out)]
    command = user_command(places, *arguments)
    # Where the tests run in the background SIGINT may be ignored, which children inherit.
    command[2] = f"import signal; signal.signal(2, signal.default_int_handler); {command[2]}"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ebb:
        while not waits.is_dir():
            assert ebb.poll() is None
            time.sleep(0.01)
        ebb.send_signal(sent)
        output, _ = ebb.communicate(timeout=60)
    assert ebb.returncode == status
    assert "To go on: ebb" in output
    assert "--resume" in output
    assert len(journal.load(out).rows[0].samples["glibc"]) == 1


@pytest.mark.usefixtures("short_set")
def test_a_full_disk_is_one_line_and_keeps_the_finished_runs(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = journal.Journal.write, iter(range(100))

    def fills_up(
        kept: journal.Journal, group: str, scenario: Scenario, arm: str, outcome: Sample | str
    ) -> None:
        if next(calls) == 2:
            with open("/dev/full", "wb") as full:
                os.dup2(full.fileno(), kept._lines.fileno())
        write(kept, group, scenario, arm, outcome)

    monkeypatch.setattr(journal.Journal, "write", fills_up)
    out = tmp_path / "out"
    result = invoke(with_floor_as_ebbtide(layout), "bench", "short", "--out", str(out))
    assert result.exit_code == 1
    assert "Error: cannot write to" in result.output
    assert "No space left on device; finished runs are kept" in result.output.replace("\n", " ")
    assert {name: len(of) for name, of in journal.load(out).rows[0].samples.items()} == {
        "ebbtide": 1,
        "glibc": 1,
    }


def test_resume_wants_a_folder(layout: Layout) -> None:
    result = invoke(layout, "bench", "start", "--resume")
    assert result.exit_code == 2
    assert "--resume wants --out" in result.output


def test_an_unknown_workload_names_the_known_ones(layout: Layout) -> None:
    result = invoke(layout, "bench", "nothing")
    assert result.exit_code == 1
    for name in model.load_all():
        assert name in result.output


@pytest.mark.usefixtures("short_set")
def test_a_plant_slows_ebbtide_alone_and_is_told_of(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: dict[str, list[str]] = {}

    def record(scenario: Scenario, arm: Allocator, _: Layout) -> Sample:
        commands[arm.name] = scenario.command
        return sample(1.0)

    monkeypatch.setattr(execute, "run", record)
    places, out = with_floor_as_ebbtide(layout), tmp_path / "out"
    arms = "ebbtide,glibc,ebbtide-again"
    result = invoke(
        places, "bench", "short", "--arms", arms, "--plant-percent", "3", "--out", str(out)
    )
    assert commands["ebbtide"][-2:] == ["--plant-percent", "3"]
    assert "--plant-percent" not in commands["glibc"] + commands["ebbtide-again"]
    assert "NOT A RESULT" in result.output
    assert journal.load(out).facts["planted_percent"] == 3
    nowhere = invoke(places, "bench", "short", "--arms", "glibc", "--plant-percent", "3")
    assert nowhere.exit_code == 1
    assert "nothing to plant in" in nowhere.output


@pytest.mark.usefixtures("short_set")
def test_the_workload_obeys_a_plant(layout: Layout, tmp_path: Path) -> None:
    places, out = with_floor_as_ebbtide(layout), str(tmp_path / "out")
    result = invoke(places, "bench", "short", "--plant-percent", "3", "--out", out)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("verb", ["compare", "report", "bench"])
def test_folders_of_another_schema_are_refused(layout: Layout, tmp_path: Path, verb: str) -> None:
    (tmp_path / "machine.json").write_text('{"schema": 1}')
    folder = str(tmp_path)
    arguments = {
        "compare": [folder, folder],
        "report": [folder],
        "bench": ["start", "--arms", "glibc", "--out", folder],
    }
    result = invoke(layout, verb, *arguments[verb])
    assert result.exit_code == 1
    assert f"holds schema 1, this lab reads {SCHEMA}" in result.output.replace("\n", " ")


def test_a_verb_that_lacks_a_package_says_so_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ebbtide_lab.cli.profile", None)
    done = CliRunner().invoke(main, ["profile", "--tree", "heap.pb"])
    assert "ebb profile lacks a Python package, or a newer one" in fault_of(done)
    assert "snapshot" in CliRunner().invoke(main, ["--help"]).output


def test_no_columns_are_as_many_as_a_log_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stdout__", None)
    for columns, width in {"0": LOG_COLUMNS, "": LOG_COLUMNS, "20": 20}.items():
        monkeypatch.setenv("COLUMNS", columns)
        assert open_console().width == width
    monkeypatch.delenv("COLUMNS")
    assert open_console().width == LOG_COLUMNS


@pytest.mark.parametrize("verb", ["status", "top", "trim", "options", "snapshot", "export"])
def test_what_is_no_pid_is_called_one(verb: str) -> None:
    assert "'abc' is not a valid PID" in CliRunner().invoke(main, [verb, "abc"]).output
