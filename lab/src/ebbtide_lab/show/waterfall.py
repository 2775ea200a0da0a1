# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where the resident memory of a process is, by the accounts of its heap.

They are accounts, not measured pages: what the allocator has handed out counts in full, whether
the program has touched it or not. The last line is what is left of the resident memory, so that
the lines sum to it exactly; when the program has touched less than it has, that is negative.
"""

from dataclasses import dataclass

from ebbtide_lab.inspect.accounts import accounts_of
from ebbtide_lab.inspect.heap import Heap, SizeClass

LARGEST = 8


@dataclass(frozen=True)
class Account:
    """`key` is its name in JSON."""

    key: str
    name: str
    bytes: int


def accounts(heap: Heap) -> list[Account]:
    """Large objects that a thread keeps for its next ones are among the large objects."""
    found = accounts_of(heap)
    own = [
        Account("live_bytes", "blocks in use", found.blocks),
        Account("span_bytes", "large objects, regions, own", found.spans + found.spare),
        Account("huge_bytes", "huge objects", found.huge),
        Account("magazine_bytes", "cached in magazines", found.cached),
        Account("dirty_bytes", "free in slabs, not returned", found.dirty),
        Account("pinned_bytes", "free in slabs, pinned", found.pinned),
        Account("dirty_span_bytes", "free spans, not returned", found.free_spans),
    ]
    rest = heap.resident_bytes - sum(each.bytes for each in own)
    name = "not from this allocator" if rest >= 0 else "allocated and not touched"
    return [*own, Account("rest_bytes", name, rest)]


def most_idle(heap: Heap) -> list[SizeClass]:
    found = sorted(heap.classes, key=lambda each: -each.idle_bytes)
    return [each for each in found[:LARGEST] if each.idle_bytes]
