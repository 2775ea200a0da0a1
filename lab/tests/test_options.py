# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb options: on processes that have Ebbtide, and on a library that tells nonsense."""

import json
import time
from pathlib import Path

import pytest
from made_up_board import board
from test_profile_live import LEAKS, under_ebbtide
from test_ps_trim import ebb, fault
from test_stalls import WAITS, build, started

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect import control
from ebbtide_lab.inspect.lifetimes import is_running
from ebbtide_lab.inspect.options import CHOICE, SIZE, Option


def facts(pid: int, *more: str) -> dict[str, dict[str, object]]:
    done = ebb("options", pid, *more, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["pid"] == pid
    return {each["name"]: each for each in found["options"]}


def test_each_is_told_with_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"EBB_CACHE": "1m", "EBB_THP": "never", "EBB_PROFILE": "512k,here.pb"}
    with under_ebbtide(LEAKS, tmp_path, monkeypatch, **settings) as pid:
        found, table = facts(pid), ebb("options", pid)
    assert (found["EBB_CACHE"]["value"], found["EBB_CACHE"]["source"]) == (1 << 20, "environment")
    assert (found["EBB_THP"]["text"], found["EBB_PROFILE"]["text"]) == ("never", "524288,here.pb")
    assert (found["EBB_CHECK"]["text"], found["EBB_CHECK"]["source"]) == ("off", "default")
    assert found["EBB_PURGE_DELAY_MS"]["unit"] == "ms"
    changes = [name for name, each in found.items() if each["changes"]]
    assert changes == ["EBB_PURGE_DELAY_MS", "EBB_GUARD"]
    assert "environment" in table.output
    assert all(name in table.output for name in found)


def test_one_is_changed_in_the_running_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        changed = facts(pid, "EBB_PURGE_DELAY_MS=125")["EBB_PURGE_DELAY_MS"]
        again = facts(pid)["EBB_PURGE_DELAY_MS"]
        table = ebb("options", pid).output
        for wrong in ("EBB_PURGE_DELAY_MS=3600001", "EBB_PURGE_DELAY_MS=", "EBB_PURGE_DELAY_MS=1x"):
            assert "is not a number from 0 to 3600000" in fault("options", pid, wrong)
        assert "what changes is EBB_PURGE_DELAY_MS, EBB_GUARD" in fault(
            "options", pid, "EBB_CACHE=1"
        )
        assert "has no option EBB_NONE" in fault("options", pid, "EBB_NONE=1")
        assert ebb("options", pid, "EBB_CACHE").exit_code == 2
        assert facts(pid)["EBB_PURGE_DELAY_MS"] == again
    assert (changed["value"], changed["source"]) == (125, "request")
    assert changed == again
    assert "changed since the start" in table


USES_A_FREED_ONE = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void)
{
    puts("ready");
    fflush(stdout);
    for (;; usleep(1000)) {
        static char *volatile blocks[300];
        for (int i = 0; i < 300; i++)
            blocks[i] = malloc(1001);
        for (int i = 0; i < 300; i++)
            free(blocks[i]);
        for (int i = 0; i < 300; i++)
            (void)*(volatile char *)blocks[i];
    }
}
"""


def test_a_use_after_free_is_found_in_a_process_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    with under_ebbtide(USES_A_FREED_ONE, tmp_path, monkeypatch, EBB_CHECK_REPORT=str(said)) as pid:
        assert is_running(pid)
        ebb("options", pid, "EBB_GUARD=1000")  # which it may not survive until it is read again
        end = time.monotonic() + 60
        while is_running(pid) and time.monotonic() < end:
            time.sleep(0.01)
    report = json.loads(said.read_text())
    assert report["kind"] == "use after free"
    assert {"found", "allocated", "freed"} <= report.keys()


ITS_FIRST_THREAD_ENDS = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *goes_on(void *first)
{
    pthread_join(*(pthread_t *)first, NULL);
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
int main(void)
{
    static pthread_t first, other;
    first = pthread_self();
    pthread_create(&other, NULL, goes_on, &first);
    pthread_exit(NULL);
}
"""


def test_what_is_none_is_a_clear_error(tmp_path: Path) -> None:
    with started(build(WAITS, tmp_path / "plain")) as pid:
        assert "has no Ebbtide in it" in fault("options", pid)
    source = "static const unsigned long table[7] = {1UL << 40};" + board(options="table") + WAITS
    with started(build(source, tmp_path / "nonsense")) as pid:
        assert "counts 1099511627776 options" in fault("options", pid)
    with started(build(board(options="(void *)8") + WAITS, tmp_path / "nowhere")) as pid:
        assert "what its Ebbtide says of itself leads nowhere" in fault("options", pid)
    ended = board(options="(void *)8") + ITS_FIRST_THREAD_ENDS
    with started(build(ended, tmp_path / "headless")) as pid:
        assert "what its Ebbtide says of itself leads nowhere" in fault("options", pid)


def test_a_change_that_is_not_answered_is_told_with_what_holds_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ANSWERS_WITHIN_S", 0.2)
    with under_ebbtide(WAITS, tmp_path, monkeypatch, EBB_GUARD="7") as pid:
        said = fault("options", pid, "EBB_GUARD=100")
        assert f"process {pid} does not answer" in said
        assert "; EBB_GUARD is 7" in said


def option(kind: int, value: int, words: tuple[str, ...] = ()) -> Option:
    return Option("EBB_X", value, "default", 0, 1 << 30, kind, True, words, "")


def test_values_are_written_and_read_as_one_sets_them() -> None:
    assert option(CHOICE, 1, ("off|0", "on|1")).text == "on"
    assert option(CHOICE, 7, ("off|0",)).text == "7"
    assert [option(SIZE, 0).parse(each) for each in ("0", "4k", "2M", "1g")] == [
        *(0, 4096, 2 << 20, 1 << 30)
    ]
    for wrong in ("", "k", "-1", "2g", "1.5k", "4kk", "\u0664"):
        with pytest.raises(LabError, match="is not a number"):
            option(SIZE, 0).parse(wrong)
