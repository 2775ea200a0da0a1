# SPDX-License-Identifier: MIT OR Apache-2.0
"""The terminal, or what stands in for it."""

import os
import shutil
import sys

from rich.console import Console

LOG_COLUMNS = 140  # width of the tables when they go to a file and COLUMNS says nothing


def open_console() -> Console:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) == 0:  # rich would take it at its word
        return Console(width=shutil.get_terminal_size((LOG_COLUMNS, 0)).columns)
    told = sys.stdout.isatty() or columns
    return Console() if told else Console(width=LOG_COLUMNS)
