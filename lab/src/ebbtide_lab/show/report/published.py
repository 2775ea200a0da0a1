# SPDX-License-Identifier: MIT OR Apache-2.0
"""The published tables as tables of the report, by the document that they come from."""

from dataclasses import dataclass
from itertools import groupby

from ebbtide_lab.results.model import Results
from ebbtide_lab.show import published
from ebbtide_lab.show.published import PublishedTable
from ebbtide_lab.show.published_figures import FAILED as FAILED_TEXT
from ebbtide_lab.show.report.cells import FAILED, Cell, Table
from ebbtide_lab.show.units import DIRECTION

FIRST_HEADING = "line"


@dataclass(frozen=True)
class Entry:
    """A table and its notes; the labels of the table hold their numbers."""

    title: str
    table: Table
    notes: list[str]


@dataclass(frozen=True)
class Document:
    title: str
    entries: list[Entry]


def documents(results: Results) -> list[Document]:
    """Empty when nothing of the set was measured."""
    by_document = groupby(published.tables(results), key=lambda each: (each.number, each.document))
    return [
        Document(f"Published {number}: {title}", [_entry(each) for each in tables])
        for (number, title), tables in by_document
    ]


def _entry(found: PublishedTable) -> Entry:
    headings = [FIRST_HEADING, *found.headings[1:]]
    body = [[_cell(text) for text in row] for row in found.rows]
    return Entry(found.title, Table(_caption(found), headings, body, foot=DIRECTION), found.notes)


def _cell(text: str) -> Cell:
    return Cell(text, state=FAILED if text == FAILED_TEXT else "")


def _caption(found: PublishedTable) -> str:
    parts = [f"{found.title}: {found.unit}"]
    parts += [f"runs of each arm: {found.runs}"] if found.runs else []
    parts += [f"A/A by row: {found.noise}"] if found.noise else []
    return "; ".join(parts)
