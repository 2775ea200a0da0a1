# SPDX-License-Identifier: MIT OR Apache-2.0
"""The line charts of a report, its curves of latencies, and families by threads."""

import re
from itertools import pairwise

import pytest
import report_data
from report_data import HOSTILE, made, row_of

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.results import journal
from ebbtide_lab.results.model import Histogram, Results, Sample
from ebbtide_lab.show.report import (
    cells,
    charts,
    model,
    percentiles,
)
from ebbtide_lab.show.report.arms import REPEATED
from ebbtide_lab.show.report.scaling import families


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return journal.load(report_data.folder(tmp_path_factory.mktemp("results")))


@pytest.fixture(scope="module")
def page(results: Results) -> model.Page:
    return model.page(results)


# --- charts and curves ------------------------------------------------------------


def test_charts_keep_text_and_take_colours_from_the_page() -> None:
    drawn = charts.lines([charts.Line(HOSTILE, [0, 1], [1, 2], None)], charts.Scales("x", "y"))
    assert "&lt;script&gt;" in drawn
    assert 'class="line self"' in drawn
    assert not re.search(r"#[0-9a-f]{6}", drawn)


def test_names_at_the_ends_of_lines_do_not_hide_each_other() -> None:
    crowd = [charts.Line(f"arm{at}", [0, 1], [1, 100 + at], at) for at in range(10)]
    drawn = charts.lines(crowd, charts.Scales("x", "y"))
    heights = sorted(float(at) for at in re.findall(r'y="([\d.]+)"[^>]*>arm', drawn))
    assert len(heights) == 10
    assert min(high - low for low, high in pairwise(heights)) > 10


def test_histograms_of_all_runs_are_merged() -> None:
    one = Sample({}, {}, {"malloc_ns": Histogram(1, 1_000_000, 3, [(10, 98), (50, 1)])})
    two = Sample({}, {}, {"malloc_ns": Histogram(1, 1_000_000, 3, [(10, 98), (90, 3)])})
    curve = percentiles.merge([one, two], "malloc_ns")
    assert curve
    assert (curve.total, curve.at(50), curve.at(98), curve.at(98.5)) == (200, 10, 10, 50)
    assert curve.at(99.9) == curve.at(100) == 90
    assert percentiles.merge([one], "free_ns") is None


def test_latencies_of_nought_do_not_take_the_logarithm_away() -> None:
    fast = Sample(
        {"cpu": 1.0}, {}, {"malloc_ns": Histogram(1, 1_000_000, 2, [(0, 500), (9, 400), (600, 3)])}
    )
    found = made({"ebbtide": [1.0], "glibc": [1.0]})
    found.rows[0].samples.update(ebbtide=[fast], glibc=[fast])
    drawn = model.page(found).sections[0].charts[-1].svg
    assert re.search(r">20</text>", drawn)
    assert re.search(r">1k</text>", drawn)


def test_a_bucket_outside_the_histogram_is_an_error() -> None:
    wrong = Sample({}, {}, {"malloc_ns": Histogram(1, 1000, 1, [(10_000, 1)])})
    with pytest.raises(LabError, match="bucket 10000"):
        percentiles.merge([wrong], "malloc_ns")


def test_a_family_differs_in_the_threads_alone(results: Results) -> None:
    found = {tuple(each) for each in families(results.rows)}
    assert found == {report_data.THREADS, (1, 2)}


def test_every_figure_of_a_row_is_in_its_table(results: Results, page: model.Page) -> None:
    for found in page.sections:
        row = row_of(results, found.name)
        told = {name for each in row.samples.values() for name in each[0].figures}
        plain = told - {"cpu", "wall", "peak_rss_kb", row.scenario.cost, *REPEATED}
        assert {cells.label_of(name) for name in plain} <= set(found.arms.columns)
    (counted,) = [each for each in page.sections if each.name == "lanes-count"]
    assert "Ebbtide's RSS over it" not in counted.arms.columns
    assert {"d1 misses, per op", "ll misses, per op"} <= set(counted.arms.columns)
