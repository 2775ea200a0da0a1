# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files that are there whole or not at all."""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from ebbtide_lab.base.errors import LabError


def replace_text(path: Path, text: str) -> None:
    """Who reads the file meanwhile sees the old one or the new one. What is no regular file, such
    as a terminal or a pipe, is written as it is."""
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file() and not target.is_dir():
            path.write_text(text, encoding="utf-8")
        else:
            _replace(target, text)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error


def write_new(paths: Iterable[Path], text: str) -> Path:
    """The first of them that is not there."""
    target = next(filter(_is_made, paths))
    try:
        replace_text(target, text)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


def _is_made(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error
    return True


def _replace(target: Path, text: str) -> None:
    draft = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}")
    try:
        with open(draft, "x", encoding="utf-8") as file:
            file.write(text)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
