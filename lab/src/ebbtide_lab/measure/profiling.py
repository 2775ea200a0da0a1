# SPDX-License-Identifier: MIT OR Apache-2.0
"""A heap profile of a running process, as one that it might have written."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect.heap_profile import HeapProfile, Sums
from ebbtide_lab.inspect.image import Code
from ebbtide_lab.profile.recorded import Location, Mapping, Recorded, Sample

TYPES = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")
UNITS = ("count", "bytes", "count", "bytes")


def watch(pid: int, seconds: float, mean: int) -> Recorded:
    """Profiles the process for so long, or until Ctrl-C. One that had no profile has none
    behind it. What is in use is what was allocated while a profile was on."""
    live = HeapProfile(pid)
    try:
        was_on = live.mean()
        with _on(live, 0 if was_on else mean):
            before = live.read()
            with suppress(KeyboardInterrupt):
                time.sleep(seconds)
            return _recorded(pid, live.code, before, live.read(), was_on or mean)
    finally:
        live.close()


@contextmanager
def _on(live: HeapProfile, mean: int) -> Iterator[None]:
    """Off behind it, also after an error; a process that sleeps sees to that when it wakes up."""
    if mean != 0:
        live.switch(mean)
    try:
        yield
    finally:
        if mean != 0:
            with suppress(LabError):
                live.switch(0)


def _recorded(
    pid: int, code: list[Code], before: list[Sums], after: list[Sums], mean: int
) -> Recorded:
    root = f"/proc/{pid}/root"  # it may live in a container
    mappings = [
        Mapping(
            each.start,
            each.limit,
            each.offset,
            root + each.file if each.file.startswith("/") else each.file,
            "",
        )
        for each in code
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
    return Recorded(Path(f"process {pid}"), TYPES, UNITS, tuple(samples), "", "", mean, "bytes")


def _values(then: Sums, now: Sums) -> tuple[int, ...]:
    return (
        round(now.objects - then.objects),
        round(now.bytes - then.bytes),
        max(round(now.objects - now.freed_objects), 0),
        max(round(now.bytes - now.freed_bytes), 0),
    )
