# SPDX-License-Identifier: MIT OR Apache-2.0
"""Who holds memory in a process that has Ebbtide loaded, read from its memory.

The library's data symbol `ebb_lifetime_board` is a table with a row for each label of
regions or domains. Its slow paths write the numbers one by one and without order, so
that two of them may be a moment apart. The first 64 labels of a process are on it.
"""

import os
import re
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect.image import Memory, Process, Torn

SYMBOL = "ebb_lifetime_board"
ANY_SYMBOL = "ebb_version"  # what every Ebbtide exports, also one without the board
VERSION = 1
HEAD = struct.Struct("<II")
ROW = struct.Struct("<32s15Q")
MOST_ROWS = 64
FILE_VERSION = re.compile(r"\.so\.(\d+\.\d+\.\d+)$")


class Row(NamedTuple):
    """As it lies in memory."""

    label: bytes
    is_domain: int
    open: int
    opened: int
    closed: int
    drained: int
    released: int
    held_bytes: int
    peak_bytes: int
    live_bytes: int
    slabs: int
    demoted: int
    late: int
    refused: int
    oldest_since_ms: int
    demoted_bytes: int


@dataclass(frozen=True)
class Label:
    """All regions of one label, or a domain. `live_bytes` is None for regions that hold memory
    but that the process itself has not measured: counting would cost them. `oldest_ms`: for how
    long the oldest slab that survivors pin has been there; None when there is none."""

    label: str
    is_domain: bool
    open: int
    opened: int
    closed: int
    drained: int
    drain_share: float | None  # of the closes; None before the first
    released: int
    held_bytes: int
    peak_bytes: int
    live_bytes: int | None
    slabs: int
    demoted: int
    late: int
    refused: int
    oldest_ms: int | None


@dataclass(frozen=True)
class Status:
    """`version` is that of the library's file name, empty when it has none (a static program,
    a renamed file). Labels: who holds most comes first."""

    pid: int
    name: str
    library: str
    version: str
    resident_bytes: int
    labels: list[Label]
    is_full: bool  # the board has no row left: later labels are not on it


def examine(pid: int) -> Status:
    process = _open(pid)
    try:
        address = _board_address(process, pid)
        now_ms = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
        labels = read_labels(process, address, now_ms)
        library = file_at(process, address)
        version = version_of(library)
        name, resident = process.thread_name(pid), resident_bytes(process.folder)
        return Status(pid, name, library, version, resident, labels, len(labels) == MOST_ROWS)
    except Torn as error:
        raise LabError(f"process {pid} ended, or became another program, just now") from error
    finally:
        process.close()


def is_running(pid: int) -> bool:
    """False also for one that has ended and that its parent has not asked about yet."""
    try:
        text = (Path("/proc") / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(") ")[2][:1] not in ("Z", "X")


def read_labels(memory: Memory, address: int, now_ms: int) -> list[Label]:
    """The rows of the board at this address; raises Torn when it is gone."""
    version, rows = HEAD.unpack(memory.read(address, HEAD.size))
    if version != VERSION:
        raise LabError(f"its Ebbtide writes version {version} of {SYMBOL}, not {VERSION}")
    if rows > MOST_ROWS:
        raise LabError(f"{SYMBOL} counts {rows} rows, more than it has: not a library of Ebbtide?")
    text = memory.read(address + HEAD.size, rows * ROW.size) if rows else b""
    labels = [_label(Row(*fields), now_ms) for fields in ROW.iter_unpack(text)]
    return sorted(labels, key=lambda each: -each.held_bytes)


def _label(row: Row, now_ms: int) -> Label:
    # Read one after the other: a close may be in one of them and not yet in the other.
    share = min(1.0, row.drained / row.closed) if row.closed else None
    since_ms = row.oldest_since_ms
    is_measured = row.is_domain or row.live_bytes or not row.held_bytes
    return Label(
        label=row.label.partition(b"\0")[0].decode(errors="replace"),
        is_domain=row.is_domain != 0,
        open=row.open,
        opened=row.opened,
        closed=row.closed,
        drained=row.drained,
        drain_share=share,
        released=row.released,
        held_bytes=row.held_bytes,
        peak_bytes=max(row.peak_bytes, row.held_bytes),
        live_bytes=row.live_bytes if is_measured else None,
        slabs=row.slabs,
        demoted=row.demoted,
        late=row.late,
        refused=row.refused,
        oldest_ms=max(0, now_ms - since_ms) if since_ms else None,
    )


def _open(pid: int) -> Process:
    try:
        return Process(pid)
    except LabError as error:
        if isinstance(error.__cause__, PermissionError) and _is_guarded(pid):
            raise LabError(
                f"not allowed to read the memory of process {pid}: it is set-user-ID or has made"
                " itself undumpable, and only root may"
            ) from error
        raise


def _is_guarded(pid: int) -> bool:
    """The kernel gives root the files of a process that may not be dumped, whose it is."""
    folder = Path("/proc") / str(pid)
    try:
        status = (folder / "status").read_text(errors="replace")
        user = re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)
        mine = user is not None and int(user.group(1)) == os.getuid()
        return mine and (folder / "maps").stat().st_uid != os.getuid()
    except OSError:
        return False


def _board_address(process: Process, pid: int) -> int:
    found = process.find(SYMBOL)
    if found:
        return found[0]
    older = process.find(ANY_SYMBOL)
    if older:
        library = file_at(process, older[0])
        which = f"Ebbtide {version_of(library)}".strip()
        raise LabError(
            f"process {pid} runs {which} from {library}, which is too old to tell of regions"
            " and domains"
        )
    return process.require(SYMBOL)


def file_at(process: Process, address: int) -> str:
    """The mapped file that begins last before the address."""
    before = [each for each in process.maps if each.start <= address]
    return max(before, key=lambda each: each.start).file if before else ""


def version_of(library: str) -> str:
    found = FILE_VERSION.search(library)
    return found.group(1) if found else ""


def resident_bytes(folder: Path) -> int:
    try:
        pages = int((folder / "statm").read_text().split()[1])
    except (OSError, IndexError) as error:
        raise Torn from error
    return pages * os.sysconf("SC_PAGESIZE")
