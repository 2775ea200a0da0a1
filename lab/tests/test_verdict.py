# SPDX-License-Identifier: MIT OR Apache-2.0
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


@pytest.mark.parametrize(("limit", "holds"), [(1.2, True), (1.21, False)])
def test_speed_bar(limit: float, holds: bool) -> None:
    found = row(samples(ebbtide=5, glibc=9, jemalloc=6))
    outcome = verdict.judge(found, Bar("speed", at_least=limit))
    assert outcome.value == pytest.approx(1.2)
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
