# SPDX-License-Identifier: MIT OR Apache-2.0
"""Who stalls whom in a process that has Ebbtide loaded, read from its memory.

The library's data symbol `ebb_reclaim_board` leads to the clock of the default
collector and to the list of its participants (include/ebbtide/detail/pin.h). They
change while they are read. A list that is not the same at the end, a record that is
not of this clock, or one that is gone make a new attempt.
"""

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect.image import Memory, Process, Torn

SYMBOL = "ebb_reclaim_board"
LACK = "that tells of reclamation"
MAGIC = 0x45424252434C4D31
VERSION = 2
BOARD = struct.Struct("<QIIQQQQ")
PARTICIPANT = struct.Struct("<QQIIQ")
WORD = struct.Struct("<Q")
# A participant's state is an epoch above a mark of the library and the depth of the pin: 0
# outside of one, where the epoch may be an old one. The clock's word is the epoch above a mark.
EPOCH_SHIFT = 16
DEPTH = 0x7FFF
LINE = 64
ATTEMPTS = 50
ATTEMPTS_WAIT_S = 0.002
MOST_PARTICIPANTS = 1_000_000


class Board(NamedTuple):
    """Addresses in the process; `first` is that of the pointer to the first participant.

    `waiting` is that of so many `parts` of a sum, a cache line each."""

    magic: int
    version: int
    parts: int
    now: int
    first: int
    changed_ms: int
    waiting: int


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
    """Pins are the oldest first."""

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
        board = process.require(SYMBOL, LACK)
        now_ms = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
        return read_stalls(process, board, now_ms, process.thread_name)
    finally:
        process.close()


def read_stalls(memory: Memory, board: int, now_ms: int, name_of: Callable[[int], str]) -> Stalls:
    """The clock that the board at this address tells of; names are asked of `name_of`."""
    for _ in range(ATTEMPTS):
        try:
            return _read_once(memory, _read_board(memory, board), now_ms, name_of)
        except Torn:
            time.sleep(ATTEMPTS_WAIT_S)
    raise LabError("its threads come and go too fast to be read; try again")


def _read_board(memory: Memory, address: int) -> Board:
    board = Board(*BOARD.unpack(memory.read(address, BOARD.size)))
    if board.magic != MAGIC:
        raise LabError(f"{SYMBOL} does not begin as it should: not a library of Ebbtide?")
    if board.version != VERSION:
        raise LabError(f"its Ebbtide writes version {board.version} of {SYMBOL}, not {VERSION}")
    return board


def _read_once(memory: Memory, board: Board, now_ms: int, name_of: Callable[[int], str]) -> Stalls:
    states = list(_participants(memory, board))
    # The clock after the pins: a pin that it has left behind is old for certain.
    epoch = _word(memory, board.now) >> EPOCH_SHIFT
    changed_ms = _word(memory, board.changed_ms)
    age_ms = max(0, now_ms - changed_ms) if changed_ms else 0
    pins = []
    for state, thread in states:
        depth = state & DEPTH
        if depth:
            behind = epoch - (state >> EPOCH_SHIFT)
            pins.append(Pin(thread, name_of(thread), depth, behind, age_ms if behind > 0 else 0))
    pins.sort(key=lambda pin: -pin.behind)
    return Stalls(epoch, _waiting(memory, board), len(states), pins)


def _waiting(memory: Memory, board: Board) -> int:
    """Amid changes one part may be seen without another: at worst less than nothing."""
    parts = (_word(memory, board.waiting + LINE * part) for part in range(board.parts))
    total = sum(parts) % (1 << 64)
    return total if total < 1 << 63 else 0


def _participants(memory: Memory, board: Board) -> Iterator[tuple[int, int]]:
    """State and thread of each. The library puts new ones, and those in the way of the
    clock, at the head: with the head as it was, none has been passed over."""
    head = at = _word(memory, board.first)
    count = 0
    while at:
        state, now, _, thread, following = PARTICIPANT.unpack(memory.read(at, PARTICIPANT.size))
        count += 1
        if now != board.now or count > MOST_PARTICIPANTS:
            raise Torn
        yield state, thread
        at = following
    if _word(memory, board.first) != head:
        raise Torn


def _word(memory: Memory, address: int) -> int:
    return int(WORD.unpack(memory.read(address, WORD.size))[0])
