# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of `ebb top` as data: rows that can be sorted, filtered, and fitted to a width."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len

from ebbtide_lab.inspect.heap import Heap, SizeClass, ThreadHeap
from ebbtide_lab.inspect.labels import Label
from ebbtide_lab.inspect.stalls import Pin, Stalls
from ebbtide_lab.show import columns
from ebbtide_lab.show.columns import Column
from ebbtide_lab.show.stalls import take_part
from ebbtide_lab.show.status import human_age, human_bytes, share
from ebbtide_lab.show.units import ABSENT

GAP = 2
BYTES, COUNT, SHARE = 9, 8, 6  # columns that most of them take
Value = float | str
NO_LABEL = Label("", False, 0, 0, 0, 0, None, 0, 0, 0, 0, 0, 0, 0, 0, None)


@dataclass(frozen=True)
class Cell:
    text: str
    value: Value  # to sort by
    grew: int = 0  # for its colour: since the mark


@dataclass(frozen=True)
class Sheet:
    """Each row has a cell for each column; `note` is what the table as a whole tells."""

    columns: tuple[Column, ...]
    rows: list[list[Cell]]
    note: str
    sort: int  # the column that it is sorted by at first


def arranged(sheet: Sheet, sort: int, is_reversed: bool, wanted: str) -> list[list[Cell]]:
    """Numbers begin with the largest, names with the first."""
    rows = [row for row in sheet.rows if wanted.lower() in _searched(sheet, row)]
    largest_first = not sheet.columns[sort].names
    return sorted(rows, key=lambda row: row[sort].value, reverse=largest_first != is_reversed)


def _searched(sheet: Sheet, row: list[Cell]) -> str:
    cells = [row[at] for at, each in enumerate(sheet.columns) if each.names or each.searched]
    return " ".join(f"{each.text} {each.value}" for each in cells).lower()


def fitted(sheet: Sheet, width: int) -> list[tuple[int, int]]:
    """Which columns a line of this width holds, and how wide each is."""
    widths = [
        max(
            [
                cell_len(column.title) + 1,
                column.least,
                *(cell_len(row[at].text) for row in sheet.rows),
            ]
        )
        for at, column in enumerate(sheet.columns)
    ]
    return columns.fitted(sheet.columns, widths, width, GAP)


def signed(value: int, write: Callable[[int], str]) -> str:
    return f"+{write(value)}" if value > 0 else write(value)


def _count(value: int) -> str:
    return f"{value:,}"


def _number(now: int, then: int | None, write: Callable[[int], str]) -> Cell:
    """`then` is None where no difference is asked for."""
    if then is None:
        return Cell(write(now), now)
    return Cell(signed(now - then, write), now - then, now - then)


def _change(now: int, then: int | None) -> Cell:
    return Cell(ABSENT, 0) if then is None else _number(now, then, human_bytes)


# --- classes --------------------------------------------------------------------------

CLASSES = (
    Column("block size", searched=True),
    Column("slabs", 5),
    Column("blocks", 4, COUNT),
    Column("live", 0, BYTES),
    Column("cached", 1, BYTES),
    Column("free", 0, BYTES),
    Column("dirty", 7, BYTES),
    Column("pinned", 6, BYTES),
    Column("idle", 2, SHARE),
    Column("change", 3, BYTES),
)


def classes(heap: Heap, mark: Heap | None, compares: bool) -> Sheet:
    before = {each.block_bytes: each for each in mark.classes} if mark else {}
    now = {each.block_bytes: each for each in heap.classes}
    rows = []
    for size in sorted(now.keys() | before.keys()):
        none = SizeClass(size, 0, 0, 0, 0)
        then = before.get(size, none) if mark else None
        rows.append(_class_row(now.get(size, none), then, compares))
    live = sum(each.live_bytes for each in heap.classes)
    idle = sum(each.idle_bytes for each in heap.classes)
    note = f"{len(heap.classes)} block sizes, {human_bytes(live)} live, {human_bytes(idle)} free"
    return Sheet(CLASSES, rows, note, 3)


@lru_cache(256)  # many are what they were a second ago
def _class_row(now: SizeClass, then: SizeClass | None, compares: bool) -> list[Cell]:
    def number(name: str, write: Callable[[int], str]) -> Cell:
        return _number(
            getattr(now, name), getattr(then, name) if then and compares else None, write
        )

    whole = now.live_bytes + now.idle_bytes
    return [
        Cell(human_bytes(now.block_bytes), now.block_bytes),
        number("slabs", _count),
        number("live_blocks", _count),
        number("live_bytes", human_bytes),
        number("cached_bytes", human_bytes),
        number("free_bytes", human_bytes),
        number("dirty_bytes", human_bytes),
        number("pinned_bytes", human_bytes),
        Cell(share(now.idle_bytes, whole), now.idle_bytes / whole if whole else 0.0),
        _change(now.live_bytes, then.live_bytes if then else None),
    ]


# --- lifetimes ------------------------------------------------------------------------

LIFETIMES = (
    Column("label", names=True),
    Column("kind", 6, names=True),
    Column("open", 3),
    Column("opened", 7),
    Column("closed", 8),
    Column("drained", 9),
    Column("held", 0, BYTES),
    Column("peak", 5, BYTES),
    Column("live", 0, BYTES),
    Column("slabs", 5),
    Column("demoted", 4),
    Column("oldest", 1, BYTES),
    Column("change", 2, BYTES),
)


def lifetimes(heap: Heap, mark: Heap | None, compares: bool) -> Sheet:
    before = {(each.label, each.is_domain): each for each in mark.labels} if mark else {}
    rows = [
        _label_row(each, _label_then(each, mark, before), mark is not None, compares)
        for each in heap.labels
    ]
    return Sheet(LIFETIMES, rows, _labels_noted(heap), 6)


def _label_then(
    now: Label, mark: Heap | None, before: dict[tuple[str, bool], Label]
) -> Label | None:
    """None: not known, as it was not among those that held most."""
    if mark is None:
        return None
    then = before.get((now.label, now.is_domain))
    return then or (None if mark.rest.labels else NO_LABEL)


def _labels_noted(heap: Heap) -> str:
    shown, rest = len(heap.labels), heap.rest
    held = human_bytes(sum(each.held_bytes for each in heap.labels))
    if not shown:
        return "no region or domain has been used"
    if rest.labels:
        all_labels, others = shown + rest.labels, human_bytes(rest.held_bytes)
        return f"{shown} of {all_labels:,} labels hold {held}, the others {others}"
    return f"{shown} labels hold {held} of address space"


def _label_row(now: Label, then: Label | None, is_marked: bool, compares: bool) -> list[Cell]:
    def number(name: str, write: Callable[[int], str] = _count) -> Cell:
        value = getattr(now, name)
        if value is None or (is_marked and compares and then is None):
            return Cell(ABSENT, -1)
        return _number(value, (getattr(then, name) or 0) if then and compares else None, write)

    drained = now.drain_share
    return [
        Cell(now.label, now.label),
        Cell("domain" if now.is_domain else "region", now.is_domain),
        *map(number, ("open", "opened", "closed")),
        Cell(ABSENT if drained is None else f"{drained:.1%}", -1 if drained is None else drained),
        number("held_bytes", human_bytes),
        number("peak_bytes", human_bytes),
        number("live_bytes", human_bytes),
        number("slabs"),
        number("demoted"),
        Cell(human_age(now.oldest_ms), -1 if now.oldest_ms is None else now.oldest_ms),
        _change(now.held_bytes, then.held_bytes if then else None),
    ]


# --- threads --------------------------------------------------------------------------

THREADS = (
    Column("thread", searched=True),
    Column("name", names=True),
    Column("cached", 0, BYTES),
    Column("retired", 2, BYTES),
    Column("taken", 3, BYTES),
    Column("change", 1, BYTES),
)


def threads(heap: Heap, mark: Heap | None, compares: bool) -> Sheet:
    before = {each.thread: each for each in mark.heaps} if mark else {}
    rows = [_thread_row(each, before.get(each.thread), compares) for each in heap.heaps]
    cached = sum(each.cached_bytes for each in heap.heaps)
    return Sheet(THREADS, rows, f"{len(rows):,} threads keep {human_bytes(cached)} free", 2)


def _thread_row(now: ThreadHeap, then: ThreadHeap | None, compares: bool) -> list[Cell]:
    def number(name: str) -> Cell:
        before = getattr(then, name) if then and compares else None
        return _number(getattr(now, name), before, human_bytes)

    return [
        Cell(str(now.thread), now.thread),
        Cell(now.name or "(ended)", now.name),
        *map(number, ("cached_bytes", "retired_bytes", "taken_bytes")),
        _change(now.taken_bytes, then.taken_bytes if then else None),
    ]


# --- stalls ---------------------------------------------------------------------------

STALLS = (
    Column("thread", searched=True),
    Column("name", 1, names=True),
    Column("nested", 3),
    Column("epochs behind", 2),
    Column("inside for at least"),
)


def stalls(found: Stalls | None) -> Sheet:
    if found is None:
        return Sheet(STALLS, [], "reading", 4)
    note = (
        f"{take_part(found)} in reclamation, {len(found.pins)} inside a pin;"
        f" {human_bytes(found.waiting_bytes)} wait"
    )
    return Sheet(STALLS, [_pin_row(each) for each in found.pins], note, 4)


def _pin_row(pin: Pin) -> list[Cell]:
    """A pin of the present epoch may be as old as that, or new: nothing tells."""
    is_old = pin.behind > 0
    return [
        Cell(str(pin.thread), pin.thread),
        Cell(pin.name or "(ended)", pin.name),
        Cell(_count(pin.depth), pin.depth),
        Cell(_count(pin.behind), pin.behind),
        Cell(human_age(pin.age_ms) if is_old else ABSENT, pin.age_ms if is_old else -1),
    ]


# --- stacks ---------------------------------------------------------------------------

STACKS = (
    Column("in use", 0, BYTES),
    Column("share", 1, SHARE),
    Column("stack, innermost first", names=True),
)


@dataclass(frozen=True)
class StackSum:
    """Bytes in use by what a stack has allocated while the profile was on, an estimate."""

    bytes: int
    calls: str


def stacks(found: list[StackSum] | None, note: str) -> Sheet:
    whole = sum(each.bytes for each in found or [])
    rows = [
        [
            Cell(human_bytes(each.bytes), each.bytes),
            Cell(share(each.bytes, whole), each.bytes),
            Cell(each.calls, each.calls),
        ]
        for each in found or []
    ]
    return Sheet(STACKS, rows, note, 0)
