# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a running process is asked to do, from outside (src/os/control.h).

Who in the process next makes a slow call sees it, or its helper within a second.
"""

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect.image import Process, told

QUESTION = struct.Struct("<QQQ")  # what, with, for how many ms
STATE = struct.Struct("<IIi")  # asked, answered, result
HALF = struct.Struct("<I")
NOTHING, PROFILE, TRIM, SNAPSHOT, PINS, OPTION = range(6)
DEEDS = {
    PROFILE: "begin a profile",
    TRIM: "give memory back",
    SNAPSHOT: "add up its heap",
    PINS: "look at what its samples keep",
    OPTION: "change the option",
}
ASKED_AT, WHAT_AT = 0, 16
ANSWERS_WITHIN_S = 5.0
TURN_WITHIN_S = 15.0
LOOK_S = 0.005
MOST_REST_S = 0.1  # from one look to the next


class NoAnswer(LabError):
    """It makes no slow call and has no helper thread, or it is stopped."""


class Control:
    """Of a process that was opened for writing, at this address of its."""

    def __init__(self, process: Process, address: int) -> None:
        self._process = process
        self._at = address

    @contextmanager
    def turn(self) -> Iterator[None]:
        """No other tool asks meanwhile: what is found stays so until it is asked for another."""
        with told(self._process.pid), self._process.turn(TURN_WITHIN_S):
            yield

    def ask(self, what: int, with_: int = 0, ms: int = 0) -> None:
        """As `ask_in_turn`, when the turn has come."""
        with self.turn():
            self.ask_in_turn(what, with_, ms)

    def ask_in_turn(self, what: int, with_: int = 0, ms: int = 0) -> None:
        """Returns when it is done. A question that is not answered is taken back. Of several tools
        each waits for its turn, so that none overwrites what another has asked."""
        question = QUESTION.pack(what, with_, ms)
        number = self._put(question)
        end = time.monotonic() + ANSWERS_WITHIN_S
        rest_s = LOOK_S
        try:
            while not self._is_done(what, number) and time.monotonic() < end:
                time.sleep(rest_s)
                rest_s = min(2 * rest_s, MOST_REST_S)  # each look costs, and most wait for long
                if self._state()[0] != number:  # a tool in another container does not see turns
                    number = self._put(question)
        except KeyboardInterrupt:
            self._take_back()
            raise
        if not self._is_done(what, number):
            self._take_back()
            if not self._is_done(what, number):
                raise NoAnswer(
                    f"process {self._process.pid} does not answer: it makes no slow call and"
                    " has no helper thread, or it is stopped"
                )

    def _state(self) -> tuple[int, int, int]:
        asked, answered, result = STATE.unpack(self._process.read(self._at + ASKED_AT, STATE.size))
        return asked, answered, result

    def _put(self, question: bytes) -> int:
        number = (self._state()[0] + 1 + os.getpid()) % (1 << 32)  # another than anybody's just now
        self._process.write(self._at + WHAT_AT, question)
        self._process.write(self._at + ASKED_AT, HALF.pack(number))
        return number

    def _take_back(self) -> None:
        self._process.write(self._at + WHAT_AT, QUESTION.pack(NOTHING, 0, 0))

    def _is_done(self, what: int, number: int) -> bool:
        _, answered, result = self._state()
        if answered == number and result != 0:
            cannot = f"process {self._process.pid} cannot {DEEDS[what]}"
            raise LabError(f"{cannot}: {os.strerror(-result)}")
        return answered == number
