# SPDX-License-Identifier: MIT OR Apache-2.0
"""The terminal, or what stands in for it."""

import sys

from rich.console import Console

LOG_COLUMNS = 140  # width of the tables when they go to a file


def open_console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=LOG_COLUMNS)
