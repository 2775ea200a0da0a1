# SPDX-License-Identifier: MIT OR Apache-2.0
"""The folder of a session: what it keeps, what it refuses, how it is resumed."""

import errno
import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import arm, sample, scenario
from rich.console import Console

from ebbtide_lab import SCHEMA
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import LabError, RunError
from ebbtide_lab.base.layout import find_root
from ebbtide_lab.measure.session import Execute, Session, plan
from ebbtide_lab.results import journal
from ebbtide_lab.results.journal import Journal, load
from ebbtide_lab.results.model import Histogram, Results, Sample
from ebbtide_lab.scenarios.model import Scenario, ScenarioSet

ARMS = [arm("a"), arm("b")]
RICH = Sample(
    {"cpu": 1.0}, {"rss_mb": [1.0, 2.0]}, {"ns": Histogram(1, 100, 3, [(4, 7), (9, 1)])}, 0.5
)


def measure(
    folder: Path, execute: Execute, arms: list[Allocator] = ARMS, each: Scenario | None = None
) -> Results:
    """A session that resumes what the folder holds."""
    group = ScenarioSet("set", "", [], [each or scenario(runs=3)])
    steps = list(plan([group], {"set": arms}, None))
    kept = Journal(folder, arms, resume=True)
    try:
        return Session(execute, kept, Console(quiet=True)).run(steps, None)
    finally:
        kept.close()


def interrupted_after(count: int) -> Execute:
    calls = iter(range(100))

    def execute(_: Scenario, __: Allocator) -> Sample:
        if next(calls) == count:
            raise KeyboardInterrupt
        return sample(1.0)

    return execute


def lines(folder: Path) -> list[str]:
    return (folder / "runs.jsonl").read_text().splitlines()


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    kept = Journal(tmp_path, [arm("a"), arm("gone", problem="not installed")])
    kept.write("set", scenario(), "a", RICH)
    kept.write("set", scenario(), "b", "ended by SIGSEGV")
    kept.close()
    results = load(tmp_path)
    assert results.rows[0].samples == {"a": [RICH]}
    assert results.rows[0].failures == {"b": "ended by SIGSEGV"}
    assert [each.problem for each in results.arms] == ["", "not installed"]
    assert results.facts["kernel"]


def test_resume_runs_what_is_left_and_nothing_twice(tmp_path: Path) -> None:
    assert measure(tmp_path, interrupted_after(3)).interrupted
    ran: list[str] = []

    def execute(_: Scenario, of: Allocator) -> Sample:
        ran.append(of.name)
        return sample(2.0)

    results = measure(tmp_path, execute)
    assert not results.interrupted
    assert sorted(ran) == ["a", "b", "b"] or sorted(ran) == ["a", "a", "b"]
    assert {name: len(of) for name, of in results.rows[0].samples.items()} == {"a": 3, "b": 3}
    assert len(lines(tmp_path)) == 6
    measure(tmp_path, lambda _, __: pytest.fail("nothing is left to run"))


def test_a_failure_of_an_earlier_session_is_not_tried_again(tmp_path: Path) -> None:
    def failing(_: Scenario, of: Allocator) -> Sample:
        if of.name == "b":
            raise RunError("ended by SIGSEGV")
        return sample(1.0)

    measure(tmp_path, failing)
    results = measure(tmp_path, lambda _, __: pytest.fail("nothing is left to run"))
    assert results.rows[0].failures == {"b": "ended by SIGSEGV"}


def test_resume_after_a_torn_last_line(tmp_path: Path) -> None:
    measure(tmp_path, interrupted_after(4))
    path = tmp_path / "runs.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert len(load(tmp_path).rows[0].samples["a"]) + len(load(tmp_path).rows[0].samples["b"]) == 3
    measure(tmp_path, lambda _, __: sample(1.0))
    assert len(lines(tmp_path)) == 6
    assert all(json.loads(line)["schema"] == SCHEMA for line in lines(tmp_path))


def test_resume_refuses_an_allocator_that_changed(tmp_path: Path) -> None:
    measure(tmp_path, interrupted_after(2))
    changed = [arm("a"), replace(arm("b"), version="2")]
    with pytest.raises(LabError, match="measured with b 1, now it is 2"):
        measure(tmp_path, interrupted_after(0), changed)


def test_resume_takes_a_peer_that_came_later_and_keeps_one_that_left(tmp_path: Path) -> None:
    measure(tmp_path, interrupted_after(2), [arm("a"), replace(arm("c"), version="", problem="-")])
    results = measure(tmp_path, lambda _, __: sample(1.0), [arm("c")])
    assert [each.name for each in results.arms] == ["a", "c"]
    assert [each.name for each in load(tmp_path).arms if not each.problem] == ["a", "c"]


def test_resume_refuses_a_scenario_that_changed(tmp_path: Path) -> None:
    measure(tmp_path, interrupted_after(2))
    other = replace(scenario(runs=3), command=["program", "--more"])
    with pytest.raises(LabError, match="its definition has changed"):
        measure(tmp_path, interrupted_after(0), each=other)
    measure(tmp_path, lambda _, __: sample(1.0), each=scenario(runs=5))
    assert len(lines(tmp_path)) == 10


def test_resume_refuses_another_machine_and_another_plant(tmp_path: Path) -> None:
    measure(tmp_path, interrupted_after(2))
    with pytest.raises(LabError, match="planted_percent 0, now it is 3"):
        Journal(tmp_path, ARMS, resume=True, planted_percent=3)
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "thp": "always, once"}))
    with pytest.raises(LabError, match="measured with thp always, once"):
        Journal(tmp_path, ARMS, resume=True)


def test_a_planted_slow_down_is_told_of_in_each_line(tmp_path: Path) -> None:
    kept = Journal(tmp_path, ARMS, planted_percent=3)
    kept.write("set", scenario(), "a", sample(1.0))
    kept.close()
    assert json.loads(lines(tmp_path)[0])["planted_percent"] == 3
    facts = json.loads((tmp_path / "machine.json").read_text())
    (tmp_path / "machine.json").write_text(json.dumps({**facts, "planted_percent": 0}))
    assert load(tmp_path).facts["planted_percent"] == 3


def test_runs_are_never_added_unasked(tmp_path: Path) -> None:
    measure(tmp_path, interrupted_after(2))
    with pytest.raises(LabError, match="already holds runs; --resume"):
        Journal(tmp_path, ARMS)


def test_paths_in_the_checkout_are_kept_without_it(tmp_path: Path) -> None:
    arms = [Allocator("own", find_root() / "build" / "lib.so"), arm("a")]
    measure(tmp_path, lambda each, of: RICH, arms)
    text = (tmp_path / journal.MACHINE).read_text()
    assert str(find_root()) not in text
    assert [each.path for each in load(tmp_path).arms] == [Path("build/lib.so"), arm("a").path]


def test_a_packed_folder_is_read_and_not_added_to(tmp_path: Path) -> None:
    measure(tmp_path, lambda each, of: RICH)
    before = load(tmp_path)
    runs = tmp_path / journal.RUNS
    (tmp_path / journal.PACKED).write_bytes(gzip.compress(runs.read_bytes()))
    runs.unlink()
    assert load(tmp_path).rows == before.rows
    with pytest.raises(LabError, match="is packed"):
        Journal(tmp_path, ARMS, resume=True)


def test_a_damaged_pack_is_refused(tmp_path: Path) -> None:
    measure(tmp_path, lambda each, of: RICH)
    (tmp_path / journal.RUNS).unlink()
    (tmp_path / journal.PACKED).write_bytes(b"not gzip")
    with pytest.raises(LabError, match="cannot unpack"):
        load(tmp_path)


def test_two_sessions_do_not_share_a_folder(tmp_path: Path) -> None:
    first = Journal(tmp_path, ARMS)
    with pytest.raises(LabError, match="another session is writing"):
        Journal(tmp_path, ARMS)
    first.close()


def test_a_full_disk_ends_the_session_and_keeps_the_finished_runs(tmp_path: Path) -> None:
    kept = Journal(tmp_path, ARMS)
    kept.write("set", scenario(), "a", sample(1.0))
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), kept._lines.fileno())
    with pytest.raises(LabError, match="No space left on device; finished runs are kept"):
        kept.write("set", scenario(), "b", sample(1.0))
    kept.close()
    assert list(load(tmp_path).rows[0].samples) == ["a"]


def test_a_full_disk_does_not_harm_the_machine_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(tmp_path, interrupted_after(2))
    write = Path.write_text

    def no_room(path: Path, text: str, **options: str) -> int:
        write(path, text[:10], **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", no_room)
    with pytest.raises(LabError, match="No space left"):
        Journal(tmp_path, ARMS, resume=True)
    assert load(tmp_path).rows


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda text: text.replace(f'"schema": {SCHEMA}', '"schema": 1'),
            "schema 1, this lab reads",
        ),
        (lambda _: "[]\n", "line 1: not a JSON object"),
        (lambda _: "{\n", "line 1: not JSON"),
        (lambda _: f'{{"schema": {SCHEMA}, "error": "x"}}\n', "line 1: lacks arm, scenario, set"),
        (lambda text: text.replace('"figures"', '"numbers"'), "line 1: lacks figures"),
        (lambda _: "", "holds no finished run"),
    ],
)
def test_runs_that_cannot_be_read_are_refused(
    tmp_path: Path, spoil: Callable[[str], str], message: str
) -> None:
    measure(tmp_path, interrupted_after(1))
    path = tmp_path / journal.RUNS
    path.write_text(spoil(path.read_text()))
    with pytest.raises(LabError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 99}', f"holds schema 99, this lab reads {SCHEMA}"),
        ("[1]", "not a JSON object"),
        ("half {", "not JSON"),
        (f'{{"schema": {SCHEMA}}}', "does not name the allocators"),
    ],
)
def test_a_card_that_cannot_be_read_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "machine.json").write_text(text)
    for open_it in (load, lambda folder: Journal(folder, ARMS)):
        with pytest.raises(LabError, match=message):
            open_it(tmp_path)


def test_a_folder_that_is_not_there_or_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"cannot read .*No such file"):
        load(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot write"):
        Journal(tmp_path / "file", ARMS)
