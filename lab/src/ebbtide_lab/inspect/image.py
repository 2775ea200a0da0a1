# SPDX-License-Identifier: MIT OR Apache-2.0
"""The memory of a running process, and where a symbol of one of its files lies in it.

The process is not stopped and does not help: /proc/PID/maps tells which files are
mapped where, their symbol tables tell the rest.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.hash import ELFHashSection, GNUHashSection
from elftools.elf.sections import Section, Symbol, SymbolTableSection

from ebbtide_lab.base.errors import LabError

LIBRARY = "libebbtide"
DELETED = " (deleted)"
DYNAMIC = (".gnu.hash", ".hash")  # of exported symbols; every object has one of them
STATIC = (".symtab",)


class Torn(Exception):
    """What was read was changed or taken away meanwhile: worth another attempt."""


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
    deleted: bool


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

    def find(self, symbol: str) -> list[int]:
        """Where the symbol lies, in each of the mapped files that export it. A program that
        is linked statically may not: then its own symbols are searched, if it has kept them."""
        exported = [self._address(each, symbol, DYNAMIC) for each in self.maps]
        found = [address for address in exported if address is not None]
        if found or not self.maps:
            return found
        own = self._address(self.maps[0], symbol, STATIC)
        return [] if own is None else [own]

    def require(self, symbol: str, lack: str = "") -> int:
        """Where Ebbtide's symbol lies. LabError: it was replaced, or is none `lack`."""
        found = self.find(symbol)
        if found:
            return found[0]
        pid = self.pid
        names = (each.file for each in self.maps if each.deleted)
        gone = next((name for name in names if LIBRARY in Path(name).name), "")
        if gone:
            raise LabError(f"process {pid} runs a {gone} that was replaced since: start it again")
        raise LabError(f"process {pid} has no Ebbtide in it {lack}".rstrip())

    def thread_name(self, thread: int) -> str:
        """Empty when the thread has ended."""
        try:
            comm = Path(f"/proc/{self.pid}/task/{thread}/comm")
            return comm.read_text(errors="replace").strip()
        except OSError:
            return ""

    def _address(self, mapping: Mapping, symbol: str, tables: tuple[str, ...]) -> int | None:
        if mapping.deleted:
            return None
        # Through the process' root: it may live in a container.
        path = f"{self.folder}/root{mapping.file}"
        try:
            with open(path, "rb") as file:
                elf = ELFFile(file)
                value = _value_of(elf, symbol, tables)
                return None if value is None else value + _shift(elf, mapping.start)
        except (OSError, ELFError):
            return None  # no file to read, or a mapped file that is no program


@contextmanager
def told(pid: int) -> Iterator[None]:
    """What goes wrong behind the opening, as one reads it."""
    try:
        yield
    except Torn as error:
        raise LabError(f"process {pid} has ended, or became another program, just now") from error
    except PermissionError as error:
        raise LabError(f"not allowed to write the memory of process {pid}") from error


def _living(pid: int) -> Path:
    """Its folder, or where its first thread has ended before the others, one of theirs."""
    folder = Path("/proc") / str(pid)
    if (folder / "maps").read_bytes():
        return folder
    threads = (folder / "task").iterdir()
    return next((each for each in threads if (each / "maps").read_bytes()), folder)


@contextmanager
def _told(pid: int, access: str) -> Iterator[None]:
    """The errors of opening a process as one reads them."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError) as error:
        raise LabError(f"no process has the number {pid}") from error
    except PermissionError as error:
        raise LabError(
            f"not allowed to {access} the memory of process {pid}: be its user or root"
            " (and see /proc/sys/kernel/yama/ptrace_scope)"
        ) from error


def _first_pages(maps: str) -> Iterator[Mapping]:
    """A file is mapped in parts; the part at offset 0 says where all the others are."""
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/") and int(words[2], 16) == 0:
            file = words[5].removesuffix(DELETED)
            yield Mapping(int(words[0].partition("-")[0], 16), file, file != words[5])


def _code(maps: str) -> Iterator[Code]:
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if "x" in words[1]:
            start, _, limit = words[0].partition("-")
            file = words[5].removesuffix(DELETED) if len(words) == 6 else ""
            yield Code(int(start, 16), int(limit, 16), int(words[2], 16), file)


def _shift(elf: ELFFile, start: int) -> int:
    """Segments keep their distances; the first one begins where offset 0 is mapped."""
    first = next(each for each in elf.iter_segments("PT_LOAD") if each["p_offset"] == 0)
    return int(start - first["p_vaddr"])


def _value_of(elf: ELFFile, symbol: str, tables: tuple[str, ...]) -> int | None:
    for name in tables:
        table = elf.get_section_by_name(name)
        found = _entries(table, symbol) if table else []
        for each in found:
            if each["st_shndx"] != "SHN_UNDEF":
                return int(each["st_value"])
    return None


def _entries(table: Section, symbol: str) -> list[Symbol]:
    if isinstance(table, SymbolTableSection):
        return table.get_symbol_by_name(symbol) or []
    if isinstance(table, GNUHashSection | ELFHashSection):
        found = table.get_symbol(symbol)
        return [found] if found else []
    return []
