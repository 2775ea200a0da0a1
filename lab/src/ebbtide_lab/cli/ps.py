# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb ps: which running processes have Ebbtide in them."""

import json
from dataclasses import asdict

import click

from ebbtide_lab.inspect import processes
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.processes import print_processes


@click.command("ps")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def ps_command(as_json: bool) -> None:
    """List the running processes that have Ebbtide in them, the largest first.

    Preloaded, linked as a library or statically. Only processes whose memory you may read: your
    own, or as root all.
    """
    listing = processes.everywhere()
    if as_json:
        click.echo(json.dumps(asdict(listing)))
    else:
        print_processes(listing, open_console())
