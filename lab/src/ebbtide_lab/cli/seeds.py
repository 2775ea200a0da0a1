# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb seeds: the seed tables of a finished folder."""

from pathlib import Path

import click

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.results import journal
from ebbtide_lab.show import seeds
from ebbtide_lab.show.console import open_console


@click.command("seeds")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--markdown", is_flag=True, help="Print Markdown instead.")
def seeds_command(folder: Path, markdown: bool) -> None:
    """Print the seed documents' tables beside what DIR's `ebb bench seeds` measured."""
    results = journal.load(folder)
    if not seeds.tables(results):
        raise LabError(f"{folder} holds no run of the set seeds; `ebb bench seeds` measures it")
    if markdown:
        click.echo(seeds.markdown(results), nl=False)
    else:
        seeds.print_tables(results, open_console())
