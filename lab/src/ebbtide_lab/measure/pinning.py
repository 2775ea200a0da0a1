# SPDX-License-Identifier: MIT OR Apache-2.0
"""Who pins: the free memory that the blocks of each stack keep, an estimate.

A page goes back when all of its blocks are free, so a block in use keeps about a page of the
free blocks around it, and no class more than it has of them. Which blocks lie on which page
is not told; so of what the blocks in use of a size class keep, a stack has as much as it has
of these blocks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ebbtide_lab.inspect.heap import Heap, SizeClass, Subject
from ebbtide_lab.measure import profiling
from ebbtide_lab.profile.recorded import Recorded

TYPE = "pinned_space"
PAGE = 4096
WIDEST = 1.25  # a block, to what was asked for, where a class is found at all
LEAST = 16  # of blocks, and between them


@dataclass(frozen=True)
class Pinned:
    profile: Recorded
    unseen: int  # bytes that blocks keep which no sample stands for


def watch(pid: int, seconds: float, mean: int) -> Pinned:
    """As a profile is watched; the heap is asked just before that is read, as it may take a second
    to answer."""
    found: list[Heap] = []
    subject = Subject(pid)
    try:
        profile = profiling.watch(pid, seconds, mean, lambda: found.append(subject.look()))
    finally:
        subject.close()
    return added(profile, found[0])


def most_pinned(found: SizeClass) -> int:
    return min(found.free_bytes, found.live_blocks * PAGE)


def added(found: Recorded, heap: Heap) -> Pinned:
    """The profile with one type more. The heap is of the same moment."""
    at_objects = found.types.index("inuse_objects")
    at_bytes = found.types.index("inuse_space")
    classes = [
        _class_of(each.values[at_objects], each.values[at_bytes], heap.classes)
        for each in found.samples
    ]
    seen: dict[int, int] = {}  # objects, by block size
    for sample, one in zip(found.samples, classes, strict=True):
        if one is not None:
            seen[one.block_bytes] = seen.get(one.block_bytes, 0) + sample.values[at_objects]
    samples, told = [], 0
    for sample, one in zip(found.samples, classes, strict=True):
        keeps = 0
        if one is not None:
            whole = max(one.live_blocks, seen[one.block_bytes])
            keeps = most_pinned(one) * sample.values[at_objects] // whole
        told += keeps
        samples.append(replace(sample, values=(*sample.values, keeps)))
    profile = replace(
        found,
        types=(*found.types, TYPE),
        units=(*found.units, "bytes"),
        samples=tuple(samples),
    )
    return Pinned(profile, sum(map(most_pinned, heap.classes)) - told)


def _class_of(objects: int, size: int, classes: Iterable[SizeClass]) -> SizeClass | None:
    """That of blocks of their mean size; None: large, or there is no slab of that class now."""
    if objects == 0:
        return None
    mean = size / objects
    least = size / (objects + 0.5)  # both were rounded: blocks of 48 bytes may be 48.001 on average
    above = (each for each in classes if each.block_bytes >= least)
    found = min(above, key=lambda each: each.block_bytes, default=None)
    is_near = found is not None and found.block_bytes <= max(mean * WIDEST, mean + LEAST)
    return found if is_near else None
