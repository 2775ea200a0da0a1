# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sampled heap profile of a running process: switched on and off, and read, from outside.

`ebb_profile_board` leads to the sums by stack (src/profile/profile.c), which are read
without stopping anybody; a sum may be an allocation behind. `ebb_control` is where it is
asked for (src/os/control.h): who in the process next makes a slow call sees it, or its
helper within a second.
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
BOARD = struct.Struct("<QIIQQQQQ")
BOARD_MAGIC = 0x4542424350524631
CONTROL = struct.Struct("<QIIIiQQ")
CONTROL_MAGIC = 0x4542424354524C31
VERSION = 1  # of both
ENTRY = struct.Struct("<QIIdddd")
WORD = struct.Struct("<Q")
HALF = struct.Struct("<I")
ASK_PROFILE = 1
ASKED_AT, ANSWER_AT, WHAT_AT = 12, 16, 24  # in the control
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
        self._process = Process(pid)
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

    def mean(self) -> int:
        """Bytes from one sample to the next; 0: it is off."""
        with self._told():
            at_round, at_mean, *_ = self._places
            is_on = HALF.unpack(self._process.read(at_round, HALF.size))[0] != 0
            return self._word(at_mean) if is_on else 0

    def switch(self, mean: int) -> None:
        """On, or with 0 off. Returns when it is."""
        with self._told():
            before = HALF.unpack(self._process.read(self._control + ASKED_AT, HALF.size))[0]
            number = (before + 1 + os.getpid()) % (1 << 32)  # another than anybody's just now
            number += number == before
            self._process.write(self._control + WHAT_AT, WORD.pack(ASK_PROFILE) + WORD.pack(mean))
            self._process.write(self._control + ASKED_AT, HALF.pack(number))
            self._wait(number)

    def read(self) -> list[Sums]:
        """All stacks since the process began, those of earlier rounds included."""
        with self._told():
            _, _, at_entries, at_count, at_calls = self._places
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

    def _wait(self, number: int) -> None:
        end = time.monotonic() + ANSWERS_WITHIN_S
        while time.monotonic() < end:
            answered, result = struct.unpack(
                "<Ii", self._process.read(self._control + ANSWER_AT, 8)
            )
            if answered == number:
                if result != 0:
                    raise LabError(f"process {self.pid} cannot: {os.strerror(-result)}")
                return
            time.sleep(LOOK_S)
        raise LabError(
            f"process {self.pid} does not answer: its one thread sleeps or allocates nothing new"
            " (it will answer when it does), or it is stopped"
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Torn as error:
            raise LabError(f"process {self.pid} has ended") from error
        except PermissionError as error:
            raise LabError(f"not allowed to write the memory of process {self.pid}") from error
