# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb bench safety: the misuse of tests/security under each allocator."""

import io
from collections import Counter

import pytest
from click.testing import CliRunner
from conftest import invoke
from rich.console import Console

from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli.main import main
from ebbtide_lab.measure.safety import Case, Catalogue
from ebbtide_lab.show.safety import print_catalogues

needs_cases = pytest.mark.skipif(
    not (Layout.of(None, None).build / "release/tests/security").is_file(),
    reason="the cases of misuse are not built",
)


def case(verdict: str, clean: str = "ok") -> Case:
    size = {"fault": verdict, "clean": clean, "harm": False}
    return {"name": "x", "family": "f", "verdict": verdict, "sizes": {"24": size}}


def catalogue(name: str, *cases: Case) -> Catalogue:
    return Catalogue(Allocator(name, None, "1.0"), {}, list(cases))


def test_what_does_not_apply_is_not_counted_and_false_reports_are() -> None:
    one = catalogue("a", case("at once"), case("later", "hang"), case("skip"), case("false report"))
    two = catalogue("b", case("at once"), case("at once"), case("missed"), case("hang"))
    assert one.bad() == 2
    assert two.counts() == Counter({"at once": 2, "missed": 1, "hang": 1})
    out = io.StringIO()
    print_catalogues([one, two], Console(file=out, width=120))
    rows = [line.split() for line in out.getvalue().splitlines() if "1.0" in line]
    figures = [[cell for cell in row if cell.isdigit()] for row in rows]
    assert figures == [["2", "0", "1", "1", "4", "0"], ["1", "1", "0", "0", "3", "2"]]


@needs_cases
def test_cases_run_under_each_and_with_the_checks() -> None:
    done = CliRunner().invoke(main, ["bench", "safety/^zero", "--arms", "ebbtide,glibc"])
    assert done.exit_code == 0, done.output
    for words in ("ebbtide EBB_CHECK=1", "glibc", "zero size"):
        assert words in done.output


@pytest.mark.parametrize(
    "arguments", [["safety", "quick"], ["safety", "--runs", "3"], ["safety", "--", "true"]]
)
def test_it_stands_alone(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["bench", *arguments])
    assert done.exit_code == 2
    assert "Error: " in done.output


def test_a_missing_allocator_is_told(layout: Layout) -> None:
    assert (
        "no allocator is called 'nobody'"
        in invoke(layout, "bench", "safety", "--arms", "nobody").output
    )
