# SPDX-License-Identifier: MIT OR Apache-2.0
"""Made-up sessions, of which it is known what changed between them."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import arm, invoke, sample, scenario

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.judge.compare import UNDISTURBED, Change, Comparison, compare, correct
from ebbtide_lab.judge.stats import ratio
from ebbtide_lab.results import journal
from ebbtide_lab.results.model import Results, Row, Sample

PEERS = ("glibc", "jemalloc", "tcmalloc")
FACTS: dict[str, object] = {"cpu": "one", "cores": 2, "thp": "madvise", "kernel": "6.1"}
RUNS = 11
SEEDS = 100
NOISE = 0.005
DISTURBED = 0.3
THRESHOLD = 0.01


def session(
    rows: dict[str, dict[str, Sequence[float]]], facts: dict[str, object] | None = None
) -> Results:
    """Costs by arm by row; all arms at version 1."""
    names = dict.fromkeys(name for costs in rows.values() for name in costs)
    made = [
        Row("set", scenario(name), {of: [sample(cost) for cost in costs[of]] for of in costs})
        for name, costs in rows.items()
    ]
    return Results(made, [arm(name) for name in names], facts or FACTS)


def steady(**costs: float) -> dict[str, Sequence[float]]:
    return {name: [cost] * RUNS for name, cost in costs.items()}


def compared(before: Results, after: Results) -> Comparison:
    return compare(before, after, "ebbtide", THRESHOLD)


def noisy(
    seed: int, slower: Callable[[str], float], peers: Sequence[str] = PEERS
) -> dict[str, list[float]]:
    """As on a shared machine: a little noise, and three runs in ten disturbed."""
    rng = random.Random(seed)

    def run() -> float:
        disturbed = 1 + rng.uniform(0.1, 0.4) if rng.random() < DISTURBED else 1
        return disturbed * (1 + rng.gauss(0, NOISE))

    return {name: [10 * slower(name) * run() for _ in range(RUNS)] for name in ("ebbtide", *peers)}


def regressions(slower: Callable[[str], float], **options: Sequence[str]) -> int:
    """In how many of the seeds a regression was seen."""
    seen = 0
    for seed in range(SEEDS):
        before = noisy(2 * seed, lambda _: 1.0, **options)
        after = noisy(2 * seed + 1, slower, **options)
        judged, _ = correct(before, after, "ebbtide")
        change = Change("set", "row", "cpu", (), (), judged, judged)
        seen += change.is_regression(THRESHOLD)
    return seen


def planted(name: str) -> float:
    return 1.03 if name == "ebbtide" else 1.0


def test_a_planted_slow_down_is_found() -> None:
    assert regressions(planted) >= 95


def test_a_planted_slow_down_is_found_though_the_machine_became_faster() -> None:
    assert regressions(lambda name: 0.95 * planted(name)) >= 95


def test_noise_is_no_regression() -> None:
    assert regressions(lambda _: 1.0) <= 5


def test_a_slower_machine_is_no_regression() -> None:
    assert regressions(lambda _: 1.05) <= 5


def test_without_peers_the_plain_ratio_finds_the_plant_too() -> None:
    found = alarms = 0
    for seed in range(SEEDS):
        before = noisy(2 * seed, lambda _: 1.0, peers=())["ebbtide"]
        slow = noisy(2 * seed + 1, planted, peers=())["ebbtide"]
        same = noisy(2 * seed + 1, lambda _: 1.0, peers=())["ebbtide"]
        for after, plant in ((slow, True), (same, False)):
            change = Change("set", "row", "cpu", before, after, ratio(after, before, UNDISTURBED))
            found += plant and change.is_regression(THRESHOLD)
            alarms += not plant and change.is_regression(THRESHOLD)
    assert found >= 95
    assert alarms <= 5


def test_a_drift_that_is_not_the_same_for_all_widens_the_interval() -> None:
    before = steady(ebbtide=10, glibc=10, jemalloc=10, tcmalloc=10)
    alike, _ = correct(before, steady(ebbtide=10.5, glibc=10, jemalloc=10, tcmalloc=10), "ebbtide")
    apart, _ = correct(before, steady(ebbtide=10.5, glibc=9, jemalloc=10, tcmalloc=11), "ebbtide")
    assert alike.low > 1.04
    assert apart.low < 1 < apart.value


def test_the_same_session_has_no_changes() -> None:
    one = session({"x": noisy(1, lambda _: 1.0), "y": steady(ebbtide=5, glibc=6)})
    found = compared(one, one)
    assert not found.got_worse
    assert not found.improvements
    assert len(found.changes) == 4  # time and memory of two rows


def test_regressions_come_with_the_largest_first_and_losses_of_memory_count() -> None:
    before = session({name: steady(ebbtide=10) for name in ("x", "y", "z", "w")})
    after = session(
        {
            "x": steady(ebbtide=11),
            "y": steady(ebbtide=15),
            "z": steady(ebbtide=10.05),
            "w": steady(ebbtide=8),
        }
    )
    after.rows[2].samples["ebbtide"] = [sample(10, rss_kb=1200)] * RUNS
    found = compared(before, after)
    assert [(each.scenario, each.figure) for each in found.regressions] == [
        ("y", "cpu"),
        ("z", "peak_rss_kb"),
        ("x", "cpu"),
    ]
    assert [each.scenario for each in found.improvements] == ["w"]


def test_memory_is_not_corrected_by_the_peers() -> None:
    rows = {"x": steady(ebbtide=10, glibc=10, jemalloc=10)}
    changes = {each.figure: each for each in compared(session(rows), session(rows)).changes}
    assert changes["cpu"].corrected
    assert changes["cpu"].peers == 2
    assert not changes["peak_rss_kb"].corrected


def test_a_peer_of_another_version_says_nothing_about_the_machine() -> None:
    before = session({"x": steady(ebbtide=10, glibc=10, jemalloc=10)})
    after = session({"x": steady(ebbtide=12, glibc=12, jemalloc=12)})
    assert not compared(before, after).got_worse
    after.arms[1] = replace(after.arms[1], version="2")
    found = compared(before, after)
    assert found.regressions[0].corrected is None
    assert "glibc is 1 in A, 2 in B" in found.warnings
    assert any("not corrected for the machine's drift" in each for each in found.warnings)


def test_a_failure_that_is_new_is_a_regression() -> None:
    before = session({"x": steady(ebbtide=10), "y": steady(ebbtide=10)})
    after = session({"x": steady(ebbtide=10), "y": steady(ebbtide=10)})
    after.rows[1].failures["ebbtide"] = "ended by SIGSEGV"
    found = compared(before, after)
    assert found.broken == ["set/y: ended by SIGSEGV"]
    assert found.got_worse
    assert not compared(after, after).got_worse


def test_what_only_one_session_has_is_told() -> None:
    before = session({"x": steady(ebbtide=10, glibc=9), "gone": steady(ebbtide=1)})
    after = session({"x": steady(ebbtide=10, tcmalloc=9), "new": steady(ebbtide=1)})
    told = compared(before, after).warnings
    for text in ("only in A: set/gone", "only in B: set/new"):
        assert text in told
    assert {"only in A: the arm glibc", "only in B: the arm tcmalloc"} <= set(told)


def test_other_machines_and_planted_folders_are_told() -> None:
    rows = {"x": steady(ebbtide=10)}
    after = session(rows, {**FACTS, "thp": "always", "planted_percent": 3})
    told = compared(session(rows), after).warnings
    assert "the machines differ in thp: madvise in A, always in B" in told
    assert "B is no real result: a slow-down of 3 % was planted" in told


def test_a_scenario_that_was_changed_is_not_compared() -> None:
    before = session({"x": steady(ebbtide=10), "y": steady(ebbtide=10)})
    after = session({"x": steady(ebbtide=10), "y": steady(ebbtide=20)})
    after.rows[1].scenario = replace(after.rows[1].scenario, command=["program", "--more"])
    found = compared(before, after)
    assert not found.got_worse
    assert "not compared, the scenario was changed: y" in found.warnings


def test_what_noise_could_hide_is_told() -> None:
    still = session({"x": steady(ebbtide=10)})
    rough = session({"x": {"ebbtide": [8.0, 9.0, 10.0, 11.0, 12.0]}})
    assert compared(still, still).unseen == 0
    assert (compared(rough, rough).unseen or 0) > 0.1


def test_few_runs_are_told_of() -> None:
    few = session({"x": {"ebbtide": [10.0, 10.1]}})
    assert any("fewer than 5 runs" in each for each in compared(few, few).warnings)


def test_two_runs_of_a_time_are_not_judged_and_said_so() -> None:
    rows = {arm: [10.0, 10.1] for arm in ("ebbtide", "glibc", "jemalloc")}
    before, after = session({"x": rows}), session({"x": {**rows, "ebbtide": [20.0, 20.1]}})
    found = compared(before, after)
    assert not found.got_worse
    assert any("1 times are not judged: fewer than 3 runs" in each for each in found.warnings)
    after.rows[0].samples["ebbtide"] = [sample(10, rss_kb=1200)] * 2
    assert [each.figure for each in compared(before, after).regressions] == ["peak_rss_kb"]


def test_a_count_that_was_nought_may_rise() -> None:
    def counted(calls: float) -> Results:
        row = Row("set", scenario("x"), {"ebbtide": [Sample({"cpu": calls})]})
        return Results([row], [arm("ebbtide")], FACTS)

    assert compared(counted(0), counted(3)).got_worse
    assert not compared(counted(0), counted(0)).got_worse


def test_nothing_in_common_is_an_error() -> None:
    one = session({"x": steady(ebbtide=1)})
    with pytest.raises(LabError, match="no row in common"):
        compared(one, session({"y": steady(ebbtide=1)}))
    with pytest.raises(LabError, match="A has no runs of glibc; it has ebbtide"):
        compare(one, one, "glibc", THRESHOLD)


# --- ebb compare --------------------------------------------------------------------


def keep(folder: Path, **factors: float) -> Path:
    """A folder in which the rows of Ebbtide cost this much more than 10."""
    rng = random.Random(folder.name)
    arms = [arm(name) for name in ("ebbtide", "glibc", "jemalloc")]
    kept = journal.Journal(folder, arms)
    for _ in range(9):
        for name, factor in factors.items():
            for each in arms:
                cost = 10 * (factor if each.name == "ebbtide" else 1) * rng.gauss(1, 0.003)
                kept.write("set", scenario(name), each.name, sample(cost))
    kept.close()
    return folder


def test_compare_of_a_folder_with_itself_finds_nothing(layout: Layout, tmp_path: Path) -> None:
    one = str(keep(tmp_path / "a", x=1, y=1))
    result = invoke(layout, "compare", one, one)
    assert result.exit_code == 0, result.output
    assert "0 regressions, 0 improvements, 4 figures" in result.output


def test_compare_lists_a_slow_down_first_and_fails(layout: Layout, tmp_path: Path) -> None:
    before = keep(tmp_path / "a", faster=1, slower=1, same=1)
    after = keep(tmp_path / "b", faster=0.9, slower=1.05, same=1)
    result = invoke(layout, "compare", str(before), str(after))
    assert result.exit_code == 1
    assert 0 < result.output.index("set/slower") < result.output.index("set/faster")
    assert "set/same" not in result.output
    assert "estimated by the 2 peers that did not change" in result.output
    assert result.output.count("B/A is the cost in B over the cost in A: below 1 is better") == 2
    lenient = invoke(layout, "compare", str(before), str(after), "--threshold", "8")
    assert lenient.exit_code == 0
    other = invoke(layout, "compare", str(before), str(after), "--arm", "glibc")
    assert other.exit_code == 0
