# SPDX-License-Identifier: MIT OR Apache-2.0
"""A heap as accounts that do not overlap, so that they may be added and compared."""

from dataclasses import dataclass

from ebbtide_lab.inspect.heap import Heap


@dataclass(frozen=True)
class Accounts:
    """Bytes. In use: blocks, spans and huge objects; free, and perhaps resident: cached, spare,
    dirty, pinned and free spans; clean ones were returned or never touched."""

    blocks: int  # of size classes, in use; those of domains included
    spans: int  # large objects, regions, the allocator's own
    huge: int
    cached: int  # free blocks in threads' caches
    spare: int  # freed large objects that a thread keeps
    dirty: int  # free blocks of slabs, not yet returned
    pinned: int  # free blocks of slabs, on pages that blocks in use keep
    clean: int  # other free blocks of slabs
    free_spans: int  # not yet returned

    @property
    def in_use(self) -> int:
        return self.blocks + self.spans + self.huge

    @property
    def idle(self) -> int:
        return self.cached + self.spare + self.dirty + self.pinned + self.free_spans


def accounts_of(heap: Heap) -> Accounts:
    """The spare large objects of `cached_bytes` are in `span_bytes` as well: each is taken once."""
    totals = heap.totals
    cached = sum(each.cached_bytes for each in heap.classes)
    spare = max(0, totals.cached_bytes - cached)
    dirty = min(totals.dirty_bytes, totals.free_bytes)
    pinned = min(totals.pinned_bytes, totals.free_bytes - dirty)
    return Accounts(
        blocks=totals.live_bytes,
        spans=max(0, totals.span_bytes - spare),
        huge=totals.huge_bytes,
        cached=cached,
        spare=spare,
        dirty=dirty,
        pinned=pinned,
        clean=totals.free_bytes - dirty - pinned,
        free_spans=totals.dirty_span_bytes,
    )


@dataclass(frozen=True)
class Holding:
    """What regions of one label, or a domain, have. `live_bytes`: None where not measured."""

    held_bytes: int = 0
    live_bytes: int | None = 0
    open: int = 0
    demoted: int = 0

    def __add__(self, other: "Holding") -> "Holding":
        is_measured = self.live_bytes is not None and other.live_bytes is not None
        return Holding(
            self.held_bytes + other.held_bytes,
            (self.live_bytes or 0) + (other.live_bytes or 0) if is_measured else None,
            self.open + other.open,
            self.demoted + other.demoted,
        )


def holdings_of(heap: Heap) -> dict[tuple[str, bool], Holding]:
    """By label and whether it is a domain's. Labels that were cut to one text are one."""
    found: dict[tuple[str, bool], Holding] = {}
    for each in heap.labels:
        key = (each.label, each.is_domain)
        one = Holding(each.held_bytes, each.live_bytes, each.open, each.demoted)
        found[key] = found.get(key, Holding()) + one
    return found
