# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb options` prints."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ebbtide_lab.inspect.options import Option
from ebbtide_lab.show.units import ABSENT

FROM = {"default": "default", "environment": "environment", "request": "changed since the start"}


def print_options(options: list[Option], console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("option", no_wrap=True)
    table.add_column("value", justify="right", overflow="fold")
    for heading in ("unit", "from", "changes now"):
        table.add_column(heading)
    for each in options:
        table.add_row(
            each.name,
            escape(each.text) or ABSENT,
            each.unit,
            FROM[each.source],
            "yes" if each.changes else "",
        )
    console.print(table)
