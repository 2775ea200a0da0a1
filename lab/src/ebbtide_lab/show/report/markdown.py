# SPDX-License-Identifier: MIT OR Apache-2.0
"""The page as Markdown: the same tables without the drawings."""

import re

from ebbtide_lab.show import templates
from ebbtide_lab.show.report.cells import Cell, Table
from ebbtide_lab.show.report.grid import escape, grid
from ebbtide_lab.show.report.model import Page


class Ready(str):
    """Text that is Markdown already."""

    __slots__ = ()


def render(page: Page) -> str:
    environment = templates.environment(autoescape=False, finalize=_finalize)
    environment.filters.update(grid=_grid, code=_code)
    return environment.get_template("report.md.j2").render(page=page)


def _finalize(value: object) -> str:
    return value if isinstance(value, Ready) else escape(str(value))


def _grid(table: Table) -> Ready:
    headings = [escape(each) for each in table.columns]
    drawn = grid(headings, (map(_cell, row) for row in table.rows), table.prose)
    return Ready(f"{drawn}\n\n{escape(table.foot)}" if table.foot else drawn)


def _cell(cell: Cell) -> str:
    text = f"[{escape(cell.text)}](#{cell.link})" if cell.link else escape(cell.text)
    parts = [cell.sign, text, escape(cell.note)]
    return " ".join(part for part in parts if part)


def _code(text: str) -> Ready:
    """A fence that is longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Ready(f"{fence}sh\n{text}\n{fence}")
