# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb ps and ebb trim: on processes that have Ebbtide, and on others."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from test_profile_live import LEAKS, under_ebbtide
from test_stalls import WAITS, build, started
from verbs import fault_of

from ebbtide_lab.base.layout import find_root
from ebbtide_lab.cli.main import main
from ebbtide_lab.inspect import control
from ebbtide_lab.inspect.heap import examine
from ebbtide_lab.inspect.image import Process

KEEPS_FREE = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *sleeps(void *none) { for (;;) pause(); return none; }
int main(void)
{
    static void *blocks[20000];
    pthread_t thread;
    pthread_create(&thread, NULL, sleeps, NULL);
    for (int i = 0; i < 20000; i++) {
        blocks[i] = malloc(2000);
        memset(blocks[i], 1, 2000);
    }
    for (int i = 0; i < 20000; i++) {
        free(blocks[i]);
    }
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"""


def ebb(*arguments: object) -> Result:
    return CliRunner(env={"NO_COLOR": "1"}).invoke(main, [*map(str, arguments)])


def fault(*arguments: object) -> str:
    return fault_of(ebb(*arguments))


def test_a_process_with_ebbtide_is_listed_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid,
        started(build(WAITS, tmp_path / "other")) as other,
    ):
        listed = json.loads(ebb("ps", "--json").stdout)["found"]
        table = ebb("ps")
    mine = next(each for each in listed if each["pid"] == pid)
    assert mine["name"] == "program"
    assert mine["library"].startswith(str(find_root() / "build" / "release" / "libebbtide.so"))
    assert mine["resident_bytes"] > 0
    assert not {other, os.getpid()} & {each["pid"] for each in listed}
    sizes = [each["resident_bytes"] for each in listed]
    assert sizes == sorted(sizes, reverse=True)
    assert table.exit_code == 0
    assert f"{pid} " in table.output


def test_one_that_it_is_linked_into_is_listed(tmp_path: Path) -> None:
    archive = find_root() / "build" / "release" / "libebbtide.a"
    if not archive.is_file():
        pytest.skip("`make lib` has not built the archive")
    program = build(LEAKS, tmp_path / "linked", "-fno-builtin", "-static", str(archive))
    with started(program) as pid:
        listed = json.loads(ebb("ps", "--json").stdout)["found"]
    mine = next(each for each in listed if each["pid"] == pid)
    assert mine["library"] == str(program)


def test_what_is_free_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with under_ebbtide(KEEPS_FREE, tmp_path, monkeypatch, EBB_PURGE_DELAY_MS="3600000") as pid:
        done = json.loads(ebb("trim", pid, "--json").stdout)
        again = ebb("trim", pid)
    assert done["pid"] == pid
    assert done["after_bytes"] < done["before_bytes"] - (20 << 20)
    assert again.output.startswith(f"Process {pid}: ")


def test_tools_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "TURN_WITHIN_S", 0.1)
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        other = Process(pid, writes=True)
        try:
            with other.turn(0):
                assert f"other tools ask process {pid} all the time" in fault("trim", pid)
            assert ebb("trim", pid).exit_code == 0
        finally:
            other.close()


def test_many_tools_at_once_are_all_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(_: int) -> int:
        return examine(pid).pid

    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid, ThreadPoolExecutor(4) as tools:
        assert list(tools.map(look, range(40))) == [pid] * 40


def test_what_does_not_answer_or_has_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ANSWERS_WITHIN_S", 0.2)
    with under_ebbtide(WAITS, tmp_path, monkeypatch) as pid:
        assert f"process {pid} does not answer" in fault("trim", pid)
    with started(build(WAITS, tmp_path / "plain")) as pid:
        assert "has no Ebbtide in it" in fault("trim", pid)
    assert "no process has the number 4194400" in fault("trim", 4194400)


def test_a_process_without_memory_is_told_from_none() -> None:
    ended = os.fork()
    if ended == 0:
        os._exit(0)
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    try:
        assert "has ended; its parent has not waited for it yet" in fault("trim", ended)
    finally:
        os.waitpid(ended, 0)
    assert "no process has the number" in fault("trim", ended)


def is_the_kernels(pid: int) -> bool:
    comm = Path(f"/proc/{pid}/comm")
    return comm.exists() and comm.read_text() == "kthreadd\n"


@pytest.mark.skipif(not is_the_kernels(2), reason="the kernel's threads are not seen from here")
def test_a_thread_of_the_kernel_is_told() -> None:
    assert "process 2 has no memory of its own: it is the kernel's" in fault("trim", 2)
