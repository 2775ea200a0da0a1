# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the accounts of a process were in the last two minutes, and small pictures of it."""

from collections import deque

from ebbtide_lab.inspect.heap import Heap
from ebbtide_lab.show.waterfall import accounts

KEPT_S = 120.0
LEVELS = "▁▂▃▄▅▆▇"  # the highest leaves a gap to the line above


RESIDENT = "resident"


def lines_of(heap: Heap) -> list[tuple[str, int]]:
    """The accounts, and what they sum to."""
    found = [(each.name, each.bytes) for each in accounts(heap)]
    return [*found, (RESIDENT, heap.resident_bytes)]


class History:
    def __init__(self) -> None:
        self._samples: deque[tuple[float, list[int]]] = deque()

    def add(self, heap: Heap) -> None:
        self._samples.append((heap.taken, [count for _, count in lines_of(heap)]))
        while self._samples[0][0] < heap.taken - KEPT_S:
            self._samples.popleft()

    def line(self, at: int, width: int, end: float) -> str:
        """Of line number `at`, `end` to the right. From 0 to the most that it was: a height says
        how large it was, not only that it changed. Nothing where nobody had looked yet."""
        columns: list[int | None] = [None] * max(width, 0)
        for taken, values in self._samples:
            column = width - 1 - int((end - taken) * width / KEPT_S)
            if 0 <= column < width and taken <= end:
                columns[column] = abs(values[at])
        return _drawn(columns)


def _drawn(columns: list[int | None]) -> str:
    most = max((each for each in columns if each is not None), default=0)
    text, last = "", None
    for each in columns:
        last = last if each is None else each  # between two looks it was as it had been
        text += " " if last is None else _level(last, most)
    return text


def _level(value: int, most: int) -> str:
    """What is not nothing is seen."""
    at = round(value / most * (len(LEVELS) - 1)) if most else 0
    return LEVELS[max(at, 1 if value else 0)]
