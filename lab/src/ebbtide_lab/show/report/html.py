# SPDX-License-Identifier: MIT OR Apache-2.0
"""The page as one HTML file: style, script and charts inside, nothing fetched.

What is folded and long is packed: the browser unpacks it when it is opened.
"""

import base64
import gzip
import json
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from ebbtide_lab.arms.allocators import EBBTIDE
from ebbtide_lab.show import templates
from ebbtide_lab.show.report.cells import written
from ebbtide_lab.show.report.model import Page
from ebbtide_lab.show.report.overview import Overview

LOSSES_SHOWN = 7  # of each kind, before the others are folded


def render(page: Page, overview: Overview) -> str:
    environment = templates.environment(autoescape=True)
    environment.filters["drawing"] = (
        Markup  # charts come from charts.py and strips.py, which escape
    )
    parts = _parts(page, environment)
    numbers = {name: at for at, name in enumerate(parts)}
    return (
        environment.get_template("report.html.j2")
        .render(
            page=page,
            overview=overview,
            sections=numbers,
            groups=sorted({each.group for each in overview.entries}),
            urgent=any(each.what.startswith(f"{EBBTIDE} ") for each in page.warnings),
            shown=LOSSES_SHOWN,
            written=written,
            packed=_pack(list(parts.values())),
        )
        .lstrip()
    )


def _parts(page: Page, environment: Environment) -> dict[str, str]:
    """What is packed, by where it belongs."""
    macros: Any = environment.get_template("parts.html.j2").module
    parts = {each.anchor: str(macros.workload(each)) for each in page.sections}
    parts["cost"], parts["memory"] = map(str, map(macros.matrices, (page.costs, page.memory)))
    parts["scaling"] = str(macros.scaling(page.scaling))
    parts["published"] = str(macros.published(page.published_legend, page.published))
    return parts


def _pack(parts: list[str]) -> str:
    text = json.dumps(parts, ensure_ascii=False)
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
