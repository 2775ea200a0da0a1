# SPDX-License-Identifier: MIT OR Apache-2.0
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from ebbtide_lab.arms import allocators, peers
from ebbtide_lab.cli.main import main
from ebbtide_lab.scenarios import model


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to build a peer nor to load one."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a completion starts a program")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr(allocators, "examine", refuse)
    monkeypatch.setattr(peers, "build", refuse)


def offered(*arguments: str) -> list[str]:
    *before, last = arguments
    found = ShellComplete(main, {}, "ebb", "_EBB_COMPLETE").get_completions(before, last)
    return [each.value for each in found]


def test_bench_offers_sets_and_scenarios() -> None:
    assert {"full", *model.load_all(), "hand-off-t16-r90"} <= set(offered("bench", ""))
    assert "quick" in offered("bench", "qu")
    assert offered("bench", "quick", "start", "publ") == ["published"]


def test_a_slash_leads_to_the_scenarios_of_the_set() -> None:
    (row,) = offered("bench", "published/000-ret")
    assert row == "published/000-retire"


def test_arms_are_offered_behind_each_comma_and_once() -> None:
    assert {"ebbtide", "glibc", "mimalloc3", "crossbeam/glibc"} <= set(
        offered("bench", "--arms", "")
    )
    assert offered("bench", "--arms", "glibc,snm") == ["glibc,snmalloc"]
    assert "glibc,glibc" not in offered("bench", "--arms", "glibc,")
    assert "glibc" in offered("demo", "--arms", "gl")


def test_one_allocator_is_offered_where_one_is_wanted() -> None:
    assert offered("run", "--with", "snm") == ["snmalloc"]
    assert "ebbtide-fenced" in offered("compare", "--arm", "ebbtide-f")


def test_a_set_that_cannot_be_read_offers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.toml").write_text("[")
    monkeypatch.setattr(model, "SCENARIO_SETS", tmp_path)
    assert offered("bench", "") == []
    assert offered("bench", "--arms", "") == []
