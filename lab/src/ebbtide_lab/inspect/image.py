# SPDX-License-Identifier: MIT OR Apache-2.0
"""The memory of a running process, and where a note of one of its files leads in it.

The process is not stopped and does not help, and its files are not opened: /proc/PID/maps tells
where they are mapped, their program headers, which are mapped too, where their notes are.
"""

import fcntl
import os
import re
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.text import shown

DELETED = " (deleted)"
NAMELESS = "(no name)"  # a thread that has set an empty one
ELF_HEAD = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
MAGIC, CLASS_64, LITTLE = b"\x7fELF", 2, 1
SEGMENT = struct.Struct("<IIQQQQQQ")
PT_LOAD, PT_NOTE = 1, 4
MOST_NOTES = 1 << 16  # bytes of them
TURN_S = 0.01  # from one look to the next
NUMBERS_S = 0.5  # the same, at the numbers of threads in another namespace
ENDED = ("", "Z", "X")  # states: gone, not waited for, just going


class Torn(Exception):
    """What was read was changed or taken away meanwhile: worth another attempt."""


def text_of(content: bytes) -> str:
    """Of a string that ends with the content, or with a zero."""
    return shown(content.partition(b"\0")[0].decode(errors="replace"))


class Memory(Protocol):
    """What a reader of another process needs of it."""

    def read(self, address: int, size: int) -> bytes:
        """Exactly `size` bytes; Torn where there are none."""
        ...


@dataclass(frozen=True)
class Mapping:
    """A file's first page in a process."""

    start: int
    file: str


class Segment(NamedTuple):
    """Of a program header: type, and where it lies in the file and in memory."""

    type: int
    offset: int
    address: int
    bytes: int


class Note(NamedTuple):
    """Of a mapped file: where its content lies in the process, and the content."""

    address: int
    content: bytes


@dataclass(frozen=True)
class Code:
    """A part of a file that a process has mapped to be executed."""

    start: int
    limit: int
    offset: int
    file: str  # as the process names it, or [vdso]; empty: none


class Process:
    """An open process. Raises LabError with the reason when it cannot be opened."""

    def __init__(self, pid: int, writes: bool = False) -> None:
        self.pid = pid
        with _told(pid, "write" if writes else "read"):
            self.folder = _living(pid)
            maps = (self.folder / "maps").read_text(errors="replace")
            # In a namespace of its own.
            self._has_numbers_of_its_own = len(_numbers(self.folder)) > 1
            self._tasks: dict[int, Path] = {}  # by their numbers there
            self._looked = -NUMBERS_S
            self.maps = list(_first_pages(maps))
            self.code = list(_code(maps))
            # Opened once: it stays this program's memory when the number becomes another's.
            mode = os.O_RDWR if writes else os.O_RDONLY
            self._memory = os.open(self.folder / "mem", mode | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._memory)

    def read(self, address: int, size: int) -> bytes:
        try:
            found = os.pread(self._memory, size, address)
        except (OSError, OverflowError) as error:
            raise Torn from error
        if len(found) != size:
            raise Torn
        return found

    def write(self, address: int, content: bytes) -> None:
        """Raises PermissionError, which reading did not, in a sandbox that forbids it."""
        try:
            written = os.pwrite(self._memory, content, address)
        except PermissionError:
            raise
        except OSError as error:
            raise Torn from error
        if written != len(content):
            raise Torn

    def notes(self, head: bytes, size: int) -> Iterator[Note]:
        """The `size` bytes behind each such head of a note in the mapped files, in the order of
        their addresses."""
        for mapping in self.maps:
            try:
                yield from self._notes(mapping, head, size)
            except (Torn, struct.error):
                continue  # no program, or one that is gone

    @contextmanager
    def turn(self, within_s: float) -> Iterator[None]:
        """Tools that open the process for writing take turns in this. LabError: others have it
        all the time."""
        end = time.monotonic() + within_s
        while not self._locks():
            if time.monotonic() > end:
                raise LabError(f"other tools ask process {self.pid} all the time")
            time.sleep(TURN_S)
        try:
            yield
        finally:
            fcntl.flock(self._memory, fcntl.LOCK_UN)

    def _locks(self) -> bool:
        """The kernel ends it with the tool, however that ends."""
        try:
            fcntl.flock(self._memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def name(self) -> str:
        return _name_of(Path(f"/proc/{self.pid}"))

    def thread_name(self, thread: int) -> str:
        """Of the number that the process itself knows. Empty when the thread has ended."""
        if not self._has_numbers_of_its_own:
            return _name_of(Path(f"/proc/{self.pid}/task/{thread}"))
        return _name_of(self._task(thread) or self._task(thread, again=True))

    def _task(self, thread: int, again: bool = False) -> Path | None:
        now = time.monotonic()
        if again and now > self._looked + NUMBERS_S:
            self._tasks, self._looked = {}, now
            with suppress(OSError):  # the process has ended
                for each in Path(f"/proc/{self.pid}/task").iterdir():
                    with suppress(OSError):  # this thread has
                        self._tasks[_numbers(each)[-1]] = each
        task = self._tasks.get(thread)
        return task if task and task.is_dir() else None

    def _notes(self, mapping: Mapping, head: bytes, size: int) -> Iterator[Note]:
        parts = self._segments(mapping.start)
        loads = [part for part in parts if part.type == PT_LOAD and part.offset == 0]
        for part in parts:
            if part.type == PT_NOTE and loads and part.bytes <= MOST_NOTES:
                start = mapping.start - loads[0].address + part.address
                content = self.read(start, part.bytes)
                at = content.find(head) + len(head)
                if len(head) <= at <= len(content) - size:
                    yield Note(start + at, content[at : at + size])

    def _segments(self, start: int) -> list[Segment]:
        head = ELF_HEAD.unpack(self.read(start, ELF_HEAD.size))
        if head[:3] != (MAGIC, CLASS_64, LITTLE):
            return []
        at, count = start + head[7], head[12]
        table = self.read(at, count * SEGMENT.size)
        return [
            Segment(kind, offset, address, size)
            for kind, _, offset, address, _, _, size, _ in SEGMENT.iter_unpack(table)
        ]


@contextmanager
def told(pid: int) -> Iterator[None]:
    """What goes wrong behind the opening, as one reads it."""
    try:
        yield
    except Torn as error:
        raise LabError(torn_reason(pid)) from error
    except PermissionError as error:
        raise LabError(f"not allowed to write the memory of process {pid}") from error


def torn_reason(pid: int) -> str:
    """Why nothing can be read where its memory says that there is something."""
    if _state(pid) in ENDED:
        return f"process {pid} has ended"
    return (
        f"process {pid} has just become another program, or what its Ebbtide says of itself leads"
        " nowhere"
    )


def _state(pid: int) -> str:
    """The kernel's letter, of a thread that has not ended if there is one; empty: there is no such
    process."""
    try:
        text = (_living(pid) / "stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def _living(pid: int) -> Path:
    """Its folder, or where its first thread has ended before the others, one of theirs."""
    folder = Path("/proc") / str(pid)
    if (folder / "maps").read_bytes():
        return folder
    threads = (folder / "task").iterdir()
    return next((each for each in threads if (each / "maps").read_bytes()), folder)


def _numbers(task: Path) -> list[int]:
    """A thread's, from here to its own namespace."""
    found = re.search(r"^NSpid:(.*)$", (task / "status").read_text(errors="replace"), re.M)
    return [int(each) for each in found[1].split()] if found else [0]


def _name_of(task: Path | None) -> str:
    try:
        return (
            shown((task / "comm").read_text(errors="replace").strip()) or NAMELESS if task else ""
        )
    except OSError:
        return ""


@contextmanager
def _told(pid: int, access: str) -> Iterator[None]:
    """The errors of opening a process as one reads them."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError) as error:
        raise LabError(_no_memory(_state(pid), pid)) from error
    except PermissionError as error:
        raise LabError(
            f"not allowed to {access} the memory of process {pid}: be its user or root"
            " (and see /proc/sys/kernel/yama/ptrace_scope)"
        ) from error


def _no_memory(state: str, pid: int) -> str:
    if not state:
        return f"no process has the number {pid}"
    if state in ENDED:
        return f"process {pid} has ended; its parent has not waited for it yet"
    return f"process {pid} has no memory of its own: it is the kernel's"


def _first_pages(maps: str) -> Iterator[Mapping]:
    """A file is mapped in parts; the part at offset 0 says where all the others are."""
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/") and int(words[2], 16) == 0:
            yield Mapping(int(words[0].partition("-")[0], 16), words[5].removesuffix(DELETED))


def _code(maps: str) -> Iterator[Code]:
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if "x" in words[1]:
            start, _, limit = words[0].partition("-")
            file = words[5].removesuffix(DELETED) if len(words) == 6 else ""
            yield Code(int(start, 16), int(limit, 16), int(words[2], 16), file)
