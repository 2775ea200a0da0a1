# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb peers and ebb list: what there is to measure, and beside what."""

import click

from ebbtide_lab.arms import allocators
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.scenarios import model as scenarios
from ebbtide_lab.show import tables
from ebbtide_lab.show.console import open_console


@click.command("peers")
@click.pass_obj
def peers_command(layout: Layout) -> None:
    """List the allocators with their versions.

    Nothing is built for that: what is not built yet is built when it is measured.
    """
    found = [allocators.look_up(name, layout) for name in allocators.names(layout)]
    tables.print_allocators(found, open_console())


@click.command("list")
def list_command() -> None:
    """List the sets and their scenarios."""
    for name, group in scenarios.load_all().items():
        click.echo(f"{name}: {group.purpose}")
        for each in group.scenarios:
            click.echo(f"  {each.name:<28} {each.runs:>3} runs of {each.estimate_s:g} s")
