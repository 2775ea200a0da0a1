# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where resident memory is: the accounts sum to it, in `ebb status` as well."""

import io
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from heap_data import label
from rich.console import Console
from test_profile_live import LEAKS, under_ebbtide
from test_stalls import WAITS
from top_data import any_heap, heap

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.cli import status as status_verb
from ebbtide_lab.cli.main import main
from ebbtide_lab.inspect import control
from ebbtide_lab.inspect.heap import Heap
from ebbtide_lab.inspect.labels import SHOWN
from ebbtide_lab.inspect.lifetimes import is_running
from ebbtide_lab.show.status import Look, human_bytes, print_status, share
from ebbtide_lab.show.waterfall import LARGEST, accounts, most_idle


def status(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(main, ["status", *map(str, arguments)])


def by_key(found: Heap) -> dict[str, int]:
    return {each.key: each.bytes for each in accounts(found)}


def test_the_accounts_of_any_heap_sum_to_its_resident_memory() -> None:
    for seed in range(500):
        found = any_heap(seed)
        each = accounts(found)
        assert sum(one.bytes for one in each) == found.resident_bytes
        assert all(one.bytes >= 0 for one in each[:-1])
        told = "not from this allocator" if each[-1].bytes >= 0 else "allocated and not touched"
        assert each[-1].name == told
        assert len({one.key for one in each}) == len(each) == 8


def test_what_a_thread_keeps_of_large_objects_counts_once() -> None:
    plain = heap()
    more = plain.totals.span_bytes
    kept = replace(plain.totals, cached_bytes=plain.totals.cached_bytes + more)
    assert by_key(replace(plain, totals=kept)) == by_key(plain)
    assert by_key(plain)["magazine_bytes"] == plain.totals.cached_bytes


def test_the_block_sizes_with_the_most_free_memory_come_first() -> None:
    for seed in range(50):
        idle = [each.idle_bytes for each in most_idle(any_heap(seed))]
        assert idle == sorted(idle, reverse=True)
        assert len(idle) <= LARGEST
        assert all(idle)


def test_amounts_below_zero_are_written_like_others() -> None:
    assert [human_bytes(each) for each in (-1, -1023, -1536, -(3 << 30))] == [
        *("-1 B", "-1023 B", "-1.50 KiB", "-3.00 GiB")
    ]


def test_status_shows_the_accounts_above_the_labels() -> None:
    text = io.StringIO()
    found = heap()
    print_status(Look(found.status, found, ""), Console(width=100, file=text))
    shown = text.getvalue()
    for each in accounts(found):
        assert f"{each.name} " in shown
        assert human_bytes(each.bytes) in shown
    assert shown.index("Where resident memory is") < shown.index("with the most free memory")
    assert shown.index("with the most free memory") < shown.index("Who holds memory")


def test_a_running_process_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        text = status(pid)
        facts = json.loads(status(pid, "--json").stdout)
    assert text.exit_code == 0, text.output
    assert "Where resident memory is" in text.output
    assert "No region or domain has been used." in text.output
    assert sum(facts["accounts"].values()) == facts["resident_bytes"]
    assert facts["totals"]["live_bytes"] == facts["accounts"]["live_bytes"]
    assert {each["block_bytes"] for each in facts["classes"]} >= {3072}
    assert facts["threads"] == 1
    assert facts["labels"] == []
    assert "not_asked" not in facts


def test_one_that_does_not_answer_is_told_of_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ANSWERS_WITHIN_S", 0.1)
    with under_ebbtide(WAITS, tmp_path, monkeypatch) as pid:
        text = status(pid)
        facts = json.loads(status(pid, "--json").stdout)
    assert text.exit_code == 0, text.output
    told = " ".join(text.output.split())
    assert f"Its heap is not shown: process {pid} does not answer" in told
    assert "No region or domain has been used." in text.output
    assert "does not answer" in facts["not_asked"]
    assert "accounts" not in facts


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 160])
def test_numbers_are_whole_at_any_width(width: int) -> None:
    text = io.StringIO()
    name = "a-name-of-thirty-two-characters-"
    found = replace(heap(), labels=[label(name, 1023 << 20, is_domain=True, opened=10**9)])
    print_status(Look(found.status, found, ""), Console(width=width, file=text))
    shown = text.getvalue()
    for each in accounts(found):
        assert human_bytes(each.bytes) in shown
    for each in most_idle(found):
        assert human_bytes(each.block_bytes) in shown
        assert share(each.idle_bytes, each.idle_bytes + each.live_bytes) in shown
    assert "1023 MiB" in shown
    assert shown.count("…") == (width < 160), "the name alone is cut"
    assert ("wider: " in shown) == (width < 160)
    assert ("1,000,000,000" in shown) == (width == 160)


class Clock:
    """Goes on while somebody sleeps by it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_one_has_five_seconds_to_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(control, "time", clock)
    with under_ebbtide(WAITS, tmp_path, monkeypatch) as pid:
        assert "does not answer" in json.loads(status(pid, "--json").stdout)["not_asked"]
    assert 5 <= clock.now < 6


def test_one_that_may_not_be_written_is_told_of_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int, most_labels: int | None) -> None:
        raise LabError(f"not allowed to write the memory of process {pid}")

    monkeypatch.setattr(status_verb, "Subject", refused)
    with under_ebbtide(WAITS, tmp_path, monkeypatch) as pid:
        done = status(pid)
    assert done.exit_code == 0, done.output
    assert "not allowed to write the memory" in " ".join(done.output.split())


def test_a_watch_opens_the_process_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    class Once:
        def __init__(self, pid: int, most_labels: int | None) -> None:
            self.pid, self.looks = pid, 0
            assert most_labels == SHOWN
            opened.append(pid)

        def look(self) -> Heap:
            self.looks += 1
            if self.looks <= 3:
                return heap(self.looks, pid=self.pid)
            os.kill(self.pid, signal.SIGKILL)
            while is_running(self.pid):
                time.sleep(0.01)
            raise LabError("it has ended")

        def close(self) -> None:
            opened.append(0)

    monkeypatch.setattr(status_verb, "Subject", Once)
    with under_ebbtide(WAITS, tmp_path, monkeypatch) as pid:
        done = status(pid, "--watch", 0.1)
    assert done.exit_code == 0, done.output
    assert opened == [pid, 0]
    assert done.output.count("Where resident memory is") == 3
    assert done.output.endswith(f"Process {pid} has ended.\n")
