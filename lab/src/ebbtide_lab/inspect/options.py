# SPDX-License-Identifier: MIT OR Apache-2.0
"""The options of an Ebbtide in a running process: what each is set to, and by whom; and to change
one (src/os/options.h)."""

import struct
from dataclasses import dataclass

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect import board, control
from ebbtide_lab.inspect.control import Control, NoAnswer
from ebbtide_lab.inspect.image import Process, text_of, told

TABLE = struct.Struct("<7Q")  # count; options, words, files, changes, values, sources
OPTION = struct.Struct("<4Q")  # name, kind, least, most
SIZE, SIZE_FILE, MS, FLAG, NUMBER, CHOICE, PATH = range(7)  # kinds
MOST_WORDS = 5  # of a choice
MOST_OPTIONS = 200
MOST_TEXT = 4096
SOURCES = ("default", "environment", "request")
WORD = struct.Struct("<Q")
SHIFTS = {"k": 10, "m": 20, "g": 30}


@dataclass(frozen=True)
class Option:
    """`value`: bytes, milliseconds, a number, or that of a word of `words`. `source`: `default`,
    `environment`, or `request`: another process changed it. `file`: of those that name one."""

    name: str
    value: int
    source: str
    least: int
    most: int
    kind: int
    changes: bool  # in a running process
    words: tuple[str, ...]
    file: str

    @property
    def text(self) -> str:
        """As one would set it."""
        if self.kind == CHOICE:
            known = self.value < len(self.words)
            return self.words[self.value].partition("|")[0] if known else str(self.value)
        if self.kind == PATH:
            return self.file
        return (
            f"{self.value},{self.file}"
            if self.kind == SIZE_FILE and self.value
            else str(self.value)
        )

    @property
    def unit(self) -> str:
        return {SIZE: "bytes", SIZE_FILE: "bytes", MS: "ms"}.get(self.kind, "")

    def parse(self, text: str) -> int:
        """Raises LabError where it is no value of this option."""
        shift = SHIFTS.get(text[-1:].lower(), 0) if self.kind == SIZE else 0
        digits = text[:-1] if shift else text
        value = int(digits) << shift if digits.isdecimal() and digits.isascii() else -1
        if not self.least <= value <= self.most:
            raise LabError(f"{self.name}={text} is not a number from {self.least} to {self.most}")
        return value


def read(pid: int) -> list[Option]:
    process = Process(pid)
    try:
        with told(pid):
            return _read(process)
    finally:
        process.close()


def change(pid: int, name: str, text: str) -> list[Option]:
    """All of them, as they are then. LabError: there is none of that name, or it cannot be."""
    process = Process(pid, writes=True)
    try:
        with told(pid):
            known = {each.name: (number, each) for number, each in enumerate(_read(process))}
        if name not in known:
            raise LabError(f"the Ebbtide in process {pid} has no option {name}")
        number, option = known[name]
        if not option.changes:
            able = ", ".join(each.name for _, each in known.values() if each.changes)
            raise LabError(f"{name} holds from the start of a process; what changes is {able}")
        value = option.parse(text)
        try:
            Control(process, board.require(process).control).ask(control.OPTION, number, value)
        except NoAnswer as error:
            with told(pid):
                now = _read(process)[number]
            raise NoAnswer(f"{error}; {name} is {now.text}") from error
        with told(pid):
            return _read(process)
    finally:
        process.close()


def _read(process: Process) -> list[Option]:
    at = board.require(process).options
    count, *places = TABLE.unpack(process.read(at, TABLE.size))
    if count > MOST_OPTIONS:
        raise LabError(f"the Ebbtide in process {process.pid} counts {count} options")
    options, words, files, changes, values, sources = places
    rows = OPTION.iter_unpack(process.read(options, count * OPTION.size))
    all_words = _words(process, words, count * MOST_WORDS)
    all_files = _words(process, files, count)
    can_change = process.read(changes, count)
    numbers = _words(process, values, count)
    by = process.read(sources, count)
    return [
        Option(
            _text(process, name),
            numbers[i],
            SOURCES[min(by[i], len(SOURCES) - 1)],
            least,
            most,
            kind,
            can_change[i] != 0,
            tuple(_text(process, each) for each in all_words[i * 5 : i * 5 + 5] if each),
            _text(process, all_files[i]) if all_files[i] else "",
        )
        for i, (name, kind, least, most) in enumerate(rows)
    ]


def _words(process: Process, at: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}Q", process.read(at, count * WORD.size))


def _text(process: Process, at: int) -> str:
    """Up to its end; the next page may not be there."""
    found = b""
    while b"\0" not in found and len(found) < MOST_TEXT:
        start = at + len(found)
        found += process.read(start, 64 - start % 64)
    return text_of(found)
