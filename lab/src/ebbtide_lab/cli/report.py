# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb report: a folder of results as one HTML file and as Markdown."""

from pathlib import Path

import click

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.results import journal, summary
from ebbtide_lab.show.report import files


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the report (default: DIR)."
)
def report_command(folder: Path, out: Path | None) -> None:
    """Write the report on DIR, a folder of raw results: report.html and report.md.

    Where DIR keeps a summary without the runs, as the sessions of results/ do: report.html alone.
    """
    for path in write(_texts(folder), out or folder):
        click.echo(path)


def _texts(folder: Path) -> dict[str, str]:
    if journal.has_runs(folder) or not (folder / summary.SUMMARY).is_file():
        return files.of_results(journal.load(folder))
    return files.of_summary(summary.load(folder), *journal.load_machine(folder))


def write(texts: dict[str, str], folder: Path) -> list[Path]:
    """The paths of the files, in a folder that is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write the report to {folder}: {error.strerror}") from error
    return [folder / name for name in texts]
