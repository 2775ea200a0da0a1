# SPDX-License-Identifier: MIT OR Apache-2.0
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest
import report_data
from click.testing import CliRunner
from markupsafe import escape
from report_data import HOSTILE, made, row_of

from ebbtide_lab.cli.main import main
from ebbtide_lab.judge import verdict
from ebbtide_lab.judge.stats import Ratio
from ebbtide_lab.results import journal
from ebbtide_lab.results.model import Results
from ebbtide_lab.show import published
from ebbtide_lab.show.report import (
    cells,
    files,
    grid,
    markdown,
    matrix,
    model,
)
from ebbtide_lab.show.report.workload import command_of
from ebbtide_lab.show.units import DIRECTION

MOST_BYTES = 500_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_data.folder(tmp_path_factory.mktemp("results"), problem=HOSTILE)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows, with latencies and with a series."""
    names = ("tail-1", "burst-idle-none")
    rows = [each for each in report_data.scenarios() if each.name in names]
    return report_data.folder(tmp_path_factory.mktemp("small"), rows)


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return journal.load(folder)


@pytest.fixture(scope="module")
def page(results: Results) -> model.Page:
    return model.page(results)


@pytest.fixture(scope="module")
def text(results: Results) -> str:
    """The page as HTML, and all that is folded in it."""
    return report_data.html_of(results)


# --- the matrices -----------------------------------------------------------------


def test_matrix_holds_the_ratios_of_the_verdict(results: Results, page: model.Page) -> None:
    (costs,) = page.costs
    heads = costs.columns
    checked = 0
    for line in costs.rows:
        row = row_of(results, line[0].text)
        for arm, cell in zip(heads[2:-1], line[2:-1], strict=True):
            against = verdict.against(row, arm)
            if against and arm not in row.failures:
                assert float(cell.text) == pytest.approx(against.value, rel=0.006, abs=0.0051)
                checked += 1
    assert checked > 150


def test_matrix_has_a_column_for_each_peer_and_neither_floor_nor_missing(page: model.Page) -> None:
    assert page.costs[0].columns == ["workload", "ebbtide", *report_data.PEERS, "A/A"]


def test_failures_come_first_then_losses(page: model.Page) -> None:
    (costs,) = page.costs
    names = [line[0].text for line in costs.rows]
    assert names[0] == "broken"
    lost = [any(cell.state == cells.LOSS for cell in line) for line in costs.rows[1:]]
    assert lost == sorted(lost, reverse=True)
    assert any(lost)


def test_the_losses_are_listed_with_ebbtides_own_failures(page: model.Page) -> None:
    told = {each.workload: each.text for each in page.losses}
    assert told["broken"] == "Ebbtide failed"
    assert re.fullmatch(r"1\.[12]\d \[.*\] of what tcmalloc needs", told["lanes-mixed"])


@pytest.mark.parametrize(
    ("ratio", "state"),
    [
        (Ratio(0.9, 0.85, 0.95), cells.GAIN),
        (Ratio(1.2, 1.1, 1.3), cells.LOSS),
        (Ratio(0.98, 0.96, 1.01), cells.NOISE),
        (Ratio(0.998, 0.997, 0.999), cells.NOISE),
        (Ratio(0.5), cells.ALONE),
    ],
)
def test_a_ratio_is_judged_by_its_printed_interval(ratio: Ratio, state: str) -> None:
    assert cells.state_of(ratio) == state


@pytest.mark.parametrize(("runs", "shown"), [(1, "n/a"), (2, "n/a"), (3, "[0.50..0.50]")])
def test_fewer_than_three_runs_show_no_interval(runs: int, shown: str) -> None:
    found = made({"ebbtide": [1.0] * runs, "glibc": [2.0] * runs, "ebbtide-again": [2.0] * runs})
    text = markdown.render(model.page(found))
    assert text.count(grid.escape(shown)) >= 3
    assert ("n/a" in text) == (runs < 3)


def test_every_table_of_ratios_says_in_one_line_which_way_is_better(
    page: model.Page, text: str
) -> None:
    tables = [*page.costs, *page.memory, page.bars, page.means.table]
    tables += [table for each in page.sections for table in (each.arms, each.bars) if table]
    tables += [entry.table for document in page.published for entry in document.entries]
    assert {table.foot for table in tables if table} == {DIRECTION}
    shown = len([table for table in tables if table])
    assert text.count(str(escape(DIRECTION))) == shown + 1  # above the charts
    assert markdown.render(page).count(DIRECTION) == shown


def test_colour_never_stands_alone() -> None:
    assert cells.ratio_cell(Ratio(1.5, 1.4, 1.6)).sign
    assert cells.ratio_cell(Ratio(1.0, 0.9, 1.1)).sign


def test_a_peer_that_costs_nothing_has_no_ratio() -> None:
    found = made({"ebbtide": [1.0, 1.0], "glibc": [0.0, 0.0]}, cost="calls")
    (shown,) = matrix.matrices(found, found.rows, cells.Ratios())
    assert shown.rows[0][2] == cells.NOTHING


def test_means_are_the_verdicts_and_lack_peers_that_lack_rows(
    results: Results, page: model.Page
) -> None:
    assert page.means.table
    told = {line[0].text: line[1].text for line in page.means.table.rows}
    expected = verdict.geometric_means(results.rows)
    assert {name: f"{mean:.2f}" for name, mean in expected.items()} == {
        name: text for name, text in told.items() if text != "-"
    }
    assert told["snmalloc"] == "-"
    (lacking,) = [line for line in page.means.table.rows if line[0].text == "snmalloc"]
    assert lacking[2].text == "ran in 7 of 8"


def test_the_rows_that_count_are_those_of_the_micro_set(page: model.Page) -> None:
    said = page.means.summary[0]
    assert said.startswith("8 of the 9 rows of the micro set that were measured count: random-")
    assert said.endswith("has no figure: broken.")
    assert "lanes" not in said


@pytest.mark.parametrize(
    ("cost", "verdict_of_bar", "shown"),
    [(1.2, "held", "0.83"), (1.15, "held", "0.8696"), (1.1499, "missed", "0.87")],
)
def test_the_bar_is_on_the_best_single_peer(cost: float, verdict_of_bar: str, shown: str) -> None:
    found = made({"ebbtide": [1.0], "glibc": [3.0], "jemalloc": [cost]}, micro=True)
    said = matrix.means(found).summary[-1]
    assert f"from {shown} (jemalloc) to 0.33 (glibc)" in said
    assert said.endswith(f"at most 0.8696 on the best single peer, jemalloc: {verdict_of_bar}.")
    assert said in model.page(found).summary


def test_without_a_micro_row_there_is_no_mean() -> None:
    found = model.page(made({"ebbtide": [1.0], "glibc": [2.0]}))
    assert found.means.table is None
    assert "there is no mean" in markdown.render(found)


def test_no_common_peer_misses_the_bar() -> None:
    found = made({"ebbtide": [1.0], "glibc": [2.0]}, micro=True)
    found.rows += made({"ebbtide": [1.0], "jemalloc": [2.0]}, micro=True).rows
    assert matrix.means(found).summary[-1].endswith("best single peer: missed.")


# --- the corpus ----------------------------------------------------------------------


def test_missed_bars_come_first(page: model.Page) -> None:
    assert page.bars
    words = [line[-1].text for line in page.bars.rows]
    assert words == sorted(words, key=lambda word: word != "missed")
    assert {"missed", "held"} == set(words)


# --- arms that cannot run a row -----------------------------------------------------


def test_an_arm_that_cannot_run_a_row_is_a_dash_with_the_reason(page: model.Page) -> None:
    (costs,) = page.costs
    at = costs.columns.index("snmalloc")
    (line,) = [each for each in costs.rows if each[0].text == "lanes-count"]
    assert (line[at].text, line[at].note) == ("-", f"not run: {report_data.WHY_NOT}")


def test_an_arm_that_cannot_run_a_row_is_told_of_in_its_section(
    page: model.Page, text: str
) -> None:
    (found,) = [each for each in page.sections if each.name == "lanes-count"]
    why = f"not run: {report_data.WHY_NOT}"
    assert found.not_run == {"snmalloc": why, "scudo": why}
    assert found.failures == {}
    assert f"<strong>snmalloc</strong> {why}" in text
    assert f"**snmalloc** {why}" in markdown.render(page)


def test_an_arm_that_cannot_run_a_row_is_no_warning(page: model.Page) -> None:
    assert not any("lanes-count" in f"{each.what}{each.why}" for each in page.warnings)


# --- the published tables ------------------------------------------------------------------


def test_published_tables_are_those_of_the_command_with_notes(
    results: Results, page: model.Page
) -> None:
    entries = [each for document in page.published for each in document.entries]
    expected = published.tables(results)
    assert [each.title for each in entries] == [each.title for each in expected]
    for entry, table in zip(entries, expected, strict=True):
        assert [[cell.text for cell in line] for line in entry.table.rows] == table.rows
        assert entry.notes == table.notes
    assert [each.title.split(":")[0] for each in page.published] == [
        "Published 003",
        "Published 004",
    ]


def test_published_tables_are_in_both_files(page: model.Page, text: str) -> None:
    marked = markdown.render(page)
    assert 'id="published-tables"' in text
    assert "## The published tables" in marked
    for entry in (each for document in page.published for each in document.entries):
        assert text.count(f"<caption><span>{escape(entry.table.caption)}") == 1
        for number, note in enumerate(entry.notes, 1):
            assert f"<li>{escape(note)}</li>" in text
            assert f"\n{number}. {grid.escape(note)}" in marked


def test_a_failed_run_of_a_published_row_is_marked(page: model.Page) -> None:
    entries = [each for document in page.published for each in document.entries]
    states = {cell.state for each in entries for line in each.table.rows for cell in line}
    assert cells.FAILED in states


def test_without_published_rows_there_are_no_published_tables(small: Path) -> None:
    found = model.page(journal.load(small))
    assert found.published == []
    assert "published-tables" not in report_data.html_of(journal.load(small))
    assert "published tables" not in markdown.render(found)


# --- what must be in plain sight --------------------------------------------------


def test_failures_and_missing_peers_are_told_before_the_figures(page: model.Page) -> None:
    told = [each.what for each in page.warnings]
    assert told[0] == "ebbtide failed in broken"
    assert "scudo is missing" in told
    assert "Fewer than 5 runs in 1 of 22 workloads" in told


def test_noise_is_the_share_of_rows_whose_interval_contains_one(
    results: Results, page: model.Page
) -> None:
    found = [ratio for row in results.rows if (ratio := verdict.noise(row))]
    good = sum(ratio.contains(1.0) for ratio in found)
    assert f"in {good} of {len(found)} workloads" in page.summary[-1]


@pytest.mark.parametrize("arm", ["glibc", "ebbtide-again"])
def test_unknown_noise_is_called_unknown(arm: str) -> None:
    found = made({"ebbtide": [1.0], arm: [2.0]})
    assert "not known" in model.page(found).summary[-1]


@pytest.mark.parametrize(("runs", "told"), [(2, True), (3, False)])
def test_no_loss_is_denied_where_there_are_too_few_runs(runs: int, told: bool) -> None:
    text = report_data.html_of(made({"ebbtide": [2.0] * runs, "glibc": [2.0] * runs}))
    assert "None beyond noise." in text
    assert ("1 comparison of fewer than three runs: not judged." in text) == told


def test_the_tally_counts_every_comparison() -> None:
    arms = {"ebbtide": [1.0] * 5, "glibc": [2.0] * 5, "jemalloc": [0.5] * 5, "mimalloc": [1.5]}
    told = model.page(made(arms)).summary[3]
    assert told.startswith("Of 3 comparisons with a peer Ebbtide loses 1, 0 are within noise")
    assert told.endswith("it wins 1. 1 rest on fewer than three runs and tell nothing.")


def test_arms_with_fewer_runs_are_named() -> None:
    found = made({"ebbtide": [1.0] * 6, "glibc": [2.0] * 5})
    assert any("fewer runs" in each.what for each in model.page(found).warnings)


def test_a_folder_where_all_failed_still_makes_a_report(tmp_path: Path) -> None:
    broken = [each for each in report_data.scenarios() if each.name == "broken"]
    only = journal.load(report_data.folder(tmp_path, broken))
    only.rows[0].samples.clear()
    assert "<b>failed</b>" in report_data.html_of(only)
    assert "Ebbtide failed" in markdown.render(model.page(only))


# --- the files --------------------------------------------------------------------


def test_hostile_text_stays_text(page: model.Page, text: str) -> None:
    assert text.count("<script") == 2  # what is packed, and what unpacks it
    assert "&lt;script&gt;" in text
    marked = markdown.render(page)
    assert "<script" not in marked
    assert r"\|pipes\| \*stars\*" in marked


def test_nothing_is_fetched(text: str) -> None:
    assert not re.search(r"https?:|url\((?!#)|@import|<link(?! rel=\"icon\" href=\"data:,\")", text)
    assert not re.search(r"\bsrc=|<iframe|fetch\(|XMLHttp|import\(", text)


def test_the_same_results_make_the_same_files(small: Path) -> None:
    first, again = (files.of_results(journal.load(small)) for _ in range(2))
    assert first == again


def test_a_full_session_is_small(tmp_path: Path) -> None:
    rows = report_data.full_session()
    assert len(rows) > 180
    # All go into one set here, where names must differ.
    unlike = [replace(row, name=f"{row.name}-{at}") for at, row in enumerate(rows)]
    text = files.of_results(journal.load(report_data.folder(tmp_path, unlike, runs=3)))[files.HTML]
    assert len(report_data.parts_of(text)) > len(rows)
    assert sum(part.count("<svg") for part in report_data.parts_of(text)) > 50
    assert len(text.encode()) < MOST_BYTES


def test_links_lead_to_one_place_each(text: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)


def test_every_command_is_shown_as_it_was_run(results: Results, page: model.Page) -> None:
    text = markdown.render(page)
    for row in results.rows:
        assert command_of(row.scenario) in text
    assert """A='b c' python3 'it'"'"'s.py'""" in text


def test_markdown_tables_have_as_many_cells_as_heads(page: model.Page) -> None:
    width = 0
    for line in markdown.render(page).splitlines():
        if not line.startswith("| "):
            width = 0
            continue
        count = len(re.findall(r"(?<!\\)\|", line))
        assert count == (width or count)
        width = count


# --- the command ------------------------------------------------------------------


def test_the_command_writes_both_and_tells_where(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    done = CliRunner().invoke(main, ["report", str(small), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert done.output.split() == [str(out / "report.html"), str(out / "report.md")]
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("content", [None, '{"schema": 1}', "no JSON"])
def test_what_is_not_a_results_folder_is_one_clear_line(
    tmp_path: Path, content: str | None
) -> None:
    if content:
        (tmp_path / "machine.json").write_text(content, encoding="utf-8")
    done = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert done.exit_code == 1
    assert done.output.startswith("Error: ")
    assert len(done.output.splitlines()) == 1


def test_a_folder_that_cannot_be_written_is_an_error(small: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = CliRunner().invoke(main, ["report", str(small), "--out", str(tmp_path / "file" / "x")])
    assert done.exit_code == 1
    assert "cannot write the report" in done.output


def test_running_a_program_does_not_load_what_draws() -> None:
    code = (
        "import sys; from ebbtide_lab.cli.main import main;"
        "main(['run', '--help'], standalone_mode=False); sys.exit('matplotlib' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)


def test_help_lists_every_verb_with_its_short_help() -> None:
    done = CliRunner().invoke(main, ["--help"])
    assert done.exit_code == 0
    for verb in main.list_commands(click.Context(main)):
        assert re.search(rf"^  {verb} +\w", done.output, re.MULTILINE), verb


def test_an_unknown_verb_is_the_usual_error() -> None:
    done = CliRunner().invoke(main, ["nothing"])
    assert done.exit_code == 2
    assert "No such command 'nothing'" in done.output
