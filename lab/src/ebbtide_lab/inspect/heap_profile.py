# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sampled heap profile of a running process: switched on and off, and read, from outside.

`ebb_profile_board` leads to the sums by stack (src/profile/profile.c), which are read
without stopping anybody; a sum may be an allocation behind. `ebb_control` is where it is
asked for (src/os/control.h): who in the process next makes a slow call sees it, or its
helper within a second. It is asked for so long: a profile ends by itself when this tool
does not come back.
"""

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect.image import Code, Process, Torn

BOARD_SYMBOL = "ebb_profile_board"
CONTROL_SYMBOL = "ebb_control"
LACK = "that could be asked for a profile"
BOARD = struct.Struct("<QIIQQQQQQ")
BOARD_MAGIC = 0x4542424350524631
CONTROL = struct.Struct("<QIIIiQQQ")
CONTROL_MAGIC = 0x4542424354524C31
VERSION = 1  # of both
ENTRY = struct.Struct("<QIIdddd")
WORD = struct.Struct("<Q")
HALF = struct.Struct("<I")
QUESTION = struct.Struct("<QQQ")  # what, with, for how many ms
STATE = struct.Struct("<IIi")  # asked, answered, result
ASK_NOTHING, ASK_PROFILE = 0, 1
ASKED_AT, WHAT_AT = 12, 24  # in the control
MOST_DEPTH = 64
ANSWERS_WITHIN_S = 5.0
LOOK_S = 0.005


@dataclass(frozen=True)
class Sums:
    """Of one stack, whose calls are the innermost first."""

    calls: tuple[int, ...]
    objects: float  # allocated
    bytes: float
    freed_objects: float  # of these
    freed_bytes: float


class HeapProfile:
    """Raises LabError with the reason when the process has none, or has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._process = Process(pid, writes=True)
        try:
            with self._told():
                self._control = self._process.require(CONTROL_SYMBOL, LACK)
                board = self._process.read(self._process.require(BOARD_SYMBOL, LACK), BOARD.size)
                magic, version, entry_bytes, *self._places = BOARD.unpack(board)
                mine = self._process.read(self._control, CONTROL.size)
                marks = CONTROL.unpack(mine)[:2]
        except LabError:
            self.close()
            raise
        if (magic, version, entry_bytes, *marks) != (
            BOARD_MAGIC,
            VERSION,
            ENTRY.size,
            CONTROL_MAGIC,
            VERSION,
        ):
            self.close()
            raise LabError(f"the Ebbtide in process {pid} has a profile of another version")

    def close(self) -> None:
        self._process.close()

    @property
    def code(self) -> list[Code]:
        return self._process.code

    @property
    def root(self) -> str:
        """Where its files are: it may live in a container."""
        return f"{self._process.folder}/root"

    def mean(self) -> int:
        """Bytes from one sample to the next; 0: it is off."""
        with self._told():
            at_round, at_mean = self._places[:2]
            is_on = HALF.unpack(self._process.read(at_round, HALF.size))[0] != 0
            return self._word(at_mean) if is_on else 0

    def until(self) -> int:
        """When it ends by itself, in the process' time; 0: it is off, or the program's own."""
        with self._told():
            return self._word(self._places[2])

    def ask(self, mean: int, seconds: float = 0) -> None:
        """On for so long, or with 0 off, unless the program itself has one. Returns when it is."""
        with self._told():
            question = QUESTION.pack(ASK_PROFILE, mean, round(seconds * 1000))
            number = self._put(question)
            end = time.monotonic() + ANSWERS_WITHIN_S
            try:
                while not self._is_done(number):
                    if time.monotonic() > end:
                        break
                    time.sleep(LOOK_S)
                    if self._state()[0] != number:  # another tool asks as well
                        number = self._put(question)
                else:
                    return
            except KeyboardInterrupt:
                self._take_back()
                raise
            self._take_back()
            if not self._is_done(number):
                raise LabError(
                    f"process {self.pid} does not answer: its one thread sleeps or makes no slow"
                    " call, or it is stopped"
                )

    def read(self) -> list[Sums]:
        """All stacks since the process began, those of earlier rounds included."""
        with self._told():
            at_entries, at_count, at_calls = self._places[3:]
            entries, count, calls = (self._word(at) for at in (at_entries, at_count, at_calls))
            if entries == 0:
                return []
            content = self._process.read(entries, count * ENTRY.size)
            found = list(ENTRY.iter_unpack(content))
            last = max(first + depth for _, first, depth, *_ in found)
            words = struct.unpack(f"<{last}Q", self._process.read(calls, last * WORD.size))
        return [
            Sums(words[first : first + min(depth, MOST_DEPTH)], *sums)
            for _, first, depth, *sums in found
        ]

    def _word(self, address: int) -> int:
        return int(WORD.unpack(self._process.read(address, WORD.size))[0])

    def _state(self) -> tuple[int, int, int]:
        asked, answered, result = STATE.unpack(
            self._process.read(self._control + ASKED_AT, STATE.size)
        )
        return asked, answered, result

    def _put(self, question: bytes) -> int:
        before = self._state()[0]
        number = (before + 1 + os.getpid()) % (1 << 32)  # another than anybody's just now
        number += number == before
        self._process.write(self._control + WHAT_AT, question)
        self._process.write(self._control + ASKED_AT, HALF.pack(number))
        return number

    def _take_back(self) -> None:
        self._process.write(self._control + WHAT_AT, QUESTION.pack(ASK_NOTHING, 0, 0))

    def _is_done(self, number: int) -> bool:
        _, answered, result = self._state()
        if answered == number and result != 0:
            raise LabError(f"process {self.pid} cannot: {os.strerror(-result)}")
        return answered == number

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Torn as error:
            raise LabError(
                f"process {self.pid} has ended, or became another program, just now"
            ) from error
        except PermissionError as error:
            raise LabError(f"not allowed to write the memory of process {self.pid}") from error
