# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb profile PID: on programs that allocate, sleep, end, or have no Ebbtide."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from made_up_board import board
from test_stalls import NOTED, WAITS, build, started
from verbs import fault_of

from ebbtide_lab.base.layout import find_root
from ebbtide_lab.cli.main import main
from ebbtide_lab.inspect import control
from ebbtide_lab.inspect.heap_profile import HeapProfile
from ebbtide_lab.inspect.image import Process

MIB = 1 << 20
LEAKS = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define ALONE __attribute__((noinline))
ALONE void *leak_a_session(void) { void *volatile p = malloc(3000); return p; }
ALONE void *serve_a_request(void) { void *volatile p = malloc(900); free(p); return p; }
int main(void)
{
    puts("ready");
    fflush(stdout);
    for (;;) {
        for (int i = 0; i < 100; i++) {
            (void)serve_a_request();
        }
        (void)leak_a_session();
        usleep(100);
    }
}
"""


def profile(*arguments: object) -> Result:
    return CliRunner(env={"NO_COLOR": "1"}).invoke(main, ["profile", *map(str, arguments)])


def fault(*arguments: object) -> str:
    return fault_of(profile(*arguments))


@contextmanager
def under_ebbtide(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **environment: str
) -> Iterator[int]:
    library = find_root() / "build" / "release" / "libebbtide.so"
    if not library.is_file() or NOTED not in library.read_bytes():
        pytest.skip("`make lib` has not built a library with a profile")
    program = build(source, folder / "program", "-fno-builtin", "-fno-inline")
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        for name, value in environment.items():
            patch.setenv(name, value)
        running = started(program)
        pid = running.__enter__()
    try:
        yield pid
    finally:
        running.__exit__(None, None, None)


FIRST_ENDS = (
    "#include <pthread.h>\n"
    + LEAKS.replace("int main(void)\n{", "int work(void)\n{")
    + """
static pthread_t first;
static void *others(void *none)
{
    pthread_join(first, NULL);
    usleep(20000); // the kernel, too, is done with it
    work();
    return none;
}
int main(void)
{
    pthread_t other;
    first = pthread_self();
    pthread_create(&other, NULL, others, NULL);
    pthread_exit(NULL);
}
"""
)


def mean(pid: int) -> int:
    live = HeapProfile(pid)
    try:
        return live.mean()
    finally:
        live.close()


def test_who_leaks_and_who_allocates_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        in_use = profile(pid, "--seconds", 0.5, "--mean", 4096, "--json")
        between = mean(pid)
        allocated = profile(pid, "--seconds", 0.5, "--mean", 4096, "--json", "--view", "allocated")
    assert in_use.exit_code == 0, in_use.output
    leaks = json.loads(in_use.stdout)["stacks"]
    assert all("leak_a_session" in json.dumps(each) for each in leaks[:1])
    assert between == 0, "what was switched on is off again"
    totals = {
        name: sum(
            each["value"]
            for each in json.loads(allocated.stdout)["stacks"]
            if name in json.dumps(each)
        )
        for name in ("leak_a_session", "serve_a_request")
    }
    # 100 of 900 bytes for each of 3,000: within a third, as there are hundreds of samples.
    assert 20 < totals["serve_a_request"] / totals["leak_a_session"] < 45


LINKED = """
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define ALONE(name) __attribute__((noinline)) void *by_##name(void)
ALONE(malloc) { void *volatile p = malloc(3000); return p; }
ALONE(calloc) { void *volatile p = calloc(30, 100); return p; }
ALONE(realloc) { void *volatile p = realloc(malloc(100), 3000); return p; }
ALONE(reallocarray) { void *volatile p = reallocarray(NULL, 30, 100); return p; }
ALONE(memalign) { void *volatile p = memalign(256, 3000); return p; }
ALONE(aligned_alloc) { void *volatile p = aligned_alloc(64, 3008); return p; }
ALONE(posix_memalign) { void *p = NULL; return posix_memalign(&p, 64, 3000) == 0 ? p : NULL; }
ALONE(large) { void *volatile p = malloc(300000); return p; }
int main(void)
{
    static void *(*const ways[])(void) = {
        by_malloc, by_calloc, by_realloc, by_reallocarray, by_memalign, by_aligned_alloc,
        by_posix_memalign};
    for (int i = 0; i < 7000; i++)
        if (ways[i % 7]() == NULL)
            return 1;
    for (int i = 0; i < 10; i++)
        free(by_large());
    if (by_large() == NULL)
        return 1;
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
"""


def test_where_it_is_linked_in_its_own_calls_are_on_no_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = find_root() / "build" / "release" / "libebbtide.a"
    if not archive.is_file():
        pytest.skip("`make lib` has not built it")
    linked = ["-fno-builtin", "-g", str(archive), "-Wl,-u,malloc"]
    program = build(LINKED, tmp_path / "program", *linked)
    monkeypatch.setenv("EBB_PROFILE", f"2048,{tmp_path / 'unused.pb'}")
    with started(program) as pid:
        done = profile(pid, "--seconds", 0, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["functions"]
    ways = {each["name"] for each in found if each["flat"] > MIB}
    names = ("malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc")
    assert ways == {f"by_{each}" for each in (*names, "posix_memalign")}
    assert "by_large" in {each["name"] for each in found if each["flat"]}
    assert not [each["name"] for each in found if each["name"].startswith("ebb")]


def test_a_profile_that_was_on_stays_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = f"8192,{tmp_path / 'at-exit.pb'}"
    with under_ebbtide(LEAKS, tmp_path, monkeypatch, EBB_PROFILE=out) as pid:
        assert mean(pid) == 8192
        done = profile(pid, "--seconds", 0.3)
        assert mean(pid) == 8192
    assert done.exit_code == 0, done.output
    assert "one in 8.00 KiB" in done.output
    assert f"process {pid}" in done.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_watch_and_shows_it(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        timer = threading.Timer(1.5, os.kill, (os.getpid(), number))
        timer.start()
        began = time.monotonic()
        done = profile(pid, "--mean", 4096)
        assert time.monotonic() - began < 25
        assert mean(pid) == 0
    assert done.exit_code == 0, done.output
    assert "leak_a_session" in done.output


def test_what_was_asked_for_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        live = HeapProfile(pid)
        live.begin(4096, 3)
        live.close()
        assert mean(pid) == 4096
        end = time.monotonic() + 30
        while mean(pid) != 0 and time.monotonic() < end:
            time.sleep(0.05)
        assert mean(pid) == 0


def test_another_tool_keeps_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        live = HeapProfile(pid)
        live.begin(4096, 60)
        done = profile(pid, "--seconds", 0.2, "--mean", 1 << 20)
        assert live.mean() == 4096
        live.end()
        assert live.mean() == 0
        live.close()
    assert "one in 4.00 KiB" in done.output


def test_one_that_begins_at_the_same_time_keeps_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's turn comes just before that of the tool that looks first."""
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        other = HeapProfile(pid)
        turn = Process.turn

        def comes_second(process: Process, within_s: float) -> AbstractContextManager[None]:
            monkeypatch.setattr(Process, "turn", turn)
            other.begin(4096, 60)
            return turn(process, within_s)

        monkeypatch.setattr(Process, "turn", comes_second)
        done = profile(pid, "--seconds", 0.2)
        assert other.mean() == 4096
        other.end()
        assert other.mean() == 0
        other.close()
    assert done.exit_code == 0, done.output


def test_one_that_ends_early_leaves_others_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        first, second = HeapProfile(pid), HeapProfile(pid)
        first.begin(4096, 60)
        second.begin(4096, 600)
        second.end()
        assert first.mean() == 4096
        first.close()
        second.close()


def test_the_first_thread_may_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with under_ebbtide(FIRST_ENDS, tmp_path, monkeypatch) as pid:
        done = profile(pid, "--seconds", 0.3, "--mean", 4096)
    assert done.exit_code == 0, done.output
    assert "leak_a_session" in done.output


def test_what_ends_meanwhile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
        assert f"process {pid} has ended" in fault(pid, "--seconds", 2)


def test_what_sleeps_is_told_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ANSWERS_WITHIN_S", 0.2)
    with under_ebbtide(WAITS, tmp_path, monkeypatch) as pid:
        assert f"process {pid} does not answer" in fault(pid, "--seconds", 1)


def test_what_has_no_ebbtide_or_is_no_process_is_a_clear_error(tmp_path: Path) -> None:
    with started(build(WAITS, tmp_path / "program")) as pid:
        assert "has no Ebbtide in it" in fault(pid)
    assert "no process has the number 4194400" in fault(4194400)
    for given in ("nginx", "99999999999999999999"):
        told = f"there is no file {given}, and that is no PID"
        assert told in fault(given, "--seconds", 1)
        assert told in fault(given)


def test_a_process_without_a_sample_is_named_and_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        profile(pid, "--seconds", 0.5, "--mean", 4096)  # has stacks from now on
        told = fault(pid, "--seconds", 0, "--mean", 1 << 40, "--view", "allocated")
    assert f"process {pid} counts nothing for the view allocated" in told
    assert "(one sample is taken in 1.00 TiB allocated; a smaller --mean takes more)" in told


def test_what_a_process_cannot_do_is_told(tmp_path: Path) -> None:
    """It answers each question at once: there is no memory for it."""
    refuses = """
#include <pthread.h>
#include <stdint.h>
static unsigned long none[64];
static volatile struct { uint32_t asked, answered; int32_t result; uint32_t unused, what[6]; }
    control;
static void *answers(void *none)
{
    for (;;) {
        control.result = -12;
        __sync_synchronize();
        control.answered = control.asked;
    }
}
__attribute__((constructor)) static void begins(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, answers, NULL);
}
"""
    places = {"state": "none", "book": "none", "live": "none", "entry_bytes": "32"}
    program = refuses + board(control="(const void *)&control", **places) + WAITS
    with started(build(program, tmp_path / "refuses")) as pid:
        assert f"process {pid} cannot begin a profile: Cannot allocate memory" in fault(pid)


def test_another_version_is_told(tmp_path: Path) -> None:
    with started(build(board(version=99) + WAITS, tmp_path / "newer")) as pid:
        assert "is of another version" in fault(pid)
    with started(build(board(entry_bytes="48") + WAITS, tmp_path / "older")) as pid:
        assert "has a profile of another version" in fault(pid)


@pytest.mark.parametrize(("count", "fault_is"), [("0", "holds no sample"), ("~0UL", "no sense")])
def test_sums_that_make_no_sense_are_told(
    count: str, fault_is: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control.Control, "ask", lambda *_, **__: None)
    sums = f"""
static unsigned long none[64], book[4] = {{1, 1, 1, {count}}}, live[2];
static struct {{ unsigned round; unsigned long mean, until; }} state = {{1, 4096, 0}};
"""
    source = board(entry_bytes="32", state="&state", book="book", live="live", control="none")
    with started(build(sums + source + WAITS, tmp_path / "nonsense")) as pid:
        assert fault_is in fault(pid, "--seconds", "1")


def test_files_are_where_the_process_has_its_root(tmp_path: Path) -> None:
    live = HeapProfile.__new__(HeapProfile)
    live._process = SimpleNamespace(folder=str(tmp_path))  # type: ignore[assignment]
    root = tmp_path / "root"
    for above, file, inside in (
        ("/", "/bin/server", "/bin/server"),  # of a mount namespace as well
        ("/srv/jail", "/srv/jail/bin/server", "/bin/server"),
        ("/srv/jail", "/srv/jailer", "/srv/jailer"),
    ):
        root.unlink(missing_ok=True)
        root.symlink_to(above)
        assert live.path_of(file) == f"{root}{inside}"
    root.unlink()
    assert live.path_of("/bin/server") == f"{root}/bin/server"


def test_a_thread_without_a_name_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nameless = LEAKS.replace("main(void)\n{", 'main(void)\n{ prctl(PR_SET_NAME, "");')
    with under_ebbtide("#include <sys/prctl.h>\n" + nameless, tmp_path, monkeypatch) as pid:
        live = HeapProfile(pid)
        try:
            names = live.thread_name(pid), live.thread_name(2**22 + 1)
        finally:
            live.close()
    assert names == ("(no name)", "")


def test_how_long_is_for_processes_alone(tmp_path: Path) -> None:
    (tmp_path / "heap.pb").write_bytes(b"x")
    done = profile(tmp_path / "heap.pb", "--seconds", 3)
    assert done.exit_code == 2
    assert "--seconds and --mean are for a running process" in done.output


def test_bad_numbers_are_clear_errors() -> None:
    assert "nan is no number" in profile(os.getpid(), "--seconds", "nan").output
    assert "cannot read" in fault("9" * 5000)


@pytest.mark.parametrize("verb", ["profile", "diff"])
def test_the_end_of_the_process_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        killer = threading.Timer(1, os.kill, (pid, signal.SIGKILL))
        killer.start()
        done = CliRunner().invoke(main, [verb, str(pid), "--seconds", "80000"])
        killer.join()
    assert f"process {pid} has ended" in fault_of(done)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid, open("/dev/full", "wb") as full:
        command = [
            sys.executable,
            "-c",
            "from ebbtide_lab.cli.main import main; main()",
            "profile",
            str(pid),
            "--seconds",
            "0.2",
        ]
        done = subprocess.run(
            [*command, "--mean", "4096", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "Error: cannot write: No space left on device\n"


@pytest.mark.parametrize("asked", ["ps --json", "ps", "--version"])
def test_a_closed_output_is_told(asked: str) -> None:
    code = "from ebbtide_lab.cli.main import main; main()"
    command = f"exec {sys.executable} -c '{code}' {asked} >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: standard output is closed\n"
