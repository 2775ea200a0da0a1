# SPDX-License-Identifier: MIT OR Apache-2.0
"""A heap profile of a running process, as one that it might have written."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect.heap_profile import HeapProfile, Sums
from ebbtide_lab.measure import interrupts
from ebbtide_lab.profile.recorded import Location, Mapping, Recorded, Sample

TYPES = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")
UNITS = ("count", "bytes", "count", "bytes")
GRACE_S = 5  # for reading it, before a profile that was asked for ends by itself


def nothing() -> None:
    pass


def watch(pid: int, seconds: float, mean: int, look: Callable[[], object] = nothing) -> Recorded:
    """Profiles the process for so long, or until Ctrl-C or SIGTERM. One that had no profile has
    none behind it, at once or, if this tool is killed, when the time is over. What is in use is
    what was allocated while a profile was on. `look`: what is done just before it is read."""
    live = HeapProfile(pid)
    try:
        before, until = live.read(), live.until()
        if until != 0 or live.mean() == 0:
            live.ask(mean, seconds + GRACE_S)
        own = live.until()
        mean = live.mean() or mean
        with interrupts.kept():
            time.sleep(seconds)
        look()
        found = recorded(live, before, live.read(), mean)
        with suppress(LabError):
            if live.until() == own != until:  # else it is the program's, or another tool's
                live.ask(0)
        return found
    finally:
        live.close()


def recorded(live: HeapProfile, before: list[Sums], after: list[Sums], mean: int) -> Recorded:
    mappings = [
        Mapping(
            each.start,
            each.limit,
            each.offset,
            live.root + each.file if each.file.startswith("/") else each.file,
            "",
        )
        for each in live.code
    ]
    locations: dict[int, Location] = {}

    def location(address: int) -> Location:
        if address not in locations:
            inside = (each for each in mappings if each.start <= address < each.limit)
            locations[address] = Location(address, next(inside, None), ())
        return locations[address]

    earlier = before + [Sums((), 0, 0, 0, 0)] * (len(after) - len(before))
    samples = [
        Sample(tuple(location(call) for call in now.calls), values)
        for then, now in zip(earlier, after, strict=True)
        if any(values := _values(then, now))
    ]
    return Recorded(
        Path(f"process {live.pid}"), TYPES, UNITS, tuple(samples), "", "", mean, "bytes"
    )


def _values(then: Sums, now: Sums) -> tuple[int, ...]:
    return (
        round(now.objects - then.objects),
        round(now.bytes - then.bytes),
        max(round(now.objects - now.freed_objects), 0),
        max(round(now.bytes - now.freed_bytes), 0),
    )
