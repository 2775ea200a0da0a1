# SPDX-License-Identifier: MIT OR Apache-2.0
import json
from pathlib import Path

import pytest
from conftest import arm, figures, scenario
from rich.console import Console

from ebbtide_lab.allocators import Allocator
from ebbtide_lab.errors import LabError, RunError
from ebbtide_lab.execute import Figures
from ebbtide_lab.runner import Execute, Journal, Results, Session, plan
from ebbtide_lab.scenarios import Scenario, ScenarioSet

ARMS = [arm("a"), arm("b"), arm("c")]


def group(*rows: Scenario) -> ScenarioSet:
    return ScenarioSet("set", "", [], list(rows))


def run(
    folder: Path, execute: Execute, budget_s: float | None = None, rounds: int = 2
) -> tuple[Results, list[dict[str, object]]]:
    steps = list(plan([group(scenario(runs=rounds))], {"set": ARMS}, None))
    journal = Journal(folder, ARMS)
    console = Console(quiet=True)
    results = Session(execute, journal, console).run(steps, ARMS, budget_s)
    journal.close()
    lines = (folder / "runs.jsonl").read_text().splitlines()
    return results, [json.loads(line) for line in lines]


def test_arms_alternate_and_the_first_changes() -> None:
    steps = plan([group(scenario(runs=3))], {"set": ARMS}, None)
    order = "".join(step.arm.name for step in steps)
    assert order == "abcbcacab"


def test_runs_of_the_caller_win_over_the_scenario() -> None:
    assert len(list(plan([group(scenario(runs=9))], {"set": ARMS}, 2))) == 6


def test_missing_arms_and_unasked_floor_are_left_out() -> None:
    arms = [arm("a"), arm("b", problem="missing"), arm("floor")]
    plain = {step.arm.name for step in plan([group(scenario())], {"set": arms}, None)}
    floored = {step.arm.name for step in plan([group(scenario(floor=True))], {"set": arms}, None)}
    assert plain == {"a"}
    assert floored == {"a", "floor"}


def test_every_finished_run_is_a_line(tmp_path: Path) -> None:
    results, lines = run(tmp_path, lambda each, of: figures(1.0))
    assert len(lines) == 6
    assert lines[0]["schema"] == 1
    assert lines[0]["figures"] == figures(1.0)
    assert results.rows[0].costs("a") == [1.0, 1.0]
    machine = json.loads((tmp_path / "machine.json").read_text())
    assert {"kernel", "cpu", "thp", "overcommit", "glibc", "allocators"} <= set(machine)


def test_a_failing_arm_is_kept_and_not_tried_again(tmp_path: Path) -> None:
    tried: list[str] = []

    def execute(_: Scenario, of: Allocator) -> Figures:
        tried.append(of.name)
        if of.name == "b":
            raise RunError("ended by SIGSEGV")
        return figures(1.0)

    results, lines = run(tmp_path, execute)
    assert tried.count("b") == 1
    assert results.rows[0].failures == {"b": "ended by SIGSEGV"}
    assert "ended by SIGSEGV" in [line.get("error") for line in lines]


def test_interrupt_keeps_what_is_finished(tmp_path: Path) -> None:
    calls = iter(range(100))

    def execute(_: Scenario, __: Allocator) -> Figures:
        if next(calls) == 4:
            raise KeyboardInterrupt
        return figures(2.0)

    results, lines = run(tmp_path, execute)
    assert results.interrupted
    assert len(lines) == 4


def test_budget_leaves_out_whole_blocks_but_never_the_first(tmp_path: Path) -> None:
    results, lines = run(tmp_path, lambda each, of: figures(1.0), budget_s=0.0, rounds=5)
    assert len(lines) == 3
    assert not results.interrupted


def test_folder_of_another_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "machine.json").write_text('{"schema": 99}')
    with pytest.raises(LabError, match="holds schema 99"):
        Journal(tmp_path, ARMS)


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot write"):
        Journal(tmp_path / "file", ARMS)
