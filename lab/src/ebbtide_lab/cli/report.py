# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb report: a folder of results as one HTML file and as Markdown."""

from pathlib import Path

import click

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.results import journal
from ebbtide_lab.show.report import html, markdown, model

HTML, MARKDOWN = "report.html", "report.md"


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the report (default: DIR)."
)
def report_command(folder: Path, out: Path | None) -> None:
    """Write the report on DIR, a folder of raw results: report.html and report.md."""
    page = model.page(journal.load(folder))
    texts = {HTML: html.render(page), MARKDOWN: markdown.render(page)}
    for path in write(texts, out or folder):
        click.echo(path)


def write(texts: dict[str, str], folder: Path) -> list[Path]:
    """The paths of the files, in a folder that is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write the report to {folder}: {error.strerror}") from error
    return [folder / name for name in texts]
