# SPDX-License-Identifier: MIT OR Apache-2.0
"""The running processes that have Ebbtide in them."""

import os
from dataclasses import dataclass
from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect import control, image, lifetimes
from ebbtide_lab.inspect.image import Process, Torn


@dataclass(frozen=True)
class Found:
    pid: int
    name: str
    resident_bytes: int
    library: str  # that it is from; the program's own file, where it is linked in
    version: str  # empty: not known


@dataclass(frozen=True)
class Listing:
    found: list[Found]
    hidden: int  # processes that this user may not look into


def everywhere() -> Listing:
    """The largest first. One that ends meanwhile is left out."""
    found, hidden = [], 0
    linked_in: dict[tuple[int, int], bool] = {}  # by file: whether Ebbtide is
    for pid in sorted(int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()):
        try:
            one = _look(pid, linked_in)
        except PermissionError:
            hidden += 1
        except (OSError, LabError, Torn):
            continue
        else:
            found += [one] if one else []
    return Listing(sorted(found, key=lambda each: -each.resident_bytes), hidden)


def _look(pid: int, linked_in: dict[tuple[int, int], bool]) -> Found | None:
    folder = Path("/proc") / str(pid)
    if not _may_have_one((folder / "maps").read_text(errors="replace"), folder, linked_in):
        return None
    try:
        process = Process(pid)
    except LabError as error:
        raise error.__cause__ or error from error
    try:
        address = next(iter(process.find(control.SYMBOL)), None)
        if address is None:
            return None
        library = lifetimes.file_at(process, address)
        resident = lifetimes.resident_bytes(process.folder)
        version = lifetimes.version_of(library)
        return Found(pid, process.thread_name(pid), resident, library, version)
    finally:
        process.close()


def _may_have_one(maps: str, folder: Path, linked_in: dict[tuple[int, int], bool]) -> bool:
    """By a mapped file's name, or, so that not every file is taken apart, by the program's
    content: one that Ebbtide is linked into has the name of its board in it."""
    if image.LIBRARY in maps:
        return True
    try:
        with open(folder / "exe", "rb") as file:
            state = os.fstat(file.fileno())
            key = (state.st_dev, state.st_ino)
            if key not in linked_in:
                linked_in[key] = _contains(file.fileno(), control.SYMBOL.encode() + b"\0")
            return linked_in[key]
    except OSError:
        return False


def _contains(file: int, text: bytes) -> bool:
    rest = b""
    while part := os.read(file, 1 << 20):
        if text in rest + part:
            return True
        rest = part[-len(text) :]
    return False
