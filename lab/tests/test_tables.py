# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the terminal shows: nothing is cut, and all ratios point in one direction."""

import io
import re
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import report_data
from conftest import arm, row, sample
from rich.console import Console

from ebbtide_lab.arms.allocators import FLOOR
from ebbtide_lab.machine import card
from ebbtide_lab.results import journal
from ebbtide_lab.results.model import Results
from ebbtide_lab.show import console as consoles
from ebbtide_lab.show import published, tables
from ebbtide_lab.show.fit import Grid, codes
from ebbtide_lab.show.units import DIRECTION, short, shown

WIDTHS = [80, 120, 160, 200]
LONGEST_HEADING = 25
LONG = "crossbeam-with-a-long-name/mimalloc2"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    found = journal.load(report_data.folder(tmp_path_factory.mktemp("results")))
    wide = next(each for each in found.rows if each.scenario.name == "lanes-small")
    wide.samples[LONG] = wide.samples["tcmalloc"]
    wide.scenario = replace(wide.scenario, name="lanes-" + "s" * 70)
    return replace(found, arms=[*found.arms, arm(LONG)], facts=card.card())


def printed(results: Results, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    tables.print_allocators(results.arms, console)
    tables.print_results(results, console)
    published.print_tables(results, console)
    return console.export_text()


def pieces(results: Results) -> set[str]:
    """The names and figures of the data, as they are written."""
    found = {each.name for each in results.arms} | {str(each.path) for each in results.arms[1:]}
    for each in results.rows:
        found.add(each.scenario.name)
        for name in each.samples:
            if name == "ebbtide-again":
                continue
            values = shown(each, each.costs(name))
            found.add(short(median(values)))
            found.add(f"({short(min(values))}..{short(max(values))})")
            rss = each.figure(name, "peak_rss_kb")
            if rss and name != FLOOR:
                found.add(f"{median(rss) * 1024e-6:.1f}")
    for table in published.tables(results):
        found |= {word for cells in table.rows for cell in cells for word in cell.split()}
    return found - {"None"}


@pytest.mark.parametrize("width", WIDTHS)
def test_every_name_and_figure_appears_whole(results: Results, width: int) -> None:
    text = printed(results, width)
    words = set(text.split())
    assert "…" not in text
    missing = {each for each in pieces(results) if each not in words and each not in text}
    assert missing == set()


@pytest.mark.parametrize("width", WIDTHS)
def test_only_one_long_piece_makes_a_line_wider_than_the_window(
    results: Results, width: int
) -> None:
    for line in printed(results, width).splitlines():
        assert len(line) <= width or max(map(len, line.split())) > width - LONGEST_HEADING


def test_a_table_that_does_not_fit_becomes_entries() -> None:
    grid = Grid("title", ["name", "first", "second"], rows=[["x" * 50, "1" * 30, "-"]])
    console = Console(width=60, record=True, file=io.StringIO())
    grid.print(console)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert lines == ["title", "x" * 50, f"  first {'1' * 30}"]


def brief(width: int) -> list[str]:
    heads = ["workload", "ebbtide", "mimalloc3", "of the best", "peer"]
    rows = [
        ["lanes", "1.25", "13.0", "1.10", "mimalloc3"],
        ["x" * 30, "7.00", "[red]failed[/]", "-", "-"],
    ]
    grid = Grid("title", heads, rows=rows, brief=codes(["ebbtide", "mimalloc3", "glibc"]))
    console = Console(width=width, record=True, file=io.StringIO())
    grid.print(console)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_brief_table_has_one_line_for_each_row_and_a_legend() -> None:
    assert brief(50) == [
        "title",
        "eb=ebbtide, mi3=mimalloc3",
        "workload           eb    mi3 of the best peer",
        "lanes            1.25   13.0        1.10  mi3",
        "x" * 30,
        "                 7.00 failed           -    -",
    ]
    assert brief(42)[2:5] == [  # the words of a heading stand one above the other
        "                             of",
        "                            the",
        "workload         eb    mi3 best peer",
    ]


def test_a_brief_table_goes_on_below_where_its_columns_do_not_fit() -> None:
    lines = brief(24)
    assert [line.split() for line in lines if line.startswith(("workload", "lanes"))] == [
        ["workload", "eb", "mi3"],
        ["lanes", "1.25", "13.0"],
        ["workload", "best", "peer"],
        ["lanes", "1.10", "mi3"],
    ]
    assert max(len(line) for line in lines if line != "x" * 30) <= 25


def test_a_brief_table_that_fits_is_drawn() -> None:
    assert any("┃ mimalloc3 ┃" in line for line in brief(120))


def test_short_forms_are_told_apart() -> None:
    names = ["jemalloc", "jemalloc531", "mimalloc2", "mimalloc3", "crossbeam/mimalloc2", "tcmalloc"]
    names += ["ebbtide", "ebbtide-again", "ebbtide+per-request", "ebbtide+per-thread"]
    short_forms = codes(names)
    assert len(set(short_forms.values())) == len(names)
    assert short_forms["jemalloc531"] == "je5"
    assert short_forms["crossbeam/mimalloc2"] == "cr/mi2"


def test_below_160_columns_each_table_of_peers_has_a_line_a_workload(results: Results) -> None:
    lines = printed(results, 120).splitlines()
    medians = lines[lines.index("Median") + 1 : lines.index("Least and most")]
    named = [line.split()[0] for line in medians if line[:1].isalnum() and " ns per op" in line]
    assert "hand-off" in named
    blocks = sum(line.startswith("workload") for line in medians)
    assert named.count("hand-off") == blocks


def test_what_is_longer_than_a_line_stays_in_one_piece() -> None:
    console = Console(width=40, record=True, file=io.StringIO())
    Grid("title", ["name", "path"], rows=[["a", "/" + "p" * 70]]).print(console)
    assert "/" + "p" * 70 in console.export_text()


def test_every_table_with_ratios_is_followed_by_its_direction(results: Results) -> None:
    text = printed(results, 200)
    shown = len(published.tables(results))
    assert text.count(DIRECTION) == 2 + shown
    assert "time over a peer's" in text


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_fewer_than_three_runs_show_no_interval(runs: int) -> None:
    arms = ("ebbtide", "glibc", "ebbtide-again")
    found = row({name: [sample(2.0)] * runs for name in arms})
    console = Console(width=200, record=True, file=io.StringIO())
    tables.print_results(Results([found], list(map(arm, arms)), card.card()), console)
    (line,) = [each for each in console.export_text().splitlines() if re.search(r"1\.00 \(", each)]
    assert line.count("n/a") == (0 if runs == 3 else 2)
    assert line.count("1.00..1.00") == (2 if runs == 3 else 0)


def test_a_file_is_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr("sys.stdout", log)
        monkeypatch.setenv("COLUMNS", "93")
        assert consoles.open_console().width == 93
        monkeypatch.delenv("COLUMNS")
        assert consoles.open_console().width == consoles.LOG_COLUMNS
