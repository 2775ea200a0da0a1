# SPDX-License-Identifier: MIT OR Apache-2.0
"""Who holds memory in a process that has Ebbtide loaded, without its help."""

import os
import re
import select
import time
from dataclasses import dataclass, field
from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.text import shown
from ebbtide_lab.inspect import board
from ebbtide_lab.inspect.image import Process, Torn
from ebbtide_lab.inspect.labels import NO_REST, Label, Rest, Table


@dataclass(frozen=True)
class Status:
    """Labels: who holds most comes first. `library`: the file that it is from, which may be the
    program's own. `others`: those of other copies, which do not serve malloc."""

    pid: int
    name: str
    library: str
    version: str
    resident_bytes: int
    labels: list[Label]
    rest: Rest = NO_REST
    others: list[str] = field(default_factory=list)


def examine(pid: int, most_labels: int | None = None) -> Status:
    process = _open(pid)
    try:
        its = board.require(process)
        now_ms = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
        found = Table(process, its.labels, its.labels_a_part, most_labels).read(now_ms)
        return Status(
            pid,
            process.name(),
            file_at(process, its.address),
            its.release,
            resident_bytes(process.folder),
            found.found,
            found.rest,
            others=[file_at(process, each) for each in its.others],
        )
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


def wait_beside(pid: int, seconds: float) -> None:
    """For so long; a LabError as soon as the process has ended."""
    try:
        end = os.pidfd_open(pid)
    except ProcessLookupError as error:
        raise LabError(f"process {pid} has ended") from error
    except OSError:  # a kernel, or a filter of system calls, without it
        time.sleep(seconds)
        return
    try:
        events = select.poll()
        events.register(end, select.POLLIN)
        if events.poll(seconds * 1000):
            raise LabError(f"process {pid} has ended")
    finally:
        os.close(end)


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


def file_at(process: Process, address: int) -> str:
    """The mapped file that begins last before the address, to be shown."""
    before = [each for each in process.maps if each.start <= address]
    return shown(max(before, key=lambda each: each.start).file) if before else ""


def resident_bytes(folder: Path) -> int:
    try:
        pages = int((folder / "statm").read_text().split()[1])
    except (OSError, IndexError) as error:
        raise Torn from error
    return pages * os.sysconf("SC_PAGESIZE")
