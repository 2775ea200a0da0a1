# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb published: what earlier systems published, beside the figures of a finished folder."""

from pathlib import Path

import click

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.results import journal
from ebbtide_lab.show import published
from ebbtide_lab.show.console import open_console


@click.command("published")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--markdown", is_flag=True, help="Print Markdown instead.")
def published_command(folder: Path, markdown: bool) -> None:
    """Print what five earlier systems published beside what DIR's runs measured."""
    results = journal.load(folder)
    if not published.tables(results):
        raise LabError(
            f"{folder} holds no run of the set published; `ebb bench published` measures it"
        )
    if markdown:
        click.echo(published.markdown(results), nl=False)
    else:
        published.print_tables(results, open_console())
