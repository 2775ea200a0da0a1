# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb ps` prints."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ebbtide_lab.inspect.processes import Listing
from ebbtide_lab.show.status import human_bytes
from ebbtide_lab.show.units import ABSENT


def print_processes(listing: Listing, console: Console) -> None:
    if listing.found:
        console.print(_table(listing))
    else:
        console.print("No process that you may look into has Ebbtide in it.")
    if listing.hidden:
        console.print(f"Not looked into, for lack of rights: {listing.hidden}.")


def _table(listing: Listing) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    for heading in ("PID", "resident"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("program", "Ebbtide", "from"):
        table.add_column(heading, overflow="fold")
    for each in listing.found:
        table.add_row(
            str(each.pid),
            human_bytes(each.resident_bytes),
            escape(each.name),
            each.version or ABSENT,
            escape(each.library),
        )
    return table
