# SPDX-License-Identifier: MIT OR Apache-2.0
from dataclasses import replace

import pytest
from conftest import row, sample

from ebbtide_lab.judge import verdict
from ebbtide_lab.results.model import Sample
from ebbtide_lab.scenarios.model import Bar


def samples(**costs: float) -> dict[str, list[Sample]]:
    return {name.replace("_", "-"): [sample(cost)] * 3 for name, cost in costs.items()}


def test_best_peer_is_the_cheapest_and_never_the_floor_or_ourselves() -> None:
    found = row(samples(ebbtide=5, ebbtide_again=1, floor=1, glibc=9, tcmalloc=6))
    compared = verdict.compare(found)
    assert compared is not None
    assert compared.best == "tcmalloc"
    assert compared.ratio.value == pytest.approx(5 / 6)


def test_one_run_tells_a_count_but_no_time() -> None:
    once = {"ebbtide": [sample(50)], "glibc": [sample(100)]}
    timed = verdict.compare(row(once))
    assert timed is not None
    assert not timed.ratio.has_interval
    found = row(once)
    found.scenario = replace(found.scenario, kind="instructions", cost="instructions_per_op")
    for arm, (each,) in once.items():
        found.samples[arm] = [Sample({"instructions_per_op": each.figures["cpu"]})]
    counted = verdict.compare(found)
    assert counted is not None
    assert (counted.ratio.low, counted.ratio.high) == (0.5, 0.5)


@pytest.mark.parametrize(("limit", "holds"), [(1.2, True), (1.21, False)])
def test_speed_bar(limit: float, holds: bool) -> None:
    found = row(samples(ebbtide=5, glibc=9, jemalloc=6))
    outcome = verdict.judge(found, Bar("speed", at_least=limit))
    assert outcome.value == pytest.approx(5 / 6)
    assert outcome.claim == f"cost over the best peer's <= {1 / limit:.4g}"
    assert outcome.holds is holds


@pytest.mark.parametrize(("limit", "holds"), [(0.5, True), (0.49, False)])
def test_own_cost_bar_takes_the_floor_off_both(limit: float, holds: bool) -> None:
    found = row(samples(ebbtide=9, glibc=20, tcmalloc=10, floor=8))
    outcome = verdict.judge(found, Bar("own_cost", at_most=limit))
    assert outcome.value == pytest.approx(0.5)
    assert outcome.best == "tcmalloc"
    assert outcome.holds is holds


def test_own_cost_without_a_floor_does_not_hold() -> None:
    found = row(samples(ebbtide=1, glibc=20))
    assert not verdict.judge(found, Bar("own_cost", at_most=0.6)).holds


def test_rss_bars_differ_in_the_peers_they_name() -> None:
    found = row(
        {
            "ebbtide": [sample(1, 1000)],
            "glibc": [sample(1, 500)],
            "jemalloc": [sample(1, 2000)],
            "mimalloc3": [sample(1, 1000)],
        }
    )
    lean = verdict.judge(found, Bar("rss", at_most=1.05))
    assert (lean.best, lean.holds) == ("mimalloc3", True)
    over_all = verdict.judge(found, Bar("rss_of_all", at_most=1))
    assert (over_all.best, over_all.holds) == ("glibc", False)


def test_figure_bar_reads_the_workload() -> None:
    found = row({"ebbtide": [sample(1, idle=4)], "glibc": [sample(1, idle=9)]})
    assert not verdict.judge(found, Bar("figure", at_most=3, figure="idle")).holds
    assert verdict.judge(found, Bar("figure", at_most=4, figure="idle")).holds


def test_glibc_bars() -> None:
    found = row({"ebbtide": [sample(1.04, 1500)], "glibc": [sample(1.0, 1000)]})
    assert verdict.judge(found, Bar("glibc_time", at_most=1.05)).holds
    assert not verdict.judge(found, Bar("glibc_rss", at_most=0.5)).holds


@pytest.mark.parametrize(("limit", "holds"), [(0.5, True), (0.49, False)])
def test_a_bar_against_named_peers_takes_the_best_of_them(limit: float, holds: bool) -> None:
    found = row(samples(**{"ebbtide": 3, "ebbtide_fenced": 1, "ck/glibc": 2, "sdd/glibc": 4}))
    bar = Bar("against", at_most=limit, arm="ebbtide-fenced", peers=["ck/glibc", "sdd/glibc"])
    outcome = verdict.judge(found, bar)
    assert outcome.claim == f"ebbtide-fenced: cpu over that of ck/glibc or sdd/glibc <= {limit}"
    assert (outcome.value, outcome.best, outcome.holds) == (0.5, "ck/glibc", holds)


@pytest.mark.parametrize(("limit", "holds"), [(2.0, True), (2.1, False)])
def test_of_a_rate_the_best_peer_is_the_one_with_the_most(limit: float, holds: bool) -> None:
    rates = {"ebbtide": 8.0, "a/glibc": 1.0, "b/glibc": 4.0}
    found = row({arm: [sample(1, ops=rate)] for arm, rate in rates.items()})
    bar = Bar("against", at_least=limit, figure="ops", peers=["a/glibc", "b/glibc"])
    outcome = verdict.judge(found, bar)
    assert (outcome.value, outcome.best, outcome.holds) == (0.5, "b/glibc", holds)
    assert outcome.claim == f"cost by ops over that of a/glibc or b/glibc <= {1 / limit:.4g}"


def test_a_bar_without_one_of_its_peers_or_its_arm_does_not_hold() -> None:
    found = row(samples(**{"ebbtide": 1, "a/glibc": 9}))
    found.refusals["ebbtide-fenced"] = "no such kernel"
    both = Bar("against", at_most=1, peers=["a/glibc", "b/glibc"])
    assert verdict.judge(found, both).why == "no figure of b/glibc"
    fenced = Bar("against", at_most=1, arm="ebbtide-fenced", peers=["a/glibc"])
    assert verdict.judge(found, fenced).why == "no such kernel"
    assert not verdict.judge(found, fenced).holds
    assert verdict.judge(found, Bar("against", at_most=1, peers=["a/glibc"])).holds


@pytest.mark.parametrize(("cost", "holds"), [(10.3, True), (10.5, False), (5, True)])
def test_an_unchanged_cost_is_within_what_a_a_strays(cost: float, holds: bool) -> None:
    plain = row(samples(ebbtide=10, ebbtide_again=9.6))  # strays by 4 %
    idle = row(samples(ebbtide=cost, ebbtide_again=cost))
    idle.scenario = replace(idle.scenario, name="idle")
    bar = Bar("unchanged", row="row")
    outcome = verdict.judge(idle, bar, [plain, idle])
    assert outcome.value == pytest.approx(cost / 10)
    assert outcome.holds is holds
    assert outcome.claim.endswith("<= 1.042")
    assert not verdict.judge(idle, bar, [idle]).holds
    del plain.samples["ebbtide-again"]
    assert not verdict.judge(idle, bar, [plain, idle]).holds


def test_a_figure_bar_may_be_on_another_way_of_ebbtide() -> None:
    found = row({"ebbtide": [sample(1, ns=9)], "ebbtide-call": [sample(1, ns=5)]})
    assert verdict.judge(found, Bar("figure", at_most=6, figure="ns", arm="ebbtide-call")).holds
    assert not verdict.judge(found, Bar("figure", at_most=6, figure="ns")).holds


def test_neither_what_is_unsafe_nor_ebbtides_other_ways_are_peers() -> None:
    found = row(samples(**{"ebbtide": 5, "ebbtide_fenced": 1, "free/glibc": 2, "ck/glibc": 9}))
    assert verdict.peers_of(found) == ["ck/glibc"]


def test_a_row_without_ebbtide_does_not_hold() -> None:
    found = row(samples(glibc=1))
    found.failures["ebbtide"] = "ended by SIGSEGV"
    outcome = verdict.judge(found, Bar("speed", at_least=1))
    assert not outcome.holds
    assert outcome.why == "ended by SIGSEGV"


def test_noise_compares_ebbtide_with_itself() -> None:
    found = verdict.noise(row(samples(ebbtide=5, ebbtide_again=5)))
    assert found is not None
    assert found.contains(1.0)
