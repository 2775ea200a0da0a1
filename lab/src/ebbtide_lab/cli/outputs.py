# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files that a command writes when it ends."""

import os
from pathlib import Path

import click

from ebbtide_lab.base.errors import LabError


class OutputFile(click.Path):
    """One that cannot be written is refused before the measurement that it is for, not after."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        was_there = path.exists()
        try:
            path.open("ab").close()
            if not was_there:
                path.unlink()
        except OSError as error:
            raise LabError(f"cannot write {path}: {error.strerror}") from error
        return path
