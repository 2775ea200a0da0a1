# SPDX-License-Identifier: MIT OR Apache-2.0
"""The page of `ebb profile --html` in a real browser, with thousands of stacks."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from click.testing import CliRunner
from playwright.sync_api import Browser, Locator, Page, expect
from profile_data import Maker

from ebbtide_lab.cli.main import main

VIEWS = [(1280, "light"), (390, "dark")]
STACKS = 5000
FUNCTIONS = 100
DEPTH = 30
WANTED = "needle"


def draw(maker: Maker, folder: Path, *options: str) -> Path:
    out = folder / "page.html"
    path = maker.write(folder / "heap.pb")
    done = CliRunner().invoke(main, ["profile", str(path), "--html", str(out), *options])
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    maker, choose = Maker(), random.Random(7)
    for _ in range(STACKS):
        calls = [f"work_{choose.randrange(FUNCTIONS)}" for _ in range(choose.randrange(3, DEPTH))]
        maker.stack(" ".join(["main", *calls]), choose.randrange(8, 1 << 20))
    maker.stack(f"main {WANTED} leaf", 1 << 30)
    return draw(maker, tmp_path_factory.mktemp("large"))


@pytest.fixture(params=VIEWS, ids=lambda view: f"{view[0]}-{view[1]}")
def page(request: pytest.FixtureRequest, browser: Browser, large: Path) -> Iterator[Page]:
    """One that says or fetches something has failed."""
    width, scheme = request.param
    found = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    found.on("console", lambda message: said.append(message.text))
    found.on("pageerror", lambda error: said.append(str(error)))
    found.on("request", lambda sent: said.append(sent.url) if sent.url != large.as_uri() else None)
    found.goto(large.as_uri())
    yield found
    found.close()
    assert [each for each in said if not each.startswith("data:")] == []


def box(page: Page, name: str) -> Locator:
    return page.locator("#graph button", has_text=name).first


def width_of(found: Locator) -> float:
    place = found.bounding_box()
    assert place
    return place["width"]


def test_widths_are_shares_of_the_whole(page: Page) -> None:
    whole = width_of(box(page, "main"))
    told = box(page, WANTED).get_attribute("aria-label") or ""
    share = float(told.split(",")[1].removesuffix(" %")) / 100
    assert width_of(box(page, WANTED)) / whole == pytest.approx(share, abs=0.01)


def test_a_click_makes_a_box_as_wide_as_the_page_and_back(page: Page) -> None:
    before, whole = width_of(box(page, WANTED)), width_of(box(page, "main"))
    assert before < 0.9 * whole
    box(page, WANTED).click()
    assert width_of(box(page, WANTED)) == pytest.approx(whole, abs=1)
    page.get_by_role("button", name="Show all").click()
    assert width_of(box(page, WANTED)) == pytest.approx(before, abs=1)


def test_keys_do_what_a_click_does(page: Page) -> None:
    whole = width_of(box(page, "main"))
    box(page, WANTED).focus()
    page.keyboard.press("Enter")
    assert width_of(box(page, WANTED)) == pytest.approx(whole, abs=1)


def test_a_search_marks_and_counts(page: Page) -> None:
    page.get_by_role("searchbox").fill("NEEDLE")
    expect(page.locator("#graph .found")).to_have_count(1)
    expect(page.locator("#count")).to_contain_text("1 functions, 1.00 GiB")
    page.get_by_role("searchbox").fill("no such name")
    expect(page.locator("#graph .found")).to_have_count(0)
    expect(page.locator("#count")).to_contain_text("0 functions")


def test_boxes_that_nobody_can_see_are_not_drawn(page: Page) -> None:
    assert 10 < page.locator("#graph button").count() < STACKS


def test_nothing_overflows_and_all_can_reach_it(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_a_very_deep_stack_is_drawn(browser: Browser, tmp_path: Path) -> None:
    maker = Maker()
    maker.stack(" ".join(f"call_{at}" for at in range(3000)), 64)
    found = browser.new_page()
    found.goto(draw(maker, tmp_path).as_uri())
    expect(found.locator("#graph button")).to_have_count(3001)
    found.close()
