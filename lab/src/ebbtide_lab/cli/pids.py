# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arguments that name a file or a process."""

import re
from pathlib import Path

import click

from ebbtide_lab.base.errors import LabError

PID = re.compile(r"[1-9][0-9]{0,9}")


class Pid(click.IntRange):
    """An argument or option: of a process."""

    name = "PID"

    def __init__(self) -> None:
        super().__init__(1)


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
