# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb trace: what is in a recording, and others made of it."""

from pathlib import Path

import click

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli.outputs import OutputFile
from ebbtide_lab.measure.tracing import call_tool, read_info
from ebbtide_lab.show import recording_page
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.recordings import print_info

A_PATH = click.Path(path_type=Path)


@click.group("trace")
def trace_command() -> None:
    """Look into recordings, make others of them."""


@trace_command.command("info")
@click.argument("file", type=A_PATH)
@click.option("--html", "page", type=OutputFile(), metavar="OUT", help="Write one page instead.")
@click.pass_obj
def info_command(layout: Layout, file: Path, page: Path | None) -> None:
    """Show what FILE holds.

    Events, threads, hand-overs, sizes, lifetimes and live bytes over time.
    """
    info = read_info(layout, file)
    if page is None:
        print_info(info, open_console())
        return
    try:
        page.write_text(recording_page.render(info), encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {page}: {error.strerror}") from error


@trace_command.command("cut")
@click.argument("file", type=A_PATH)
@click.argument("new", type=A_PATH)
@click.option(
    "--from", "first", metavar="N", type=click.IntRange(0), default=0, help="The first event."
)
@click.option(
    "--to", "end", metavar="M", type=click.IntRange(0), required=True, help="The first one behind."
)
@click.pass_obj
def cut_command(layout: Layout, file: Path, new: Path, first: int, end: int) -> None:
    """Write NEW with a part of FILE.

    The part has the events from N to M - 1, and what was live before them.
    """
    call_tool(layout, "cut", str(file), str(new), str(first), str(end))


@trace_command.command("anonymise")
@click.argument("file", type=A_PATH)
@click.argument("new", type=A_PATH)
@click.pass_obj
def anonymise_command(layout: Layout, file: Path, new: Path) -> None:
    """Write NEW, FILE without names.

    Those of the program, its command and its process are left out.
    """
    call_tool(layout, "anonymise", str(file), str(new))


@trace_command.command("scale")
@click.argument("file", type=A_PATH)
@click.argument("new", type=A_PATH)
@click.option("--copies", type=click.IntRange(1, 1024), required=True)
@click.pass_obj
def scale_command(layout: Layout, file: Path, new: Path, copies: int) -> None:
    """Write NEW with copies of FILE.

    The copies run side by side, each with its own threads.
    """
    call_tool(layout, "scale", str(file), str(new), str(copies))
