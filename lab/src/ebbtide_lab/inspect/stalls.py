# SPDX-License-Identifier: MIT OR Apache-2.0
"""Who stalls whom in a process that has Ebbtide loaded, read from its memory.

The board leads to the clock of the default collector and to the list of its participants. They
change while they are read: a list that has changed, or a record that is gone, make a new attempt.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect import board
from ebbtide_lab.inspect.board import DEPTH, Reclaim, participants, word
from ebbtide_lab.inspect.image import Memory, Process, Torn

# A participant's state is an epoch above a mark of the library and the depth of the pin: 0
# outside of one, where the epoch may be an old one. The clock's word is the epoch above a mark.
EPOCH_SHIFT = 16
LINE = 64
ATTEMPTS = 50
ATTEMPTS_WAIT_S = 0.002
MOST_S = 5.0


@dataclass(frozen=True)
class Pin:
    """A thread inside a pin. `age_ms` is for how long at least: only pins of an earlier
    epoch than the present one are known to be as old as that one."""

    thread: int
    name: str
    depth: int
    behind: int
    age_ms: int


@dataclass(frozen=True)
class Stalls:
    """Pins are the oldest first. Read without help, what waits lacks what each thread has retired
    last: of each block size up to 64 KiB, or three blocks."""

    epoch: int
    waiting_bytes: int
    participants: int
    pins: list[Pin]

    @property
    def oldest_ms(self) -> int:
        return self.pins[0].age_ms if self.pins else 0


def examine(pid: int) -> Stalls:
    process = Process(pid)
    try:
        its = board.require(process).reclaim
        now_ms = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
        return read_stalls(process, its, now_ms, process.thread_name)
    finally:
        process.close()


def read_stalls(memory: Memory, its: Reclaim, now_ms: int, name_of: Callable[[int], str]) -> Stalls:
    """The clock that these places tell of; names are asked of `name_of`."""
    end = time.monotonic() + MOST_S
    for _ in range(ATTEMPTS):
        try:
            return _read_once(memory, its, now_ms, name_of)
        except Torn:
            if time.monotonic() > end:
                break
            time.sleep(ATTEMPTS_WAIT_S)
    raise LabError("its threads come and go too fast to be read; try again")


def _read_once(memory: Memory, its: Reclaim, now_ms: int, name_of: Callable[[int], str]) -> Stalls:
    states = list(participants(memory, its))
    # The clock after the pins: a pin that it has left behind is old for certain.
    epoch = word(memory, its.now) >> EPOCH_SHIFT
    changed_ms = word(memory, its.changed_ms)
    age_ms = max(0, now_ms - changed_ms) if changed_ms else 0
    pins = []
    for state, thread in states:
        depth = state & DEPTH
        if depth:
            behind = epoch - (state >> EPOCH_SHIFT)
            pins.append(Pin(thread, name_of(thread), depth, behind, age_ms if behind > 0 else 0))
    pins.sort(key=lambda pin: -pin.behind)
    return Stalls(epoch, _waiting(memory, its), len(states), pins)


def _waiting(memory: Memory, its: Reclaim) -> int:
    """Amid changes one part may be seen without another: at worst less than nothing."""
    parts = (word(memory, its.waiting + LINE * part) for part in range(its.parts))
    total = sum(parts) % (1 << 64)
    return total if total < 1 << 63 else 0
