# SPDX-License-Identifier: MIT OR Apache-2.0
"""A hook of the documentation site: pages of docs/ link to files of the checkout that lie outside of it.

Documents there become pages of the site; of sources and reports it gets a copy as text; a link to a folder becomes its name.
"""
import os
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
LINK = re.compile(r"(!?)\[([^\]\n]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
COPIES = "checkout"


def on_files(files, config):
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    wanted = {target for file in list(files.documentation_pages()) for target in _outside(_origin(file))}
    for target in sorted(wanted):
        copy = File.generated(config, _copy(target), content=(ROOT / target).read_bytes())
        files.append(copy)
    return files


def on_page_markdown(markdown, page, config, files):
    place = pathlib.PurePosixPath(page.file.src_uri).parent

    def turned(found):
        mark, text, link, anchor = found.groups()
        target = _target(_origin(page.file), link)
        if target is None:
            return found[0]
        if (ROOT / target).is_dir():
            return f"`{target}`" if text.strip("`") == str(target) else text
        address = os.path.relpath(_address(target), place)
        return f"{mark}[{text}]({address}{anchor or ''})"

    parts = re.split(r"(```.*?```)", markdown, flags=re.DOTALL)  # what stands in code is no link
    return "".join(part if part.startswith("```") else LINK.sub(turned, part) for part in parts)


def _origin(file):
    return ROOT / file.src_uri if file.src_uri in PAGES else DOCS / file.src_uri


def _target(origin, link):
    """The place in the checkout that a relative link leads to; None for others and for what is not there."""
    if "://" in link or link.startswith("mailto:"):
        return None
    path = pathlib.Path(os.path.normpath(origin.parent / link))
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) and path.exists() else None


def _is_page(target):
    return str(target) in PAGES or target.is_relative_to("docs")


def _copy(target):
    return f"{COPIES}/{target}.txt"


def _address(target):
    if target.is_relative_to("docs"):
        return str(target.relative_to("docs"))
    return str(target) if _is_page(target) else _copy(target)


def _outside(origin):
    text = origin.read_text(encoding="utf-8")
    for _, _, link, _ in LINK.findall(text):
        target = _target(origin, link)
        if target is not None and not _is_page(target) and (ROOT / target).is_file():
            yield target
