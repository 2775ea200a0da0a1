# SPDX-License-Identifier: MIT OR Apache-2.0
"""The page as one HTML file: style and charts inside, nothing fetched, no script."""

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ebbtide_lab.show.report.model import Page

TEMPLATES = PackageLoader("ebbtide_lab.show.report", "templates")


def render(page: Page) -> str:
    environment = Environment(
        loader=TEMPLATES,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["drawing"] = Markup  # charts come from charts.py, which escapes
    return environment.get_template("report.html.j2").render(page=page).lstrip()
