# SPDX-License-Identifier: MIT OR Apache-2.0
"""The terminal, or what stands in for it."""

import os
import sys

from rich.console import Console

LOG_COLUMNS = 140  # width of the tables when they go to a file and COLUMNS says nothing


def open_console() -> Console:
    told = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console() if told else Console(width=LOG_COLUMNS)
