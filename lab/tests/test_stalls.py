# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb doctor --pid: on memory made of bytes, on a made-up library, and on Ebbtide."""

import json
import os
import re
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import await_ready
from made_up_board import board

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import find_root
from ebbtide_lab.cli.main import main
from ebbtide_lab.inspect import stalls
from ebbtide_lab.inspect.board import Reclaim
from ebbtide_lab.inspect.heap import Subject
from ebbtide_lab.inspect.image import Process, Torn
from ebbtide_lab.inspect.stalls import Stalls

NOW, HEAD, CHANGED, WAITING = 0x2000, 0x2008, 0x2010, 0x2018
FIRST = 0x3000
ITS = Reclaim(NOW, HEAD, CHANGED, WAITING, 2)
NOTED = b"Ebbtide\0"
NOW_MS = 50_000


class Bytes:
    """Memory of 8-byte words; `after` runs before each read, to change it meanwhile."""

    def __init__(self, words: dict[int, int]) -> None:
        self.words = words
        self.reads = 0

    def read(self, address: int, size: int) -> bytes:
        self.reads += 1
        try:
            words = [self.words[at] for at in range(address, address + size, 8)]
        except KeyError as error:
            raise Torn from error
        return struct.pack(f"<{len(words)}Q", *words)


def memory(
    *states: int, epoch: int = 10, changed_ms: int = 48_000, mark: int = 0, thread: int = 100
) -> Bytes:
    """A clock in this epoch, with a participant for each state; threads count from this one."""
    words = {
        NOW: epoch << 16 | mark,
        CHANGED: changed_ms,
        WAITING: 8192,
        WAITING + 64: -4096 % 2**64,
    }
    places = [FIRST + 64 * at for at in range(len(states))]
    words[HEAD] = places[0] if places else 0
    for at, state in enumerate(states):
        following = places[at + 1] if at + 1 < len(places) else 0
        unused_and_thread = (thread + at) << 32
        fields = (state, NOW, unused_and_thread, following)
        words |= {places[at] + 8 * number: each for number, each in enumerate(fields)}
    return Bytes(words)


def read(found: Bytes) -> Stalls:
    return stalls.read_stalls(found, ITS, NOW_MS, lambda thread: f"worker-{thread}")


def test_the_oldest_pin_comes_first_with_its_thread_and_age() -> None:
    found = read(memory(10 << 16 | 1, 7 << 16, 9 << 16 | 0x8003))
    assert (found.epoch, found.waiting_bytes, found.participants) == (10, 4096, 3)
    oldest, newest = found.pins
    assert (oldest.thread, oldest.name, oldest.behind) == (102, "worker-102", 1)
    assert (oldest.depth, oldest.age_ms) == (3, 2_000)
    assert (newest.thread, newest.behind, newest.age_ms) == (100, 0, 0)
    assert found.oldest_ms == 2_000


@pytest.mark.parametrize("mark", [0, 1])
def test_the_clock_of_either_kind_of_collector_is_read(mark: int) -> None:
    found = read(memory(10 << 16 | 1, mark=mark))
    assert (found.epoch, found.pins[0].behind) == (10, 0)


@pytest.mark.parametrize("state", [0, 9 << 16, 2 << 16, 0x8000, 2 << 16 | 0x8000])
def test_who_is_not_pinned_does_not_stall_however_old_its_epoch(state: int) -> None:
    found = read(memory(state, 10 << 16))
    assert (found.participants, found.pins, found.oldest_ms) == (2, [], 0)


@pytest.mark.parametrize(("state", "participants"), [(9 << 16, 1), (9 << 16 | 1, 2)])
def test_what_threads_without_a_heap_share_counts_while_it_is_pinned(
    state: int, participants: int
) -> None:
    found = read(memory(state, 10 << 16, thread=0))
    assert (found.participants, len(found.pins)) == (participants, participants - 1)


def test_the_deepest_pin_is_told_whole() -> None:
    (pin,) = read(memory(9 << 16 | 0xFFFE)).pins
    assert (pin.depth, pin.behind) == (0x7FFE, 1)


def test_a_clock_that_never_moved_tells_no_age() -> None:
    assert read(memory(9 << 16 | 1, changed_ms=0)).oldest_ms == 0
    assert read(memory()).oldest_ms == 0


def test_a_clock_that_moved_meanwhile_makes_no_pin_old() -> None:
    assert read(memory(9 << 16 | 1, changed_ms=NOW_MS + 5)).oldest_ms == 0


def test_a_list_that_changes_is_read_again() -> None:
    class Moving(Bytes):
        def read(self, address: int, size: int) -> bytes:
            if self.reads == 2:  # a second thread comes while the first one is read
                self.words[HEAD] = FIRST + 64
            return super().read(address, size)

    whole = memory(0, 9 << 16 | 1)
    whole.words[FIRST + 64 + 24] = FIRST
    whole.words[FIRST + 24] = 0
    found = read(Moving(whole.words))
    assert (found.participants, len(found.pins)) == (2, 1)


@pytest.mark.parametrize("change", [{FIRST + 8: 0x7777}, {FIRST + 24: FIRST}, {HEAD: 0x9999}])
def test_a_list_that_makes_no_sense_is_an_error(
    change: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "ATTEMPTS", 2)
    monkeypatch.setattr("ebbtide_lab.inspect.board.MOST_PARTICIPANTS", 100)
    found = memory(0)
    found.words |= change
    with pytest.raises(LabError, match="too fast to be read"):
        read(found)


# --- real processes -----------------------------------------------------------------

# A library with a clock in epoch 5 since 3 s after the machine's start, and one participant that
# was pinned in epoch 4 by the thread that loaded it.
MADE_UP = """
#include <stdint.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>
struct participant { uint64_t state; const uint64_t *now; uint32_t unused, thread; void *next; };
static uint64_t now = 5 << 16, changed_ms = 3000;
static size_t waiting = 12345;
static struct participant one = {STATE, &now, 0, 0, NULL}, *first = &one;
__attribute__((constructor)) static void start(void) { one.thread = (uint32_t)syscall(SYS_gettid); }
"""
MADE_UP += board(
    now="&now", first="&first", changed_ms="&changed_ms", waiting="&waiting", parts="1"
)
WAITS = """
#include <stdio.h>
#include <unistd.h>
int main(void) { puts("ready"); fflush(stdout); return (int)pause(); }
"""
PINS = """
#include <ebbtide/reclaim.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *stall(void *unused)
{
    pthread_setname_np(pthread_self(), "sleeper");
    ebb_pin();
    for (;;)
        pause();
    return unused;
}
static pthread_barrier_t pinned;
static void *idle(void *unused)
{
    ebb_pin();
    ebb_unpin();
    pthread_barrier_wait(&pinned);
    pause();
    return unused;
}
int main(void)
{
    pthread_t thread;
    pthread_barrier_init(&pinned, NULL, 2);
    pthread_create(&thread, NULL, idle, NULL);
    pthread_barrier_wait(&pinned);
    pthread_create(&thread, NULL, stall, NULL);
    struct ebb_reclaim_stats found = {0};
    while (found.pinned == 0)
        ebb_reclaim_stats_get(NULL, &found);
    for (int i = 0; i < 100000; i++)
        ebb_retire(ebb_malloc(64));
    for (int i = 0; i < 100; i++)
        ebb_retire(ebb_malloc(1024));
    puts("ready");
    fflush(stdout);
    return (int)pause();
}
"""


def build(source: str, target: Path, *flags: str) -> Path:
    code = target.with_suffix(".c")
    code.write_text(source, encoding="utf-8")
    command = [
        "gcc",
        "-std=gnu17",
        "-D_GNU_SOURCE",
        "-O1",
        "-pthread",
        str(code),
        "-o",
        str(target),
        *flags,
    ]
    subprocess.run(command, check=True, timeout=60)
    return target


@contextmanager
def started(program: Path) -> Iterator[int]:
    with subprocess.Popen([str(program)], stdout=subprocess.PIPE, text=True) as child:
        try:
            yield await_ready(child)
        finally:
            child.kill()


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def made_up(folder: Path, *flags: str, state: str = "4 << 16 | 1") -> Path:
    shared = ["-shared", "-fPIC", "-fvisibility=hidden", f"-DSTATE={state}"]
    library = build(MADE_UP, folder / "libebbtide.so.0", *shared)
    linked = ["-Wl,--no-as-needed", str(library), *flags]
    return build(WAITS, folder / "program", *linked)


CIRCLE = """
static uint64_t now = 5 << 16, none[8];
static struct { uint64_t state; const uint64_t *now; uint32_t unused, thread; void *next; }
    one = {1, &now, 0, 1, &one};
static void *first = &one;
"""


def test_a_list_without_end_is_given_up(tmp_path: Path) -> None:
    source = board(now="&now", first="&first", changed_ms="none", waiting="none", parts="1")
    with started(build("#include <stdint.h>\n" + CIRCLE + source + WAITS, tmp_path / "o")) as pid:
        done = doctor("--pid", str(pid))
        assert "too fast to be read" in done.output
    with started(build(board(parts="1UL << 40") + WAITS, tmp_path / "many")) as pid:
        assert "makes no sense" in doctor("--pid", str(pid)).output


@pytest.mark.parametrize("flags", [[], ["-no-pie"], ["-Wl,-z,noseparate-code"]])
def test_a_stalled_process_is_told_and_fails(tmp_path: Path, flags: list[str]) -> None:
    with started(made_up(tmp_path, *flags)) as pid:
        done = doctor("--pid", str(pid))
        asked = doctor("--pid", str(pid), "--json")
    assert done.exit_code == 1, done.output
    assert f"Process {pid}: epoch 5, at least 12345 bytes wait" in done.output
    assert f"thread {pid} has been inside a pin" in done.output.replace("\n", " ")
    (pin,) = json.loads(asked.output)["pins"]
    assert (pin["thread"], pin["name"], pin["behind"]) == (pid, "program", 1)


def test_a_patient_user_and_a_process_without_pins_pass(tmp_path: Path) -> None:
    with started(made_up(tmp_path)) as pid:
        assert doctor("--pid", str(pid), "--stall-ms", "999999999").exit_code == 0
    with started(made_up(tmp_path, state="0")) as pid:
        done = doctor("--pid", str(pid))
    assert done.exit_code == 0
    assert "Nobody stalls" in done.output


@pytest.mark.parametrize("flags", [[], ["-s", "-static"], ["-s", "-static-pie"]])
def test_a_program_with_its_own_copy_is_found_without_symbols(
    tmp_path: Path, flags: list[str]
) -> None:
    source = f"#define STATE (4 << 16 | 1)\n{MADE_UP}{WAITS}"
    with started(build(source, tmp_path / "linked", "-Wl,--gc-sections", *flags)) as pid:
        assert doctor("--pid", str(pid)).exit_code == 1


def test_what_cannot_be_examined_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(build(WAITS, tmp_path / "plain")) as pid:
        done = doctor("--pid", str(pid))
    assert done.exit_code == 1
    assert f"process {pid} has no Ebbtide in it" in done.output
    assert "no process has the number" in doctor("--pid", str(2**22 + 1)).output
    assert "Invalid value for '--pid'" in doctor("--pid", "0").output

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "no")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert "not allowed to read the memory" in doctor("--pid", "1").output


def test_a_library_that_was_replaced_is_read_all_the_same(tmp_path: Path) -> None:
    with started(made_up(tmp_path)) as pid:
        (tmp_path / "libebbtide.so.0").unlink()
        done = doctor("--pid", str(pid))
    assert f"Process {pid}: epoch 5, at least 12345 bytes wait" in done.output


def test_memory_that_is_not_there_is_torn() -> None:
    process = Process(os.getpid())
    try:
        for address in (0, 8, 2**63, 2**64 - 8):
            with pytest.raises(Torn):
                process.read(address, 8)
    finally:
        process.close()


def build_pins(folder: Path) -> Path:
    root = find_root()
    library = root / "build" / "release" / "libebbtide.so"
    if not library.is_file() or NOTED not in library.read_bytes():
        pytest.skip("`make lib` has not built a library with reclamation")
    places = [f"-I{root / 'include'}", str(library), f"-Wl,-rpath,{library.parent}"]
    return build(PINS, folder / "pins", *places)


def test_what_a_thread_has_retired_last_waits_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = 100_000 * 64 + 100 * 1024
    metrics = tmp_path / "metrics"
    monkeypatch.setenv("EBB_METRICS_FILE", str(metrics))
    monkeypatch.setenv("EBB_METRICS_MS", "1000")
    with started(build_pins(tmp_path)) as pid, closing(Subject(pid)) as subject:
        subject.look(with_threads=False)
        assert subject.stalls().waiting_bytes == expected
        limit = time.monotonic() + 30
        line = f'ebbtide_retired_bytes{{pid="{pid}"'
        while not re.search(rf"\n{re.escape(line)}[^\n]*}} {expected}\n", metrics.read_text()):
            assert time.monotonic() < limit, metrics.read_text()
            time.sleep(0.1)


def test_a_thread_in_another_namespace_has_its_name(tmp_path: Path) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespace of processes may be made here")
    command = [*unshare, str(build_pins(tmp_path))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            above = await_ready(parent)
            pid = int(Path(f"/proc/{above}/task/{above}/children").read_text())
            found = stalls.examine(pid)
            with closing(Subject(pid)) as subject:
                named = {each.name for each in subject.look().heaps}
        finally:
            parent.kill()
    assert [(pin.name, pin.thread < 10) for pin in found.pins] == [("sleeper", True)]
    assert {"pins", "sleeper"} <= named


def test_ebbtide_itself_tells_who_stalls(tmp_path: Path) -> None:
    with started(build_pins(tmp_path)) as pid:
        found = stalls.examine(pid)
    (pin,) = found.pins
    assert (pin.name, pin.depth, pin.behind) == ("sleeper", 1, 1)
    assert found.participants >= 2
    assert found.waiting_bytes > 0
