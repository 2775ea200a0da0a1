# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report in a real browser: it renders, fetches nothing, and all can reach it."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
import report_data
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from ebbtide_lab.results import journal
from ebbtide_lab.show.report import html, model

BROWSER = "chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
HEIGHT = 1000
VIEWS = [(1280, "light"), (390, "light"), (1280, "dark")]
TABS = 400
TABS_AT_ONCE = 50


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
    path.write_text(html.render(model.page(journal.load(folder))), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A missing browser fails the tests: a check that did not run proves nothing."""
    path = shutil.which(BROWSER)
    assert path, f"{BROWSER} is not installed; `apt-get install {BROWSER}` installs it"
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(params=VIEWS, ids=lambda view: f"{view[0]}-{view[1]}")
def view(request: pytest.FixtureRequest, browser: Browser, report: Path) -> Iterator[View]:
    width, scheme = request.param
    page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
    found = View(page)
    page.on("console", lambda message: found.said.append(message.text))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.on("request", lambda request: found.fetched.append(request.url))
    page.goto(report.as_uri())
    yield found
    page.close()


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


def test_the_navigation_leads_to_the_published_tables(view: View) -> None:
    view.page.get_by_role("link", name="Published tables").click()
    assert view.page.evaluate("() => scrollY") > HEIGHT
    section = view.page.get_by_role("region", name="The published tables", exact=True)
    assert section.locator("h2").is_visible()
    assert section.locator("table").count() > 3
    assert section.locator(".foot + ol").first.get_by_role("listitem").count() > 1


def test_focus_is_seen_and_the_skip_link_comes_first(view: View) -> None:
    view.page.keyboard.press("Tab")
    assert view.page.evaluate("() => document.activeElement.className") == "skip"
    box = view.page.locator(".skip").bounding_box()
    assert box
    assert box["x"] >= 0
    style = "() => getComputedStyle(document.activeElement).outlineStyle"
    assert view.page.evaluate(style) == "solid"
    view.page.keyboard.press("Enter")
    view.page.keyboard.press("Tab")
    assert view.page.evaluate("() => !!document.activeElement.closest('main')")


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
