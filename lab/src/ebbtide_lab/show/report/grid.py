# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plain text and tables as Markdown."""

import re
from collections.abc import Iterable


def escape(text: str) -> str:
    """Plain text that Markdown must not read as marks, HTML or columns."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", text).replace("\n", " ")


def grid(headings: list[str], rows: Iterable[Iterable[str]], prose: bool = False) -> str:
    """A table of cells that are Markdown already; numbers stand to the right."""
    aligned = ":--" if prose else "--:"
    rule = [":--", *[aligned] * (len(headings) - 1)]
    return "\n".join(map(_line, (headings, rule, *rows)))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
