# SPDX-License-Identifier: MIT OR Apache-2.0
"""The board of an Ebbtide in a running process: where all that may be read of its heap lies, and
the word by which it is asked for something (src/process/board.h). A note leads to it, also in a
stripped program that the library is linked into, and where the file was replaced since.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.text import shown
from ebbtide_lab.inspect.image import Memory, Process, Torn, text_of, torn_reason

LIBRARY = "libebbtide"
NOTE = struct.pack("<III8s", 8, 8, 1, b"Ebbtide")  # bytes of owner and content, type, owner
DISTANCE = struct.Struct("<q")
HEAD = struct.Struct("<QII")  # magic, version, bytes
MAGIC = 0x454242424F524431
VERSION = 4
REST = struct.Struct("<16s5Q5Q4Q")
MOST_PARTS = 4096  # of the sum of what waits
PARTICIPANT = struct.Struct("<QQIIQ")
DEPTH = 0x7FFF  # of a participant's state: 0 outside of a pin
WORD = struct.Struct("<Q")
MOST_PARTICIPANTS = 200_000


class Reclaim(NamedTuple):
    """The default collector's: addresses, and how many parts the sum of what waits has."""

    now: int
    first: int
    changed_ms: int
    waiting: int
    parts: int


class Profile(NamedTuple):
    """Bytes of an entry of the sums by stack, and addresses."""

    entry_bytes: int
    state: int
    book: int
    live: int


class Board(NamedTuple):
    """Addresses in the process, but for `release` and `labels_a_part`. `others`: of boards of other
    copies of Ebbtide in it."""

    address: int
    release: str
    control: int
    snapshot: int
    labels: int
    labels_a_part: int
    options: int
    reclaim: Reclaim
    profile: Profile
    others: tuple[int, ...] = ()


def find(process: Process) -> Board | None:
    """Of several the one that serves malloc, by which most threads have allocated. Where they are
    as many, it is the one at the higher address: what is preloaded first is mapped above the next,
    and the program below all. LabError: it is of another version than this tool."""
    found: list[Board] = []
    faults: list[LabError] = []
    for note in process.notes(NOTE, DISTANCE.size):
        try:
            found.append(_read(process, note.address + DISTANCE.unpack(note.content)[0]))
        except LabError as error:  # perhaps of a library that is mapped as a file
            faults.append(error)
    if len(found) > 1:
        found.sort(key=lambda each: (_attached(process, each.reclaim), each.address))
    if found:
        *others, serves = found
        return serves._replace(others=tuple(each.address for each in others))
    if faults:
        raise faults[0]
    return None


def participants(memory: Memory, its: Reclaim) -> Iterator[tuple[int, int]]:
    """State and thread of each (include/ebbtide/detail/pin.h). The library puts new ones, and those
    in the way of the clock, at the head: with the head as it was, none has been passed over. The
    one of no thread, which those without a heap share, counts while it is pinned. Torn: the head
    was not, or a record is not of this clock."""
    head = at = word(memory, its.first)
    seen: set[int] = set()
    while at:
        state, now, _, thread, following = PARTICIPANT.unpack(memory.read(at, PARTICIPANT.size))
        if now != its.now or at in seen or len(seen) == MOST_PARTICIPANTS:
            raise Torn
        seen.add(at)
        if thread or state & DEPTH:
            yield state, thread
        at = following
    if word(memory, its.first) != head:
        raise Torn


def word(memory: Memory, address: int) -> int:
    return int(WORD.unpack(memory.read(address, WORD.size))[0])


def _attached(memory: Memory, its: Reclaim) -> int:
    """How many threads; where they come and go, as many as were seen."""
    count = 0
    with suppress(Torn):
        for _ in participants(memory, its):
            count += 1
    return count


def require(process: Process) -> Board:
    """LabError also where there is none."""
    board = find(process)
    if board is None:
        older = next((each for each in process.maps if LIBRARY in Path(each.file).name), None)
        if older:
            raise LabError(
                f"process {process.pid} runs an Ebbtide of another version from"
                f" {shown(older.file)}, which this tool cannot read"
            )
        raise LabError(f"process {process.pid} has no Ebbtide in it")
    return board


def _read(process: Process, at: int) -> Board:
    try:
        magic, version, size = HEAD.unpack(process.read(at, HEAD.size))
        if (magic, version) != (MAGIC, VERSION) or size < HEAD.size + REST.size:
            raise LabError(f"the Ebbtide in process {process.pid} is of another version")
        rest = REST.unpack(process.read(at + HEAD.size, REST.size))
    except Torn as error:
        raise LabError(torn_reason(process.pid)) from error
    reclaim, profile = Reclaim(*rest[6:11]), Profile(*rest[11:])
    if reclaim.parts > MOST_PARTS:
        raise LabError(f"the Ebbtide in process {process.pid} makes no sense")
    control, snapshot, labels, a_part, options = rest[1:6]
    return Board(
        at,
        text_of(rest[0]),
        control,
        snapshot,
        labels,
        a_part,
        options,
        reclaim,
        profile,
    )
