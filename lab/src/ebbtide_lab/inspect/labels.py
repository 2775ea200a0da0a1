# SPDX-License-Identifier: MIT OR Apache-2.0
"""The labels of a process that has Ebbtide loaded, read from its memory.

The library has a table with a row for each label of regions or domains, which leads to the rows
of those that it has no room for (src/region/label.h).
Its slow paths write the numbers one by one and without order, so that two of them may be a
moment apart.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import count
from typing import NamedTuple

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect.image import Memory, text_of

HEAD = struct.Struct("<Q")
ROW = struct.Struct("<32s15Q")
ROWS = 64  # of the table
MORE = struct.Struct("<QQ")  # labels, the first part
NEXT = struct.Struct("<Q")  # a part begins with it
MOST_LABELS = 1_000_000
LEAST_PART = 100  # the first few are in the table, so that others lie in large parts
WORDS = ROW.size // 8
OPEN_AT, HELD_AT = 5, 10  # words of a row
SHOWN = 64  # where nobody wants all


class Row(NamedTuple):
    """As it lies in memory."""

    label: bytes
    is_domain: int
    open: int
    opened: int
    closed: int
    drained: int
    released: int
    held_bytes: int
    peak_bytes: int
    live_bytes: int
    slabs: int
    demoted: int
    late: int
    refused: int
    oldest_since_ms: int
    demoted_bytes: int


@dataclass(frozen=True)
class Label:
    """All regions of one label, or a domain. `live_bytes` is None for regions that hold memory
    but that the process itself has not measured: counting would cost them. `oldest_ms`: for how
    long the oldest slab that survivors pin has been there; None when there is none, or where the
    process does not keep it up, behind the first 64 labels."""

    label: str
    is_domain: bool
    open: int
    opened: int
    closed: int
    drained: int
    drain_share: float | None  # of the closes; None before the first
    released: int
    held_bytes: int
    peak_bytes: int
    live_bytes: int | None
    slabs: int
    demoted: int
    late: int
    refused: int
    oldest_ms: int | None


@dataclass(frozen=True)
class Rest:
    """Of the labels that are left out."""

    labels: int = 0
    open: int = 0
    held_bytes: int = 0


NO_REST = Rest()


@dataclass(frozen=True)
class Labels:
    """Who holds most comes first."""

    found: list[Label]
    rest: Rest


@dataclass(frozen=True)
class _Part:
    """Rows that lie side by side. `largest`: what they hold and which they are."""

    text: bytes
    open: int
    held_bytes: int
    largest: list[tuple[int, int]]


class Table:
    """The one at this address, looked at again and again, with `a_part` labels in each part behind
    it; of all labels the `most` that hold most. Of parts that are as they were nothing is counted
    anew, and of those that are left out no more is looked at than their sums: there may be
    thousands."""

    def __init__(self, memory: Memory, address: int, a_part: int, most: int | None = None) -> None:
        self._memory, self._address, self._a_part, self._most = memory, address, a_part, most
        self._parts: list[_Part] = []
        self._labels: dict[bytes, Label] = {}  # by their rows, those that do not age

    def read(self, now_ms: int) -> Labels:
        """Raises Torn when it is gone."""
        (rows,) = HEAD.unpack(self._memory.read(self._address, HEAD.size))
        if rows > ROWS:
            raise LabError(f"its Ebbtide counts {rows} rows of labels, more than it has")
        at = self._address + HEAD.size
        texts = [self._memory.read(at, rows * ROW.size)] if rows else []
        if rows == ROWS:
            texts += self._others(at + ROWS * ROW.size)
        self._parts = [self._part(number, text) for number, text in enumerate(texts)]
        return self._largest(now_ms)

    def _others(self, address: int) -> Iterator[bytes]:
        known, at = MORE.unpack(self._memory.read(address, MORE.size))
        left = known - ROWS
        if not 0 <= left <= MOST_LABELS or self._a_part < LEAST_PART:
            raise LabError(f"its Ebbtide counts {known} labels, which cannot be")
        while left > 0:
            rows = min(left, self._a_part)
            text = self._memory.read(at, NEXT.size + rows * ROW.size)
            yield text[NEXT.size :]
            (at,) = NEXT.unpack_from(text)
            left -= rows

    def _part(self, number: int, text: bytes) -> _Part:
        if number < len(self._parts) and self._parts[number].text == text:
            return self._parts[number]
        words = memoryview(text).cast("Q")
        held = words[HELD_AT::WORDS].tolist()
        ranked = zip(held, count(), strict=False)
        largest = list(ranked) if self._most is None else nlargest(self._most, ranked)
        return _Part(text, sum(words[OPEN_AT::WORDS]), sum(held), largest)

    def _largest(self, now_ms: int) -> Labels:
        ranked = sorted(
            (-held, number, at)
            for number, part in enumerate(self._parts)
            for held, at in part.largest
        )[: self._most]
        known, self._labels, labels = self._labels, {}, []
        for _, number, at in ranked:
            text = self._parts[number].text[at * ROW.size : (at + 1) * ROW.size]
            one = known.get(text) or _label(Row(*ROW.unpack(text)), now_ms, number == 0)
            if one.oldest_ms is None:
                self._labels[text] = one
            labels.append(one)
        rest = Rest(
            sum(len(each.text) for each in self._parts) // ROW.size - len(labels),
            sum(each.open for each in self._parts) - sum(each.open for each in labels),
            sum(each.held_bytes for each in self._parts) - sum(each.held_bytes for each in labels),
        )
        return Labels(labels, rest)


def _label(row: Row, now_ms: int, has_age: bool) -> Label:
    # Read one after the other: a close may be in one of them and not yet in the other.
    share = min(1.0, row.drained / row.closed) if row.closed else None
    since_ms = row.oldest_since_ms
    is_measured = row.is_domain or row.live_bytes or not row.held_bytes
    return Label(
        label=text_of(row.label),
        is_domain=row.is_domain != 0,
        open=row.open,
        opened=row.opened,
        closed=row.closed,
        drained=row.drained,
        drain_share=share,
        released=row.released,
        held_bytes=row.held_bytes,
        peak_bytes=max(row.peak_bytes, row.held_bytes),
        live_bytes=row.live_bytes if is_measured else None,
        slabs=row.slabs,
        demoted=row.demoted,
        late=row.late,
        refused=row.refused,
        oldest_ms=max(0, now_ms - since_ms) if since_ms and has_age else None,
    )
