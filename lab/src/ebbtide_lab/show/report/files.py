# SPDX-License-Identifier: MIT OR Apache-2.0
"""The files of a report: of results, or of a session that keeps its summary without the runs."""

from ebbtide_lab.arms.allocators import EBBTIDE, Allocator
from ebbtide_lab.results.model import Results
from ebbtide_lab.results.summary import REPORT, Summary
from ebbtide_lab.scenarios.described import describe, describe_kept
from ebbtide_lab.show.report import html, kept, markdown, matrix, model, overview, summarized
from ebbtide_lab.show.report.cells import Ratios

HTML = "report.html"


def of_results(results: Results) -> dict[str, str]:
    ratios = Ratios()
    page = model.page(results, ratios)
    rows = {(row.group, row.scenario.name): row for row in results.rows}
    front = overview.overview(
        summarized.of_results(results, ratios),
        matrix.anchors(rows),
        lambda key: describe(rows[key].scenario),
        [key for key, row in rows.items() if EBBTIDE in row.failures],
    )
    return {HTML: html.render(page, front), REPORT: markdown.render(page)}


def of_summary(summary: Summary, facts: dict[str, object], arms: list[Allocator]) -> dict[str, str]:
    """The Markdown is what the summary was read from: there is nothing to write."""
    found = overview.with_sets(summary)
    anchors = matrix.anchors((each.group, each.name) for each in found.workloads)
    front = overview.overview(found, anchors, lambda key: describe_kept(*key), [])
    return {HTML: html.render(kept.page(found, facts, arms, anchors), front)}
