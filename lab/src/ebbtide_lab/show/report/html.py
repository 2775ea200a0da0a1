# SPDX-License-Identifier: MIT OR Apache-2.0
"""The page as one HTML file: style and charts inside, nothing fetched, no script."""

from markupsafe import Markup

from ebbtide_lab.show import templates
from ebbtide_lab.show.report.model import Page


def render(page: Page) -> str:
    environment = templates.environment(autoescape=True)
    environment.filters["drawing"] = Markup  # charts come from charts.py, which escapes
    return environment.get_template("report.html.j2").render(page=page).lstrip()
