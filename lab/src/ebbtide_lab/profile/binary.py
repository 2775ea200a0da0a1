# SPDX-License-Identifier: MIT OR Apache-2.0
"""A program's file: which function an address of it is in, and on which line."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path

import pycxxfilt
from elftools.common.exceptions import DWARFError, ELFError
from elftools.dwarf.compileunit import CompileUnit
from elftools.dwarf.dwarfinfo import DWARFInfo
from elftools.dwarf.lineprogram import LineProgram
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

CODE = ("STT_FUNC", "STT_GNU_IFUNC")
TABLES = (".symtab", ".dynsym")  # the first that has functions
EXECUTABLE = 1
MANGLED = ("_Z", "_R")  # C++, Rust
BROKEN = (ELFError, DWARFError, OSError, ValueError, KeyError, IndexError, AssertionError)


class NoBinaryError(Exception):
    """The file cannot be used; the message says why, as the end of a sentence."""


class Binary:
    """Raises NoBinaryError."""

    def __init__(self, path: str) -> None:
        try:
            content = BytesIO(Path(path).read_bytes())
        except OSError as error:
            raise NoBinaryError(f"cannot be read ({error.strerror})") from error
        try:
            self._elf = ELFFile(content)
            self.build_id = _build_id(self._elf)
            self._segments = list(self._elf.iter_segments("PT_LOAD"))
            self._functions = _functions(self._elf)
        except BROKEN as error:
            raise NoBinaryError("is no ELF file, or is damaged") from error
        self._starts = [start for start, _, _ in self._functions]

    def address_of(self, offset: int) -> int | None:
        """Where the byte at this offset of the file lies, as its symbols count."""
        fit = [
            each
            for each in self._segments
            if each["p_offset"] <= offset < each["p_offset"] + each["p_filesz"]
        ]
        fit.sort(key=lambda each: not each["p_flags"] & EXECUTABLE)
        return offset - int(fit[0]["p_offset"]) + int(fit[0]["p_vaddr"]) if fit else None

    def function(self, address: int) -> str:
        """Empty where no function is known."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return ""
        start, size, name = self._functions[at]
        # Functions of assembly have no size: they reach to the next.
        return demangled(name) if size == 0 or address < start + size else ""

    def lines(self, addresses: Iterable[int]) -> dict[int, str]:
        """FILE:LINE of those that .debug_line knows."""
        wanted = sorted(set(addresses))
        try:
            if not wanted or not self._elf.has_dwarf_info():
                return {}
            return _lines(self._elf.get_dwarf_info(), wanted)
        except BROKEN:
            return {}  # names suffice


def demangled(name: str) -> str:
    if not name.startswith(MANGLED):
        return name  # the library takes a plain `f` for the type float
    try:
        return pycxxfilt.demangle(name) or name
    except ValueError:  # it looks like a mangled name and is none
        return name


def _build_id(elf: ELFFile) -> str:
    for section in elf.iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return str(note["n_desc"])
    return ""


def _functions(elf: ELFFile) -> list[tuple[int, int, str]]:
    """(start, size, name); of the names of one place the first, and rather one with a size."""
    for name in TABLES:
        table = elf.get_section_by_name(name)
        if isinstance(table, SymbolTableSection):
            known: dict[int, tuple[int, int, str]] = {}
            for each in table.iter_symbols():
                if each["st_info"]["type"] in CODE and each["st_shndx"] != "SHN_UNDEF":
                    start, size = int(each["st_value"]), int(each["st_size"])
                    if start not in known or (size and not known[start][1]):
                        known[start] = (start, size, each.name)
            if known:
                return sorted(known.values())
    return []


def _lines(dwarf: DWARFInfo, wanted: list[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    for unit in _units(dwarf, wanted):
        program = dwarf.line_program_for_CU(unit)
        if program is not None:
            for address, file, line in _rows(program, wanted):
                found.setdefault(address, f"{_file_name(unit, program, file)}:{line}")
    return found


def _units(dwarf: DWARFInfo, wanted: list[int]) -> Iterator[CompileUnit]:
    """Those of the addresses where the file has an index, else all."""
    index = dwarf.get_aranges()
    places = [index.cu_offset_at_addr(each) for each in wanted] if index else []
    known = {place for place in places if place is not None}
    if not places or len(known) < len(set(places)):
        yield from dwarf.iter_CUs()
        return
    for place in sorted(known):
        yield dwarf.get_CU_at(place)


def _rows(program: LineProgram, wanted: list[int]) -> Iterator[tuple[int, int, int]]:
    """(address, number of a file, line): a row reaches to the next one's address."""
    last = None
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if last is not None and last.address < state.address:
            first, end = bisect_left(wanted, last.address), bisect_left(wanted, state.address)
            for address in wanted[first:end]:
                yield address, last.file, last.line
        last = None if state.end_sequence else state


def _file_name(unit: CompileUnit, program: LineProgram, number: int) -> str:
    first = 0 if program["version"] >= 5 else 1
    name = program["file_entry"][number - first].name
    return str(Path(name.decode(errors="replace")).name)
