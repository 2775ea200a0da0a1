# SPDX-License-Identifier: MIT OR Apache-2.0
"""The running processes that have Ebbtide in them."""

from dataclasses import dataclass
from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect import board, lifetimes
from ebbtide_lab.inspect.image import Process, Torn


@dataclass(frozen=True)
class Found:
    pid: int
    name: str
    resident_bytes: int
    library: str  # that it is from; the program's own file, where it is linked in
    version: str


@dataclass(frozen=True)
class Listing:
    found: list[Found]
    hidden: int  # processes that this user may not look into


def everywhere() -> Listing:
    """The largest first. One that ends meanwhile is left out."""
    found, hidden = [], 0
    for pid in sorted(int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()):
        try:
            one = _look(pid)
        except PermissionError:
            hidden += 1
        except (OSError, LabError, Torn):
            continue
        else:
            found += [one] if one else []
    return Listing(sorted(found, key=lambda each: -each.resident_bytes), hidden)


def _look(pid: int) -> Found | None:
    try:
        process = Process(pid)
    except LabError as error:
        raise error.__cause__ or error from error
    try:
        its = board.find(process)
        if its is None:
            return None
        library = lifetimes.file_at(process, its.address)
        resident = lifetimes.resident_bytes(process.folder)
        return Found(pid, process.name(), resident, library, its.release)
    finally:
        process.close()
