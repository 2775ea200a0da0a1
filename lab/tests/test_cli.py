# SPDX-License-Identifier: MIT OR Apache-2.0
import json
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
from verbs import fault_of

from ebbtide_lab import SCHEMA
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.layout import Layout, find_root
from ebbtide_lab.cli.main import main
from ebbtide_lab.measure import execute
from ebbtide_lab.results import journal
from ebbtide_lab.results.model import Sample
from ebbtide_lab.scenarios import model
from ebbtide_lab.scenarios.model import Scenario


def user_command(layout: Layout, *arguments: str) -> list[str]:
    code = "from ebbtide_lab.cli.main import main; main()"
    places = ["--lib", str(layout.lib), "--programs", str(layout.programs)]
    return [sys.executable, "-c", code, *places, *arguments]


def run_as_user(layout: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = user_command(layout, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_run_proves_the_allocator_and_keeps_the_exit_status(layout: Layout) -> None:
    done = run_as_user(layout, "run", "--with", "glibc", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7
    assert "malloc is glibc's" in done.stderr


def test_run_of_a_static_program_is_not_proved(layout: Layout, tmp_path: Path) -> None:
    source, program = tmp_path / "static.c", tmp_path / "static"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-static", str(source), "-o", str(program)], check=True)
    done = run_as_user(layout, "run", "--with", "floor", "--", str(program))
    assert done.returncode == 3
    assert "not proved" in done.stderr


OWN_MALLOC = """#include <stddef.h>
    static char room[1 << 20];
    static size_t used;
    void *malloc(size_t n) { void *p = room + used; used += (n + 15) & ~(size_t)15; return p; }
    void free(void *p) {}
    void *calloc(size_t n, size_t m) { return malloc(n * m); }
    void *realloc(void *p, size_t n) { return malloc(n); }
    int main(void) { return malloc(1) == 0; }
"""


def test_run_of_a_program_with_its_own_malloc_says_that_alone(
    layout: Layout, tmp_path: Path
) -> None:
    program = _program(tmp_path, OWN_MALLOC)
    done = run_as_user(layout, "run", "--with", "glibc", "--", str(program))
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert f"had malloc from {program}" in line


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_name_that_the_terminal_lacks_is_shown_all_the_same(
    encoding: str, layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = _checking_library()
    program = _program(tmp_path, "int main(void) { pause(); }").rename(tmp_path / "b\udcff\u20ac")
    with subprocess.Popen([program], env={"LD_PRELOAD": str(library)}) as process:
        try:
            monkeypatch.setenv("PYTHONIOENCODING", encoding)
            for _ in range(50):  # until it has begun
                done = run_as_user(layout, "status", str(process.pid))
                assert "Traceback" not in done.stderr
                if done.returncode == 0:
                    break
        finally:
            process.kill()
    assert str(process.pid) in done.stdout


def test_run_of_a_program_that_is_not_there_is_an_error(layout: Layout) -> None:
    done = run_as_user(layout, "run", "--with", "glibc", "--", "/proc/self/nothing")
    assert done.returncode == 1
    assert "cannot start" in done.stderr


def _checking_library() -> Path:
    library = find_root() / "build" / "release" / "libebbtide.so"
    if not library.is_file() or b"EBB_CHECK_REPORT" not in library.read_bytes():
        pytest.skip("`make lib` has not built a library that checks")
    return library


def _program(folder: Path, text: str) -> Path:
    source, program = folder / "program.c", folder / "program"
    source.write_text(text)
    subprocess.run(["gcc", "-O0", "-w", str(source), "-o", str(program)], check=True)
    return program


def test_run_checks_every_block(layout: Layout, tmp_path: Path) -> None:
    library = _checking_library()
    program = _program(
        tmp_path,
        "#include <stdlib.h>\n"
        "int main(void)\n{\n    void *volatile p = malloc(20), *volatile q = malloc(20);\n"
        "    for (int i = 0; i < 2; i++) { free(p); free(q); }\n    return 0;\n}\n",
    )
    checked = run_as_user(replace(layout, lib=library), "run", "--check", "--", str(program))
    assert checked.returncode == 128 + signal.SIGABRT
    assert "double free: " in checked.stderr
    assert "freed by thread" in checked.stderr
    refused = run_as_user(layout, "run", "--with", "glibc", "--check", "--", "true")
    assert refused.returncode == 2
    assert "are ebbtide's, not glibc's" in refused.stderr
    report = tmp_path / "reports.jsonl"
    logged = run_as_user(
        replace(layout, lib=library), "run", "--log", "--report", str(report), "--", str(program)
    )
    assert logged.returncode == 0
    kinds = [json.loads(line)["kind"] for line in report.read_text().splitlines()]
    assert kinds == ["double free", "double free"]


def test_run_says_at_once_that_no_report_can_be_written(layout: Layout, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    astray = tmp_path / "astray"
    astray.symlink_to(tmp_path / "nowhere" / "reports.jsonl")
    long = tmp_path / ("x" * 300)
    for place in (tmp_path, tmp_path / "nowhere" / "reports.jsonl", loop, astray, long):
        refused = run_as_user(
            layout, "run", "--check", "--report", str(place), "--", "echo", "started"
        )
        assert refused.returncode == 1
        assert refused.stdout == ""
        assert f"cannot write reports to {place}" in refused.stderr


def test_run_takes_reports_wherever_they_can_be_written(layout: Layout, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "reports.jsonl")
    for place in (link, Path("/dev/stderr"), Path("/dev/null")):
        done = run_as_user(
            replace(layout, lib=_checking_library()),
            *("run", "--check", "--report", str(place), "--", "sh", "-c", "echo $EBB_CHECK_REPORT"),
        )
        assert (done.returncode, done.stdout) == (0, f"{place}\n")


def test_run_guards_a_sample(layout: Layout, tmp_path: Path) -> None:
    environment = ("sh", "-c", "echo $EBB_CHECK")
    library = _checking_library()
    sampled = run_as_user(replace(layout, lib=library), "run", "--sample", "--", *environment)
    assert (sampled.returncode, sampled.stdout) == (0, "sample\n")
    report = tmp_path / "reports.jsonl"
    program = _program(
        tmp_path,
        "#include <stdlib.h>\n"
        "int main(void)\n{\n    char *volatile p = malloc(50005);\n    free(p);\n"
        "    p[5] = 1;\n    return 0;\n}\n",
    )
    done = run_as_user(
        replace(layout, lib=library), "run", "--sample", "--report", str(report), "--", str(program)
    )
    assert done.returncode == 128 + signal.SIGSEGV
    assert json.loads(report.read_text())["kind"] == "use after free"
    for pair in (("--sample", "--check"), ("--sample", "--log"), ("--check", "--log")):
        refused = run_as_user(layout, "run", *pair, "--", "true")
        assert refused.returncode == 2
        assert "are three ways: one of them" in refused.stderr


@pytest.mark.parametrize("asked", ["--help", "--version"])
def test_a_full_disk_is_told_of_what_no_verb_prints(asked: str) -> None:
    command = [sys.executable, "-c", "from ebbtide_lab.cli.main import main; main()", asked]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: cannot write: No space left on device\n"


def test_missing_library_and_unknown_names_are_clear_errors(layout: Layout) -> None:
    for arguments, message in (
        (["run", "--", "true"], "is missing; `make lib` builds it"),
        (["bench", "quick"], "is missing; `make lib` builds it"),
        (["bench", "nothing"], "no scenario or set is called 'nothing'"),
        (["bench", "--arms", "what"], "no allocator is called 'what'"),
        (["run", "--with", "what", "--", "true"], "no allocator is called 'what'"),
    ):
        result = invoke(layout, *arguments)
        assert result.exit_code == 1
        assert message in result.output.replace("\n", " ")


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
