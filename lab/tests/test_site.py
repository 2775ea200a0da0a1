# SPDX-License-Identifier: MIT OR Apache-2.0
"""The documentation site builds, its links lead somewhere, and it has all that users meet."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from ebbtide_lab.base.layout import find_root
from ebbtide_lab.cli.main import VERBS

ROOT = find_root()
DOCS = ROOT / "docs"
LEAST_PAGES = 50
BEHIND_INLINE = {"ebb_self", "ebb_pin_slow", "ebb_unpin_slow", "ebb_region_alloc_slow"}


class Page(HTMLParser):
    """The links and the places of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "id" and value:
                self.places.add(value)


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        str(out),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )


def broken(site: Path) -> Iterator[str]:
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            address, place = urldefrag(unquote(link))
            if ":" in address or address.startswith("//"):
                continue
            target = Path(os.path.normpath(path.parent / address)) if address else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{path.relative_to(site)}: {link}"
            elif place and target in pages and place not in pages[target].places:
                yield f"{path.relative_to(site)}: {link}: no such place"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_no_link_is_broken_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= LEAST_PAGES
    assert list(broken(site)) == []
    assert (site / "search" / "search_index.json").stat().st_size > 100_000
    for path in pages:
        loaded = re.findall(r'<(?:script|img)[^>]* src="(https?:[^"]+)"', path.read_text())
        assert loaded == []


def test_a_broken_link_is_seen(site: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(site, tmp_path / "site")
    front = copy / "index.html"
    front.write_text(front.read_text() + '<a href="nowhere/">x</a><a href="#nowhere">y</a>')
    assert list(broken(copy)) == ["index.html: nowhere/", "index.html: #nowhere: no such place"]


def test_a_page_with_a_broken_link_does_not_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n[a](nowhere.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\nplugins: []\n")
    assert build(tmp_path, tmp_path / "out").returncode != 0


def reference() -> str:
    return "".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))


def test_every_exported_function_has_a_place_in_the_reference() -> None:
    own = (DOCS / "symbols.md").read_text().partition("## Ebbtide's own")[2]
    names = set(re.findall(r"`(ebb_\w+)`", own)) - BEHIND_INLINE
    assert "ebb_region_open" in names
    told = set(re.findall(r"`(ebb_\w+)`", "".join(re.findall(r"^### .*", reference(), re.M))))
    assert names - told == set()


def test_every_override_is_told_of() -> None:
    theirs = (DOCS / "symbols.md").read_text().partition("## Ebbtide's own")[0]
    declared = re.findall(r"[\w*]+(?=;)", (ROOT / "packaging" / "ebbtide.map").read_text())
    for name in declared:
        assert name == "ebb_*" or name.rstrip("*") in theirs or name.startswith("ebb_")


def test_every_option_is_told_of() -> None:
    defined = set(re.findall(r'"(EBB_\w+)"', (ROOT / "src/os/options.def").read_text()))
    assert len(defined) >= 9
    told = set(re.findall(r"^\| `(EBB_\w+)`", (DOCS / "options.md").read_text(), re.M))
    assert defined - told == set()
    paged = re.findall(r"^\.It Ev (EBB_\w+)", (DOCS / "man" / "ebbtide.3").read_text(), re.M)
    assert set(paged) == defined


def test_every_verb_is_told_of() -> None:
    told = set(re.findall(r"^## ebb (\S+)", (DOCS / "reference/cli.md").read_text(), re.M))
    assert set(VERBS) - told == set()


def test_every_decision_is_in_the_list() -> None:
    listed = set(re.findall(r"\((\d{4}-[^)]+)\)", (DOCS / "adr/README.md").read_text()))
    assert listed == {path.name for path in (DOCS / "adr").glob("0*.md")}
