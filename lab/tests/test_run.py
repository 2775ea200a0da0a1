# SPDX-License-Identifier: MIT OR Apache-2.0
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import await_ready
from verbs import run_as_user, user_command

from ebbtide_lab.base.layout import Layout, find_root


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
    assert f"not proved that the allocator was loaded: {program} is static" in done.stderr


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


SIGNALLED = """trap 'echo int' INT; trap 'exit 9' TERM HUP USR1 USR2; echo ready
while :; do sleep 0.01; done
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_run_passes_on_a_signal_and_leaves_nothing_behind(
    name: str, layout: Layout, tmp_path: Path
) -> None:
    command = user_command(layout, "run", "--with", "glibc", "--", "sh", "-c", SIGNALLED)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as ebb:
        await_ready(ebb)
        assert [each.name[:4] for each in tmp_path.iterdir()] == ["ebb-"]
        ebb.send_signal(signal.SIGINT)
        assert ebb.stdout is not None
        assert ebb.stdout.readline() == "int\n"
        ebb.send_signal(signal.Signals[name])
        assert ebb.wait(timeout=30) == 9
    assert list(tmp_path.iterdir()) == []


def test_run_ends_as_a_command_that_a_signal_ends(layout: Layout) -> None:
    wait = "echo ready; exec sleep 60"
    command = user_command(layout, "run", "--with", "glibc", "--", "sh", "-c", wait)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ebb:
        await_ready(ebb)
        ebb.terminate()
        assert ebb.wait(timeout=30) == 128 + signal.SIGTERM


APART = """import os, signal, sys
os.setsid()
both = signal.SIGINT, signal.SIGUSR1
signal.pthread_sigmask(signal.SIG_BLOCK, both)
print("ready", flush=True)
while signal.sigwait(both) == signal.SIGINT:
    print("int", flush=True)
sys.exit(9)
"""


def test_run_does_not_pass_on_what_a_terminal_sends_to_its_programs(layout: Layout) -> None:
    apart = (sys.executable, "-c", APART)  # others have it twice then
    command = user_command(layout, "run", "--with", "glibc", "--", *apart)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        seen = b""
        while b"ready" not in seen:
            seen += screen.read(1)
        os.write(terminal, b"\x03")
        while b"^C" not in seen:
            seen += screen.read(1)
        os.kill(pid, signal.SIGUSR1)
        with suppress(OSError):  # the terminal is gone with its last program
            while more := screen.read(1000):
                seen += more
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert b"int" not in seen


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
