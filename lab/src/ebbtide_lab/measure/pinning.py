# SPDX-License-Identifier: MIT OR Apache-2.0
"""Who pins: the free memory that the blocks of each stack keep from going back.

A page goes back when all of its blocks are free. Beside each sample the process holds an ordinary
block of its size, where the sample would have lain: of the free memory on its page it keeps its
share, by bytes of the blocks in use there.
"""

from dataclasses import dataclass

from ebbtide_lab.inspect.heap import Heap, Subject
from ebbtide_lab.inspect.heap_profile import HeapProfile
from ebbtide_lab.measure import profiling
from ebbtide_lab.profile.recorded import Recorded


@dataclass(frozen=True)
class Pinned:
    profile: Recorded
    unseen: int  # bytes that have not gone back, and that no sample keeps


def watch(pid: int, seconds: float, mean: int) -> Pinned:
    """As a profile is watched; the heap is asked just before that is read, as it may take a second
    to answer."""
    found: list[Heap] = []
    subject = Subject(pid)

    def look(live: HeapProfile) -> None:
        found.append(subject.look())
        live.look()

    try:
        profile = profiling.watch(pid, seconds, mean, look)
    finally:
        subject.close()
    return Pinned(profile, unseen(profile, found[0]))


def unseen(profile: Recorded, heap: Heap) -> int:
    """Of the free memory in slabs that has not gone back, what no sample keeps."""
    at = profile.types.index(profiling.PINNED)
    told = sum(each.values[at] for each in profile.samples)
    return max(heap.totals.dirty_bytes + heap.totals.pinned_bytes - told, 0)
