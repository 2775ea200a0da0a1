# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sampled heap profile of a running process: switched on and off, and read, from outside.

The board leads to the sums by stack and to the samples in use (src/profile/profile.h), which are
read without stopping anybody; a sum may be an allocation behind. It is asked for so long
(control.py): a profile ends by itself when this tool does not come back.
"""

import os
import struct
import time
from dataclasses import dataclass
from typing import NamedTuple

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect import board, control
from ebbtide_lab.inspect.control import Control
from ebbtide_lab.inspect.image import Code, Process, text_of, told

STATE = struct.Struct("<IxxxxQQ")  # round, mean, until
BOOK = struct.Struct("<QQQQ")  # entries, what was freed of them, calls, how many entries
TABLE = struct.Struct("<QI")  # of samples in use: where, how many places
TERMS = 8  # lengths of time
ENTRY = struct.Struct("<QIIdd")
FREED = struct.Struct(f"<{2 * TERMS}d")
LIVE = struct.Struct("<QQdQIIQII")
LABEL_BYTES = 32
WORD = struct.Struct("<Q")
MOST_DEPTH = 64
MOST_ENTRIES, MOST_CALLS, MOST_LIVE = 1 << 17, 1 << 22, 1 << 19


class Amount(NamedTuple):
    objects: float
    bytes: float

    def plus(self, more: "Amount") -> "Amount":
        return Amount(self.objects + more.objects, self.bytes + more.bytes)

    def less(self, part: "Amount") -> "Amount":
        return Amount(self.objects - part.objects, self.bytes - part.bytes)

    def at_most(self, most: "Amount") -> "Amount":
        return Amount(
            max(min(self.objects, most.objects), 0.0), max(min(self.bytes, most.bytes), 0.0)
        )


NONE = Amount(0.0, 0.0)


@dataclass(frozen=True)
class Sums:
    """Of one stack, whose calls are the innermost first."""

    calls: tuple[int, ...]
    made: Amount
    freed: tuple[Amount, ...]  # of these, by how long they were in use: one for each term


@dataclass(frozen=True)
class Live:
    """A sample in use."""

    entry: int  # of its stack among the sums
    thread: int
    label: str  # of the domain that was current; "": none
    made_ns: int  # CLOCK_MONOTONIC
    amount: Amount  # that it stands for
    keeps: float  # bytes of free memory that these keep, when that was looked at last


class HeapProfile:
    """Raises LabError with the reason when the process has none, or has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._own = self._others = 0  # until when, in the process' time
        self._process = Process(pid, writes=True)
        try:
            its = board.require(self._process)
            self._control = Control(self._process, its.control)
            self._its = its.profile
            if self._its.entry_bytes != ENTRY.size:
                raise LabError(f"the Ebbtide in process {pid} has a profile of another version")
        except LabError:
            self.close()
            raise

    def close(self) -> None:
        self._process.close()

    @property
    def code(self) -> list[Code]:
        return self._process.code

    def path_of(self, file: str) -> str:
        """Of a mapped file. The process may live in a container, whose files have other names here,
        or have a root of its own, where the kernel names them from the root of who looks."""
        root = f"{self._process.folder}/root"
        try:
            above = os.readlink(root).rstrip("/")
        except OSError:
            above = ""
        return root + (file.removeprefix(above) if file.startswith(above + "/") else file)

    def mean(self) -> int:
        """Bytes from one sample to the next; 0: it is off."""
        number, mean, _ = self._state()
        return mean if number else 0

    def until(self) -> int:
        """When it ends by itself, in the process' time; 0: it is off, or the program's own."""
        return self._state()[2]

    def begin(self, mean: int, seconds: float) -> None:
        """On for so long from now, unless the program itself has one. Returns when it is. What was
        on before is looked at in the same turn: another tool may begin one any time."""
        with self._control.turn():
            before = self.until()
            if before != self._own:
                self._others = before
            if before or not self.mean():
                self._control.ask_in_turn(control.PROFILE, mean, round(seconds * 1000))
            self._own = self.until()

    def end(self) -> None:
        """What was begun here; but what others want on for longer stays on."""
        with self._control.turn():
            is_ours = self.until() == self._own and self._others <= time.monotonic() * 1000
            if self._own and is_ours:
                self._control.ask_in_turn(control.PROFILE)

    def look(self) -> None:
        """Has the process see what each sample in use keeps. Returns when it has."""
        self._control.ask(control.PINS)

    def read(self) -> list[Sums]:
        """All stacks since the process began, those of earlier rounds included."""
        with told(self.pid):
            book = self._process.read(self._its.book, BOOK.size)
            entries, freed, calls, count = BOOK.unpack(book)
            if entries == 0 or count == 0:
                return []
            self._check(count <= MOST_ENTRIES)
            found = list(ENTRY.iter_unpack(self._process.read(entries, count * ENTRY.size)))
            terms = FREED.iter_unpack(self._process.read(freed, count * FREED.size))
            last = max(first + depth for _, first, depth, *_ in found)
            self._check(last <= MOST_CALLS)
            words = struct.unpack(f"<{last}Q", self._process.read(calls, last * WORD.size))
        return [
            Sums(
                words[first : first + min(depth, MOST_DEPTH)],
                Amount(*made),
                tuple(map(Amount, term[::2], term[1::2])),
            )
            for (_, first, depth, *made), term in zip(found, terms, strict=True)
        ]

    def live(self) -> list[Live]:
        """The samples in use. One that comes or goes meanwhile may be missing."""
        with told(self.pid):
            live, count = TABLE.unpack(self._process.read(self._its.live, TABLE.size))
            self._check(count <= MOST_LIVE)
            content = self._process.read(live, count * LIVE.size) if live else b""
        labels: dict[int, str] = {0: ""}
        return [
            Live(
                entry - 1,
                thread,
                self._label(label, labels),
                made_ns,
                Amount(objects, objects * size),
                objects * keeps,
            )
            for made_ns, size, objects, label, entry, thread, _, keeps, _ in LIVE.iter_unpack(
                content
            )
            if entry
        ]

    def thread_name(self, thread: int) -> str:
        """Empty when it has ended."""
        return self._process.thread_name(thread)

    def _label(self, address: int, known: dict[int, str]) -> str:
        if address not in known:
            with told(self.pid):
                name = self._process.read(address, LABEL_BYTES)
            known[address] = text_of(name)
        return known[address]

    def _check(self, is_possible: bool) -> None:
        if not is_possible:
            raise LabError(f"the profile of process {self.pid} makes no sense")

    def _state(self) -> tuple[int, int, int]:
        with told(self.pid):
            number, mean, until = STATE.unpack(self._process.read(self._its.state, STATE.size))
            return number, mean, until
