# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arguments that name a file or a process."""

import re
from pathlib import Path

PID = re.compile(r"[1-9][0-9]{0,9}")


def pid_of(given: Path) -> int | None:
    """None when it is a file's name; a file that is there comes first."""
    return int(str(given)) if PID.fullmatch(str(given)) and not given.exists() else None
