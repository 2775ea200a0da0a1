# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb compare: what became slower or larger between two sessions."""

import sys
from pathlib import Path

import click

from ebbtide_lab.arms.allocators import EBBTIDE
from ebbtide_lab.cli import complete
from ebbtide_lab.cli.ranges import FloatRange
from ebbtide_lab.judge import compare
from ebbtide_lab.results import journal
from ebbtide_lab.show.comparison import print_comparison
from ebbtide_lab.show.console import open_console

EXIT_WORSE = 1
THRESHOLD_PERCENT = 2.0


@click.command("compare")
@click.argument("before", metavar="A", type=click.Path(path_type=Path))
@click.argument("after", metavar="B", type=click.Path(path_type=Path))
@click.option(
    "--arm",
    default=EBBTIDE,
    show_default=True,
    help="The allocator to compare.",
    shell_complete=complete.arm,
)
@click.option(
    "--threshold",
    type=FloatRange(0, 1000),
    default=THRESHOLD_PERCENT,
    show_default=True,
    help="Changes up to this many percent are none.",
)
def compare_command(before: Path, after: Path, arm: str, threshold: float) -> None:
    """Compare the result folders A (before) and B (after); regressions come first.

    The exit status is 1 when there is a regression.
    """
    old, new = journal.load(before), journal.load(after)
    found = compare.compare(old, new, arm, threshold / 100)
    print_comparison(found, open_console())
    sys.exit(EXIT_WORSE if found.got_worse else 0)
