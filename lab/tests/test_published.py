# SPDX-License-Identifier: MIT OR Apache-2.0
import io
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import arm
from rich.console import Console

from ebbtide_lab.arms import allocators
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli.main import main
from ebbtide_lab.measure import execute
from ebbtide_lab.measure.session import plan
from ebbtide_lab.published import model
from ebbtide_lab.published.model import Document, Line
from ebbtide_lab.results.journal import Journal
from ebbtide_lab.results.model import Histogram, Results, Row, Sample
from ebbtide_lab.scenarios import model as scenarios
from ebbtide_lab.scenarios.model import Scenario
from ebbtide_lab.show import published, published_figures

DOCUMENTS = {each.number: each for each in model.load_all()}
SETS = {name: scenarios.load_all()[name] for name in model.SETS}
SCENARIOS = {each.name: each for group in SETS.values() for each in group.scenarios}
HOURS = {each.name for each in SETS["hours"].scenarios}
LINES = [line for each in DOCUMENTS.values() for table in each.tables for line in table.lines]
# Small enough for a test; the figures that a run tells do not depend on them.
SMALL = {
    "--iters": "2000",
    "--timed": "100",
    "--run-ms": "200",  # enough for each thread to work where others do, too
    "--requests": "100",
    "--rate": "20000",
    "--sample-ms": "5",
    "--seconds": "1",
}
# The numbered sections of the documents that hold tables or figures.
SECTIONS = {
    "001": ["1.1", "1.2", "2.1", "2.2", "3.1", "3.2", "4.1", "4.2", "8"],
    "003": ["1", "1.1", "1.2", "2.1", "2.2", "2.3", "3", "3.2", "4.1", "4.2", "4.3"],
    "004": ["1", "2", "3", "4", "5", "7", "10", "12"],
}
# What each claim that does not hold must be answered with: a word of the claim's document.
ANSWERED = [
    ("000", "price of the two clock readings"),
    ("000", "store-load fence"),
    ("000", "9.8 ns"),
    ("000", "price of an empty pair of readings taken off"),
    ("001", "working-set argument"),
    ("001", "sleep of 1 s"),
    ("002", "do not wrap"),
    ("002", "slab counters are the same"),
    ("003", "1.47 %"),
    ("003", "holds for glibc and mimalloc too"),
    ("004", "malloc never reads tags"),
]


# --- the data ---------------------------------------------------------------------


def test_every_scenario_of_a_table_is_in_a_set_and_every_one_of_the_sets_in_a_table() -> None:
    named = {name for line in LINES for name in line.measured}
    assert named == set(SCENARIOS)


def test_every_line_is_measured_or_has_a_reason() -> None:
    for line in LINES:
        assert bool(line.measured) != bool(line.reason), line


def test_all_but_the_hours_are_of_the_one_run() -> None:
    """A line of an hour has a shorter one beside it, in the same document."""
    one_run = {each.name for each in SETS["published"].scenarios}
    for line in LINES:
        assert set(line.measured) <= one_run or set(line.measured) <= HOURS, line
    for document in DOCUMENTS.values():
        lines = [line for table in document.tables for line in table.lines]
        hours = {line.figure for line in lines if line.scenario in HOURS}
        assert hours <= {line.figure for line in lines if line.scenario in one_run}


def test_the_hours_are_no_part_of_the_full_session() -> None:
    assert "hours" not in {group.name for group in scenarios.select(["full"])}
    assert [group.name for group in scenarios.select(["hours"])] == ["hours"]
    assert all(each.estimate_s >= 3600 for each in SETS["hours"].scenarios)


@pytest.mark.parametrize("number", SECTIONS)
def test_every_section_with_figures_has_its_table(number: str) -> None:
    told = [*(table.title for table in DOCUMENTS[number].tables), *(_labels(number))]
    words = {word.strip("(),") for text in told for word in text.split()}
    assert set(SECTIONS[number]) <= words


def _labels(number: str) -> list[str]:
    return [line.label for table in DOCUMENTS[number].tables for line in table.lines]


def test_documents_are_the_five_systems() -> None:
    assert list(DOCUMENTS) == ["000", "001", "002", "003", "004"]


@pytest.mark.parametrize(("number", "words"), ANSWERED)
def test_claims_that_do_not_hold_are_answered_where_they_are_shown(number: str, words: str) -> None:
    document = DOCUMENTS[number]
    (name,) = [name for name, text in document.remarks.items() if words in text]
    assert name in _used(document)


@pytest.mark.parametrize("number", DOCUMENTS)
def test_no_remark_and_no_reason_is_left_unused(number: str) -> None:
    document = DOCUMENTS[number]
    assert _used(document) == {*document.remarks, *document.reasons}


def _used(document: Document) -> set[str]:
    by_line = {name for table in document.tables for line in table.lines for name in line.notes}
    return by_line | {name for table in document.tables for name in table.remarks}


def test_every_line_of_reclamation_is_measured_by_a_scheme() -> None:
    reclamation = [line for table in DOCUMENTS["000"].tables for line in table.lines]
    assert all(SCENARIOS[line.scenario].kind == "scheme" for line in reclamation)
    assert "mutex/mimalloc2" in SETS["published"].arms


def test_every_published_policy_is_an_arm_where_its_table_is_measured() -> None:
    (matrix,) = [table for table in DOCUMENTS["002"].tables if "per-request" in table.columns]
    arms = SETS["published"].arms
    assert {f"ebbtide+{policy}" for policy in matrix.columns} <= set(arms)
    assert all(SCENARIOS[line.scenario].scoped for line in matrix.lines)


def test_the_set_fits_its_time() -> None:
    group = SETS["published"]
    arms = [
        replace(arm(name), scheme=_scheme(name), way=name.partition("+")[2]) for name in group.arms
    ]
    spent_s = sum(step.scenario.estimate_s for step in plan([group], {"published": arms}, None))
    assert 1200 < spent_s <= 2400


def _scheme(name: str) -> str:
    return name.partition("/")[0] if name.startswith("ebbtide") or "/" in name else ""


Shape = tuple[str, ...]


def _shape(scenario: Scenario) -> Shape:
    """What decides which figures a run has: the program and the names of its options."""
    options = [word for word in scenario.command if word.startswith("--")]
    return scenario.kind, scenario.command[0], *options


@pytest.fixture(scope="module")
def told() -> dict[Shape, set[str]]:
    """The figures and histograms of each shape of a run, by one tiny run under glibc; of
    schemes, by one of Ebbtide; of scoped rows, by one more of a policy."""
    layout = Layout.of(None, None)
    glibc = allocators.find("glibc", layout)
    ebbtide = allocators.find("ebbtide", layout)
    if ebbtide.problem:
        pytest.skip(ebbtide.problem)
    found = {}
    for shape, each in {_shape(each): each for each in SCENARIOS.values()}.items():
        policies = [replace(ebbtide, way="never")] if each.scoped else []
        arms = [ebbtide if each.kind == "scheme" else glibc, *policies]
        assert not any(arm.problem for arm in arms)
        runs = [execute.run(_small(each), arm, layout) for arm in arms]
        found[shape] = {name for run in runs for name in (*run.figures, *run.histograms)}
    return found


def _small(scenario: Scenario) -> Scenario:
    command = list(scenario.command)
    for name, value in SMALL.items():
        if name in command:
            command[command.index(name) + 1] = value
    epochs = ["--epoch-ms", "50"] if command[0] == "soak" else []
    return replace(scenario, command=command + epochs)


def test_every_figure_of_a_table_is_told_by_its_program(told: dict[Shape, set[str]]) -> None:
    for line in LINES:
        for name in line.measured:
            assert line.figure in told[_shape(SCENARIOS[name])], line


GOOD = """
title = "test"
[remarks]
one = "a remark"
[reasons]
none = "there is none"
[[table]]
title = "rates"
unit = "M"
columns = ["old"]
figure = "rate"
line = [{ label = "first", published = ["1"], scenario = "s", remarks = ["one"] }]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('published = ["1"]', 'published = ["1", "2"]', "2 published figures for 1 columns"),
        ('scenario = "s"', 'sped = "s"', "unexpected keyword .* 'sped'"),
        ('scenario = "s"', 'scenario = "s", reason = "none"', "either a scenario or the reason"),
        ('scenario = "s", ', "", "either a scenario or the reason"),
        ('scenario = "s"', 'reason = "other"', "no reason is called other"),
        ('none = "there', 'one = "there', "a remark and a reason have the same name"),
        ('figure = "rate"', "", "the figure is missing"),
        ('figure = "rate"', 'figure = "rate"\nstatistic = "mode"', "unknown statistic"),
        ('figure = "rate"', 'figure = "rate"\nstatistic = "change"', "`against` belongs"),
        ('figure = "rate"', 'figure = "rate"\nstatistic = "run"', "`at` belongs"),
        ('scenario = "s"', 'scenario = "s", at = 3', "`at` belongs"),
        ('remarks = ["one"]', 'remarks = ["two"]', "no remark is called two"),
        ('title = "test"', "", "'title' is missing"),
        ("[remarks]", "[remarks", "cannot read"),
    ],
)
def test_a_bad_document_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(LabError, match=message):
        model.load(path)


def test_a_good_document_loads(tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    assert model.load(path).tables[0].lines[0].figure == "rate"


# --- figures ----------------------------------------------------------------------


def _row(name: str, **arms: list[float]) -> Row:
    """A row of the set, where each arm's runs had these rates."""
    samples = {
        arm.replace("_", "-"): [Sample({"mops_per_wall_s": value}) for value in values]
        for arm, values in arms.items()
    }
    return Row("published", SCENARIOS[name], samples)


def _line(statistic: str = "median", **others: str | float | list[str]) -> Line:
    return Line("x", [], "003-random-mixed", "mops_per_wall_s", statistic, **others)


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [("median", 4), ("mean", 5), ("min", 2), ("max", 10), ("stddev", 3), ("cv", 60)],
)
def test_statistics(statistic: str, expected: float) -> None:
    rows = {"003-random-mixed": _row("003-random-mixed", ebbtide=[2, 4, 4, 10])}
    found = published_figures.figure_of(_line(statistic), rows, "ebbtide")
    assert found == pytest.approx(expected)


def test_change_and_share() -> None:
    rows = {
        "003-random-mixed": _row("003-random-mixed", ebbtide=[110], mimalloc=[220]),
        "003-tail": _row("003-tail", ebbtide=[100]),
    }
    change = _line("change", against="003-tail")
    assert published_figures.figure_of(change, rows, "ebbtide") == pytest.approx(10)
    assert published_figures.figure_of(change, rows, "mimalloc") is None
    share = _line(relative_to="mimalloc")
    assert published_figures.figure_of(share, rows, "ebbtide") == pytest.approx(50)
    assert published_figures.figure_of(_line(relative_to="gone"), rows, "ebbtide") is None


def test_one_run_and_how_many_ended_well() -> None:
    rows = {"003-random-mixed": _row("003-random-mixed", ebbtide=[2, 5])}
    found = [
        published_figures.figure_of(line, rows, "ebbtide")
        for line in (_line("run", at=2), _line("run", at=3), _line("count"))
    ]
    assert found == [5, None, 2]


def test_a_share_is_of_the_other_scenario_and_a_mean_over_all_that_are_named() -> None:
    names = ("003-random-mixed", "003-tail")
    rows = {
        names[0]: _row(names[0], ebbtide=[50], glibc=[100]),
        names[1]: _row(names[1], ebbtide=[200], glibc=[100]),
    }
    share = _line("share", against="003-tail")
    assert published_figures.figure_of(share, rows, "ebbtide") == pytest.approx(25)
    both = _line(also=["003-tail"], relative_to="glibc")
    assert published_figures.figure_of(both, rows, "ebbtide") == pytest.approx(125)
    del rows["003-tail"]
    assert published_figures.figure_of(both, rows, "ebbtide") is None


@pytest.mark.parametrize(
    ("statistic", "at", "expected"),
    [("percentile", 90, 20), ("below", 20, 75), ("below", 10, 0), ("below", 21, 100)],
)
def test_statistics_of_histograms_are_over_all_runs(
    statistic: str, at: float, expected: float
) -> None:
    runs = [
        Sample({}, histograms={"ns": Histogram(1, 1000, 3, counts)})
        for counts in ([(10, 3)], [(20, 1)])
    ]
    row = Row("published", SCENARIOS["003-random-mixed"], {"ebbtide": runs})
    line = Line("x", [], "003-random-mixed", "ns", statistic, at=at)
    found = published_figures.figure_of(line, {"003-random-mixed": row}, "ebbtide")
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(("better", "best", "ratio"), [("more", "b", 2), ("less", "a", 5)])
def test_the_best_peer_and_the_ratio_follow_the_direction(
    better: str, best: str, ratio: float
) -> None:
    measured = _row(
        "003-random-mixed", ebbtide=[50], a=[10], b=[100], floor=[1000 if better == "more" else 1]
    )
    rows = {"003-random-mixed": measured}
    line = _line(better=better)
    assert published_figures.best(line, rows, ["a", "b", "floor"]) == best
    assert published_figures.ratio(line, rows, "ebbtide", best) == pytest.approx(ratio)


# --- tables -----------------------------------------------------------------------

NAMES = ("ebbtide", "glibc", "mimalloc", "ebbtide-again")


def _results(*rows: Row) -> Results:
    return Results(list(rows), [*map(arm, NAMES), arm("snmalloc", "does not build")], {})


def _shown(results: Results, width: int = 140) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    published.print_tables(results, console)
    return console.export_text()


def _ten_runs() -> Row:
    return _row(
        "003-random-mixed",
        ebbtide=[100, 110],
        glibc=[80, 80],
        mimalloc=[50, 52],
        ebbtide_again=[105, 105],
    )


def test_nothing_is_shown_when_nothing_of_the_set_was_measured() -> None:
    other = Row("quick", SCENARIOS["003-random-mixed"], _ten_runs().samples)
    assert _shown(_results(other)) == ""
    assert published.markdown(_results(other)) == ""


def test_a_table_has_the_published_figure_todays_and_the_notes() -> None:
    found = {table.title: table for table in published.tables(_results(_ten_runs()))}
    table = found["1, 2.1 and A.3 random-mixed, 400 slots, 20 M operations, ten runs"]
    assert table.headings == [
        "",
        "published: hakmem",
        "published: mimalloc",
        "Ebbtide",
        "to best",
        "glibc",
        "mimalloc",
    ]
    assert table.rows[0] == ["mean", "59.184", "120.466", "105", "0.76", "80.0*", "51.0"]
    assert table.rows[5][0] == "CV, % [1,2]"
    assert table.rows[7][3:] == ["not measured", "-", "-", "-"]
    assert table.rows[7][0] == "the same in phase 48 [4]"
    assert "109.69 M" in table.notes[1]
    assert table.notes[3].startswith("Cannot be measured here: it compares two builds")
    assert (table.runs, table.noise) == ("2", "1.00..1.00")


def test_tables_without_a_measured_row_are_left_out_but_for_what_nothing_measures() -> None:
    found = published.tables(_results(_ten_runs(), _row("004-hand-off-t2-r0", ebbtide=[1])))
    assert {table.number for table in found} == {"003", "004"}
    titles = {table.title for table in found}
    assert "4 and 5 by function" in titles
    assert "4.2 drift" not in titles


def _group_of(name: str) -> str:
    return "hours" if name in HOURS else "published"


def test_every_table_of_every_document_is_shown_with_both_sets() -> None:
    rows = [replace(_row(name, ebbtide=[1]), group=_group_of(name)) for name in SCENARIOS]
    found = published.tables(_results(*rows))
    assert {table.number for table in found} == set(DOCUMENTS)
    assert sum(len(each.tables) for each in DOCUMENTS.values()) == len(found)


def test_missing_failed_and_absent_are_told_apart() -> None:
    row = _ten_runs()
    del row.samples["glibc"]
    row.failures["glibc"] = "ended by SIGSEGV"
    found = {table.title: table for table in published.tables(_results(row))}
    rows = found["3 and 4.3 'tail latency', measured as latency"].rows
    assert rows[0][3:] == ["4.76", "2.43", "failed", "1.96*"]
    assert rows[1][3:] == ["-", "-", "-", "-"]
    text = _shown(_results(row))
    assert "missing: snmalloc: does not build" in text
    assert "failed" in text


def test_an_ebbtide_that_failed_is_shown_as_failed() -> None:
    row = _ten_runs()
    row.failures["ebbtide"] = "ended by SIGSEGV"
    (table,) = [each for each in published.tables(_results(row)) if each.title.startswith("1, 2.1")]
    assert table.rows[0][3:] == ["failed", "-", "80.0*", "51.0"]
    assert table.noise == ""


@pytest.mark.parametrize("width", [60, 100, 140])
def test_the_terminals_tables_fit_the_width_and_keep_every_cell(width: int) -> None:
    text = _shown(_results(_ten_runs()), width)
    assert max(map(len, text.splitlines())) <= width
    for cell in ("59.184", "120.466", "80.0*", "51.0", "[1,2]"):
        assert cell in text


def test_columns_are_split_with_the_label_in_every_block() -> None:
    (table,) = [
        each for each in published.tables(_results(_ten_runs())) if each.title.startswith("1, 2.1")
    ]
    blocks = published.split(table, 60)
    assert len(blocks) > 1
    assert all(block[0] == 0 for block in blocks)
    assert [at for block in blocks for at in block[1:]] == list(range(1, len(table.headings)))


def test_markdown_has_whole_rows_and_plain_text() -> None:
    text = published.markdown(_results(_ten_runs()))
    (row,) = [line for line in text.splitlines() if line.startswith("| mean | 59.184")]
    assert row == "| mean | 59.184 | 120.466 | 105 | 0.76 | 80.0\\* | 51.0 |"
    assert "| CV, % \\[1,2\\] |" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith(" |") for line in table)


# --- ebb published ----------------------------------------------------------------


def _folder(path: Path, group: str) -> Path:
    journal = Journal(path, list(map(arm, NAMES)))
    row = _ten_runs()
    for name, samples in row.samples.items():
        for each in samples:
            journal.write(group, row.scenario, name, each)
    journal.close()
    return path


def test_the_command_prints_the_tables_of_a_folder(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "found", "published")
    done = CliRunner().invoke(main, ["published", str(folder)])
    assert done.exit_code == 0
    assert "59.184" in done.output
    as_text = CliRunner().invoke(main, ["published", "--markdown", str(folder)])
    assert as_text.output.startswith("## Published 003")


@pytest.mark.parametrize(
    ("group", "message"), [("quick", "holds no run of the set published"), ("", "cannot read")]
)
def test_a_folder_without_published_figures_is_a_clear_error(
    tmp_path: Path, group: str, message: str
) -> None:
    folder = _folder(tmp_path / "found", group) if group else tmp_path
    done = CliRunner().invoke(main, ["published", str(folder)])
    assert done.exit_code == 1
    assert message in done.output
