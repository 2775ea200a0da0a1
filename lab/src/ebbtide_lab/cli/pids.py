# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arguments that name a file or a process."""

import re
from pathlib import Path

from ebbtide_lab.base.errors import LabError

PID = re.compile(r"[1-9][0-9]{0,9}")


def pid_of(given: Path) -> int | None:
    """None when it is a file's name; a file that is there comes first."""
    try:
        given.stat()
    except FileNotFoundError as error:
        if PID.fullmatch(str(given)):
            return int(str(given))
        raise LabError(f"there is no file {given}, and that is no PID") from error
    except OSError:
        pass  # who reads it tells
    return None
