# SPDX-License-Identifier: MIT OR Apache-2.0
import io
import json
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import arm, sample, scenario
from rich.console import Console

from ebbtide_lab import SCHEMA
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import NotRunError, RunError
from ebbtide_lab.measure import progress
from ebbtide_lab.measure.session import Execute, Session, plan
from ebbtide_lab.results.journal import Journal, load
from ebbtide_lab.results.model import Results, Sample
from ebbtide_lab.scenarios.model import Scenario, ScenarioSet

ARMS = [arm("a"), arm("b"), arm("c")]


def group(*rows: Scenario) -> ScenarioSet:
    return ScenarioSet("set", "", [], list(rows))


def run(
    folder: Path, execute: Execute, budget_s: float | None = None, rounds: int = 2
) -> tuple[Results, list[dict[str, object]]]:
    steps = list(plan([group(scenario(runs=rounds))], {"set": ARMS}, None))
    journal = Journal(folder, ARMS)
    console = Console(quiet=True)
    results = Session(execute, journal, console).run(steps, budget_s)
    journal.close()
    lines = (folder / "runs.jsonl").read_text().splitlines()
    return results, [json.loads(line) for line in lines]


@pytest.mark.parametrize("count", range(2, 9))
def test_each_arm_comes_behind_each_other_equally_often(count: int) -> None:
    rounds = count if count % 2 == 0 else 2 * count
    arms = [arm(name) for name in "abcdefgh"[:count]]
    steps = list(plan([group(scenario(runs=rounds))], {"set": arms}, None))
    orders = [
        "".join(step.arm.name for step in steps if step.round == number) for number in range(rounds)
    ]
    pairs = Counter(pair for order in orders for pair in pairwise(order))
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert set(Counter(order[0] for order in orders).values()) == {rounds // count}
    assert len(pairs) == count * (count - 1)
    assert set(pairs.values()) == {rounds // count}


def test_runs_of_the_caller_win_over_the_scenario() -> None:
    assert len(list(plan([group(scenario(runs=9))], {"set": ARMS}, 2))) == 6


def test_missing_arms_and_unasked_floor_are_left_out() -> None:
    arms = [arm("a"), arm("b", problem="missing"), arm("floor")]
    plain = {step.arm.name for step in plan([group(scenario())], {"set": arms}, None)}
    floored = {step.arm.name for step in plan([group(scenario(floor=True))], {"set": arms}, None)}
    assert plain == {"a"}
    assert floored == {"a", "floor"}


def test_every_finished_run_is_a_line(tmp_path: Path) -> None:
    results, lines = run(tmp_path, lambda each, of: sample(1.0))
    assert len(lines) == 6
    assert lines[0]["schema"] == SCHEMA
    assert lines[0]["figures"] == sample(1.0).figures
    assert results.rows[0].costs("a") == [1.0, 1.0]
    machine = json.loads((tmp_path / "machine.json").read_text())
    assert {"kernel", "cpu", "thp", "overcommit", "glibc", "allocators"} <= set(machine)


def test_a_failing_arm_is_kept_and_not_tried_again(tmp_path: Path) -> None:
    tried: list[str] = []

    def execute(_: Scenario, of: Allocator) -> Sample:
        tried.append(of.name)
        if of.name == "b":
            raise RunError("ended by SIGSEGV")
        return sample(1.0)

    results, lines = run(tmp_path, execute)
    assert tried.count("b") == 1
    assert results.rows[0].failures == {"b": "ended by SIGSEGV"}
    assert "ended by SIGSEGV" in [line.get("error") for line in lines]


def test_a_refusal_is_kept_as_such_and_not_tried_again(tmp_path: Path) -> None:
    tried: list[str] = []

    def execute(_: Scenario, of: Allocator) -> Sample:
        tried.append(of.name)
        if of.name == "b":
            raise NotRunError("ck has no hazard pointers")
        return sample(1.0)

    results, lines = run(tmp_path, execute)
    assert tried.count("b") == 1
    assert results.rows[0].refusals == {"b": "ck has no hazard pointers"}
    assert results.rows[0].failures == {}
    assert [line["not_run"] for line in lines if "not_run" in line] == ["ck has no hazard pointers"]
    assert load(tmp_path).rows[0].not_run == {"b": "ck has no hazard pointers"}
    steps = list(plan([group(scenario(runs=2))], {"set": ARMS}, None))
    tried.clear()
    journal = Journal(tmp_path, ARMS, resume=True)
    Session(execute, journal, Console(quiet=True)).run(steps, None)
    journal.close()
    assert tried == []


def test_rows_of_schemes_are_for_arms_with_one_and_the_others_for_allocators() -> None:
    ebbtide = replace(arm("ebbtide"), scheme="ebbtide")
    fenced = replace(arm("ebbtide-fenced"), scheme="ebbtide-fenced")
    over = replace(arm("ck/glibc"), scheme="ck")
    arms = {"set": [ebbtide, fenced, over, arm("glibc")]}
    schemes = replace(scenario("swap"), kind="scheme")
    assert {each.arm.name for each in plan([group(schemes)], arms, 1)} == {
        "ebbtide",
        "ebbtide-fenced",
        "ck/glibc",
    }
    assert {each.arm.name for each in plan([group(scenario())], arms, 1)} == {"ebbtide", "glibc"}
    some = replace(schemes, arms=["ck/glibc", "ebbtide"])
    assert {each.arm.name for each in plan([group(some)], arms, 1)} == {"ebbtide", "ck/glibc"}


def test_interrupt_keeps_what_is_finished(tmp_path: Path) -> None:
    calls = iter(range(100))

    def execute(_: Scenario, __: Allocator) -> Sample:
        if next(calls) == 4:
            raise KeyboardInterrupt
        return sample(2.0)

    results, lines = run(tmp_path, execute)
    assert results.interrupted
    assert len(lines) == 4


def test_budget_leaves_out_whole_blocks_but_never_the_first(tmp_path: Path) -> None:
    results, lines = run(tmp_path, lambda each, of: sample(1.0), budget_s=0.0, rounds=5)
    assert len(lines) == 3
    assert not results.interrupted


def test_without_a_terminal_a_long_run_is_told_of_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    log = io.StringIO()

    def execute(_: Scenario, of: Allocator) -> Sample:
        deadline = time.monotonic() + 30
        while f"now row under {of.name}" not in log.getvalue() and time.monotonic() < deadline:
            time.sleep(0.001)
        return sample(1.0)

    steps = list(plan([group(scenario(runs=1))], {"set": ARMS}, None))
    journal = Journal(tmp_path, ARMS)
    Session(execute, journal, Console(file=log, width=30)).run(steps, None)
    journal.close()
    told = log.getvalue().splitlines()
    assert any(line.endswith("0 of 3 runs; now row under a") for line in told)
    assert any(line.lstrip().startswith("67% after") for line in told)


def test_lines_come_at_least_every_ten_seconds() -> None:
    assert 0 < progress.EVERY_S < 10
