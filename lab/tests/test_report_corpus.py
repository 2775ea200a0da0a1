# SPDX-License-Identifier: MIT OR Apache-2.0
"""The means over the corpus in a report."""

from pathlib import Path

import pytest
import report_data
from markupsafe import escape

from ebbtide_lab.judge import corpus
from ebbtide_lab.results import journal
from ebbtide_lab.results.model import Results
from ebbtide_lab.show.report import grid, markdown, model


def replays(where: Path, *others: str) -> Results:
    """Three recordings, and other rows of these names, each under every arm."""
    rows = [each for each in report_data.scenarios() if each.name in others]
    return journal.load(report_data.folder(where, [*report_data.recordings(), *rows]))


def test_the_corpus_has_the_first_table_of_the_means(tmp_path: Path) -> None:
    found = replays(tmp_path, "random-mixed-400")
    page = model.page(found)
    table = page.means.corpus
    assert table
    assert table.caption == "Geometric means over 3 of 3 recordings: Ebbtide's over each peer's"
    expected = {
        mean.arm: [f"{each:.3f}" for each in (mean.own_cpu, mean.cpu, mean.peak)]
        for mean in corpus.means(found.rows)
    }
    told = {line[0].text: [cell.text for cell in line[1:]] for line in table.rows}
    best = told.pop("best peer of each row")
    assert told == expected
    assert list(told) == list(expected)
    assert table.rows[-1][0].text == "best peer of each row"
    assert [float(best[0]), float(best[2])] == pytest.approx(
        corpus.best_of_each(found.rows), abs=0.0006
    )
    for text in (report_data.html_of(found), markdown.render(page)):
        captions = (str(escape(table.caption)), grid.escape(table.caption))
        first = max(text.find(caption) for caption in captions)
        assert 0 < first < text.index("of the micro set that were measured count")


def test_the_micro_set_is_not_missed_where_the_corpus_was_measured(tmp_path: Path) -> None:
    found = replays(tmp_path)
    page = model.page(found)
    assert page.means.summary == []
    assert page.means.table is None
    for text in (report_data.html_of(found), markdown.render(page)):
        assert "micro set" not in text


def test_a_corpus_without_ebbtide_has_no_means(tmp_path: Path) -> None:
    found = replays(tmp_path)
    for row in found.rows:
        del row.samples["ebbtide"]
    page = model.page(found)
    assert page.means.corpus is None
    assert "there is no mean" in markdown.render(page)


def test_a_recording_that_an_arm_failed_in_does_not_count(tmp_path: Path) -> None:
    found = replays(tmp_path)
    del found.rows[1].samples["glibc"]
    page = model.page(found)
    assert page.means.corpus
    assert page.means.corpus.caption.startswith("Geometric means over 2 of 3 recordings")


def test_times_of_a_recording_are_nanoseconds(tmp_path: Path) -> None:
    page = model.page(replays(tmp_path))
    heads = page.sections[0].arms.columns
    assert {"cpu ns per event", "own cost, ns per event", "wall, ns per event"} <= set(heads)
