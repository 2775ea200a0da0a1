# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report in a real browser: it renders, fetches nothing, and all can reach it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
import report_data
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from ebbtide_lab.results import journal
from ebbtide_lab.show.report import files

HEIGHT = 1000
VIEWS = [(1280, "light"), (390, "dark")]
TABS = 1200
TABS_AT_ONCE = 100
FOLD = {"width": 1280, "height": 800}


@dataclass
class View:
    page: Page
    said: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [*report_data.scenarios(), *report_data.recordings()]
    where = tmp_path_factory.mktemp("results")
    folder = report_data.folder(where, rows, problem=report_data.HOSTILE)
    path = folder / "report.html"
    path.write_text(files.of_results(journal.load(folder))[files.HTML], encoding="utf-8")
    return path


@pytest.fixture(params=VIEWS, ids=lambda view: f"{view[0]}-{view[1]}")
def view(request: pytest.FixtureRequest, browser: Browser, report: Path) -> Iterator[View]:
    """With all that is folded open."""
    width, scheme = request.param
    page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
    found = View(page)
    page.on("console", lambda message: found.said.append(message.text))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.on("request", lambda request: found.fetched.append(request.url))
    page.goto(report.as_uri())
    page.get_by_role("button", name="Unfold all").click()
    page.wait_for_selector("body[data-unfolded]")
    yield found
    page.close()


@pytest.fixture
def folded(browser: Browser, report: Path) -> Iterator[Page]:
    """As it is met, at a common size."""
    page = browser.new_page(viewport=FOLD)
    page.goto(report.as_uri())
    yield page
    page.close()


# --- the first screen ---------------------------------------------------------------


def test_three_charts_and_the_losses_are_on_the_first_screen(folded: Page) -> None:
    charts = folded.locator(".first figure")
    titles = [each.locator("figcaption").inner_text() for each in charts.all()]
    assert [title.split("\n")[0] for title in titles] == [
        "Memory after a burst",
        "Speed",
        "Real programs",
    ]
    for chart in charts.all():
        box = chart.locator("svg").bounding_box()
        assert box
        assert box["width"] > 250
        assert box["y"] + box["height"] <= FOLD["height"]
    kinds = folded.locator(".losses > div")
    assert kinds.count() == 2
    for kind in kinds.all():
        box = kind.locator("h2").bounding_box()
        assert box
        assert box["y"] < FOLD["height"]
    first = kinds.first.locator("li").first
    assert first.inner_text().split()[:2] == ["broken", "failed"]
    box = kinds.first.locator("li").nth(1).bounding_box()
    assert box
    assert box["y"] + box["height"] <= FOLD["height"]


def test_every_loss_above_the_limits_is_listed(folded: Page) -> None:
    listed = {each.text_content() for each in folded.locator(".losses > div:first-child a").all()}
    assert {"lanes-small", "lanes-medium", "lanes-mixed"} <= listed  # tcmalloc is faster by 20 %
    assert "start" not in listed
    texts = folded.locator(".losses > div:first-child li b").all_text_contents()
    assert all(float(each) > 1.05 for each in texts if each != "failed")


def test_all_but_the_first_screen_is_folded(folded: Page) -> None:
    assert folded.locator("details[open]:not(.warnings)").count() == 0
    assert folded.evaluate("() => document.documentElement.scrollHeight") < 3 * FOLD["height"]


# --- what folds, filters and sorts ----------------------------------------------------


def test_a_loss_leads_to_its_workload(folded: Page) -> None:
    folded.locator(".losses a", has_text="lanes-small").first.click()
    row = folded.locator("#w-published-lanes-small")
    row.locator("table").first.wait_for()
    assert row.locator("summary").is_visible()
    assert "lanes --sizes small" in row.locator("pre").inner_text()


def test_what_is_sought_alone_is_shown(folded: Page) -> None:
    folded.locator("#cost > summary").click()
    folded.locator("#cost table").first.wait_for()
    rows = folded.locator("#cost tr[data-of]:visible")
    everything = rows.count()
    folded.fill("#find", "tail")
    assert rows.count() == 2 < everything
    assert folded.locator("#count").inner_text().startswith("2 of ")
    folded.fill("#find", "HAND off")
    assert rows.count() == 1
    folded.fill("#find", "")
    assert rows.count() == everything
    folded.select_option("#lost", "cost")
    assert 0 < rows.count() < everything
    assert rows.locator("td.loss").count() >= rows.count() - 1  # one failed
    folded.locator("#memory > summary").click()
    folded.locator("#memory table").first.wait_for()
    shown = folded.locator("#memory tr[data-of]:visible a").all_text_contents()
    assert set(shown) <= set(rows.locator("a").all_text_contents())


def test_a_heading_sorts_by_its_numbers(folded: Page) -> None:
    folded.locator("#cost > summary").click()
    table = folded.locator("#cost table").first
    head = table.locator("th[scope=col]", has_text="glibc")
    at = head.evaluate("head => head.cellIndex")
    cells = table.locator(f"tbody tr td:nth-child({at + 1})")
    for direction in ("descending", "ascending"):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == direction
        texts = [each.strip().split()[0] for each in cells.all_text_contents()]
        numbers = [float(each) for each in texts if each[0].isdigit()]
        assert numbers == sorted(numbers, reverse=direction == "descending")
        assert all(not each[0].isdigit() for each in texts[len(numbers) :])
        assert len(set(numbers)) > 5


def test_the_list_has_other_orders(folded: Page) -> None:
    folded.locator("#workloads > summary").click()
    names = folded.locator("#list h3")
    before = names.all_text_contents()
    folded.select_option("#order", "name")
    assert names.first.text_content() == "003-random-mixed"
    assert sorted(names.all_text_contents()) == sorted(before)
    folded.select_option("#order", "cost")
    rows = folded.locator("#list > [data-cost]")
    costs = rows.evaluate_all("rows => rows.map(row => Number(row.dataset.cost))")
    assert costs == sorted(costs, reverse=True)
    folded.select_option("#order", "")
    assert names.all_text_contents() == before


# --- everything unfolded --------------------------------------------------------------


def test_it_renders_quietly_and_fetches_nothing(view: View, report: Path, tmp_path: Path) -> None:
    shot = tmp_path / "report.png"
    view.page.screenshot(path=shot, full_page=True)
    assert shot.stat().st_size > 100_000
    assert view.said == []
    fetched = [url for url in view.fetched if not url.startswith("data:")]
    assert fetched == [report.as_uri()]


def test_the_page_does_not_scroll_sideways(view: View) -> None:
    wide = view.page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide[0] == wide[1]
    view.page.evaluate("() => window.scrollTo(500, 0)")
    assert view.page.evaluate("() => window.scrollX") == 0


def test_what_is_wide_scrolls_in_a_region_of_its_own(view: View) -> None:
    """Whatever sticks out of the window is inside a region that Tab reaches."""
    strays = view.page.evaluate(
        """() => [...document.querySelectorAll('main *, header *, footer *')]
            .filter(each => each.getBoundingClientRect().right > innerWidth + 1)
            .filter(each => !each.closest('[role=region][tabindex="0"][aria-label]'))
            .filter(each => !each.closest('.unseen, svg'))
            .map(each => each.outerHTML.slice(0, 120))"""
    )
    assert strays == []


def test_tab_reaches_every_table(view: View) -> None:
    regions = view.page.locator(".wide").count()
    tables = view.page.locator("table").count()
    assert regions == tables > 30
    view.page.evaluate(
        """() => { window.met = new Set(); document.addEventListener('focusin',
            event => { if (event.target.matches('.wide')) met.add(event.target) }) }"""
    )
    for _ in range(TABS // TABS_AT_ONCE):
        for _ in range(TABS_AT_ONCE):
            view.page.keyboard.press("Tab")
        if view.page.evaluate("() => met.size") == tables:
            return
    pytest.fail(f"{TABS} presses of Tab did not reach every table")


def test_published_tables_have_their_notes(view: View) -> None:
    section = view.page.locator("#published-tables")
    assert section.locator("h2").is_visible()
    assert section.locator("table").count() > 3
    assert section.locator(".foot + ol").first.get_by_role("listitem").count() > 1


def test_focus_is_seen_and_the_skip_link_comes_first(folded: Page) -> None:
    folded.keyboard.press("Tab")
    assert folded.evaluate("() => document.activeElement.className") == "skip"
    box = folded.locator(".skip").bounding_box()
    assert box
    assert box["x"] >= 0
    style = "() => getComputedStyle(document.activeElement).outlineStyle"
    assert folded.evaluate(style) == "solid"
    folded.keyboard.press("Enter")
    folded.keyboard.press("Tab")
    assert folded.evaluate("() => !!document.activeElement.closest('main')")


def test_headings_are_in_order(view: View) -> None:
    levels = view.page.evaluate(
        "() => [...document.querySelectorAll('h1,h2,h3,h4')].map(each => +each.tagName[1])"
    )
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_letters_of_charts_can_be_read(view: View) -> None:
    least = view.page.evaluate(
        """() => Math.min(...[...document.querySelectorAll('.chart text')].map(each =>
            parseFloat(getComputedStyle(each).fontSize) * each.ownerSVGElement.clientWidth
            / each.ownerSVGElement.viewBox.baseVal.width))"""
    )
    assert least >= 9


def test_letters_of_charts_stay_inside(view: View) -> None:
    outside = view.page.evaluate(
        """() => [...document.querySelectorAll('.chart text')].filter(each => {
            const text = each.getBoundingClientRect();
            const box = each.ownerSVGElement.getBoundingClientRect();
            return text.left < box.left - 1 || text.right > box.right + 1
                || text.top < box.top - 1 || text.bottom > box.bottom + 1;
        }).map(each => each.textContent)"""
    )
    assert outside == []


def test_axe_finds_no_violation(view: View) -> None:
    found = Axe().run(view.page)
    told = [
        f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:160]}"
        for each in found.response["violations"]
    ]
    assert told == []
    assert len(found.response["passes"]) > 20
