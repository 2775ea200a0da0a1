# SPDX-License-Identifier: MIT OR Apache-2.0
"""The first screen: the same whether the runs are at hand or what was kept of them."""

import pytest
import report_data
from markupsafe import escape

from ebbtide_lab.base.layout import find_root
from ebbtide_lab.results import journal, sessions, summary
from ebbtide_lab.results.model import Results
from ebbtide_lab.show.report import cells, files, markdown, model, summarized


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return journal.load(report_data.folder(tmp_path_factory.mktemp("results")))


@pytest.mark.parametrize(
    "kept", sessions.read_all(find_root() / "results"), ids=lambda each: each.folder.name
)
def test_a_kept_session_has_the_same_first_screen(kept: sessions.Session) -> None:
    card, arms = journal.load_machine(kept.folder)
    text = files.of_summary(kept.summary, card, arms)[files.HTML]
    assert text.count("<figcaption>") >= 2
    for workload in kept.summary.workloads:
        assert f"<h3>{escape(workload.name)}</h3>" in text
    assert "The runs are not kept" in text


def test_a_summary_of_runs_says_what_their_report_does(results: Results) -> None:
    ours = {each.name: each for each in summarized.of_results(results, cells.Ratios()).workloads}
    kept = summary.of_report(markdown.render(model.page(results))).workloads
    assert [each.name for each in kept] == list(ours)
    for each in kept:
        for arm, ratio in each.cost.items():
            if arm != "A/A":
                own = ours[each.name].cost[arm]
                assert (cells.written(own.value), own.state) == (
                    cells.written(ratio.value),
                    ratio.state,
                )
        assert each.own_peak == ours[each.name].own_peak
