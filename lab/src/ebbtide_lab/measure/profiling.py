# SPDX-License-Identifier: MIT OR Apache-2.0
"""A heap profile of a running process, as one that it might have written."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect import lifetimes
from ebbtide_lab.inspect.heap_profile import NONE, Amount, HeapProfile, Sums
from ebbtide_lab.measure import interrupts
from ebbtide_lab.profile.recorded import Labels, Location, Mapping, Recorded, Sample
from ebbtide_lab.profile.terms import TERMS, term

TYPES = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")
UNITS = ("count", "bytes", "count", "bytes")
PINNED = "pinned_space"  # free memory that what is in use keeps from going back
GRACE_S = 5  # for reading it, before a profile that was asked for ends by itself


def watch(
    pid: int, seconds: float, mean: int, look: Callable[[HeapProfile], object] | None = None
) -> Recorded:
    """Profiles the process for so long, or until Ctrl-C or SIGTERM. One that had no profile has
    none behind it, at once or, if this tool is killed, when the time is over. What is in use is
    what was allocated while a profile was on. `look`: what is done just before it is read; what
    each sample keeps is told then, as one type more."""
    live = HeapProfile(pid)
    try:
        since, before = time.monotonic_ns(), live.read()
        live.begin(mean, seconds + GRACE_S)
        mean = live.mean() or mean
        with interrupts.kept():
            lifetimes.wait_beside(pid, seconds)
        if look is not None:
            look(live)
        found = recorded(live, mean, before, since, pins=look is not None)
        with suppress(LabError):
            live.end()
        return found
    finally:
        live.close()


def recorded(
    live: HeapProfile,
    mean: int,
    before: Sequence[Sums] = (),
    since_ns: int = 0,
    pins: bool = False,
) -> Recorded:
    """As the process would write it (src/profile/proto.c), but of what was allocated and freed
    `before` that moment, only what is in use. What is in use is read first, so that its stacks
    are known afterwards."""
    parts = _parts(live, since_ns)
    after = live.read()
    mappings = [
        Mapping(
            each.start,
            each.limit,
            each.offset,
            live.path_of(each.file) if each.file.startswith("/") else each.file,
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

    earlier = [*before, *[Sums((), NONE, (NONE,) * len(TERMS))] * (len(after) - len(before))]
    samples = []
    for number, (then, now) in enumerate(zip(earlier, after, strict=True)):
        stack = _Stack(tuple(location(call) for call in now.calls), [])
        _tell(stack, then, now, parts.get(number, {}))
        samples += stack.samples
    whole = Recorded(
        Path(f"process {live.pid}"),
        (*TYPES, PINNED),
        (*UNITS, "bytes"),
        tuple(samples),
        "",
        "",
        mean,
        "bytes",
    )
    return whole if pins else _without_pins(whole)


def _without_pins(whole: Recorded) -> Recorded:
    samples = tuple(replace(each, values=each.values[:-1]) for each in whole.samples)
    return replace(whole, types=TYPES, units=UNITS, samples=samples)


@dataclass
class _Part:
    """Of what is in use of a stack, with the same labels."""

    live: Amount = NONE
    made: Amount = NONE  # of it, what was allocated meanwhile
    keeps: float = 0.0


def _parts(live: HeapProfile, since_ns: int) -> dict[int, dict[Labels, _Part]]:
    now_ns = time.monotonic_ns()
    found: dict[int, dict[Labels, _Part]] = defaultdict(lambda: defaultdict(_Part))
    threads: dict[int, str] = {}
    for each in live.live():
        if each.thread not in threads:
            name = live.thread_name(each.thread)
            threads[each.thread] = f"{name} ({each.thread})" if name else str(each.thread)
        label = (("label", each.label),) if each.label else ()
        age = term(max(now_ns - each.made_ns, 0))
        part = found[each.entry][("thread", threads[each.thread]), *label, ("age", age)]
        part.live = part.live.plus(each.amount)
        part.keeps += each.keeps
        if each.made_ns >= since_ns:
            part.made = part.made.plus(each.amount)
    return found


@dataclass
class _Stack:
    """Its samples: each tells what the rounded sums have grown by."""

    locations: tuple[Location, ...]
    samples: list[Sample]
    made: Amount = NONE
    live: Amount = NONE
    keeps: float = 0.0

    def add(self, made: Amount, live: Amount, labels: Labels, keeps: float = 0.0) -> None:
        told = (*self.made, *self.live, self.keeps)
        self.made, self.live = self.made.plus(made), self.live.plus(live)
        self.keeps += keeps
        sums = (*self.made, *self.live, self.keeps)
        values = tuple(round(now) - round(past) for now, past in zip(sums, told, strict=True))
        if any(values):
            self.samples.append(Sample(self.locations, values, labels))


def _tell(stack: _Stack, then: Sums, now: Sums, parts: dict[Labels, _Part]) -> None:
    """What is allocated and what is in use is what the sums say. Who has it is told as far as it
    goes, and of what was freed meanwhile first the youngest: others may be older than that."""
    made = now.made.less(then.made)
    live = reduce(Amount.less, now.freed, now.made)
    for labels, part in parts.items():
        live_part, made_part = part.live.at_most(live), part.made.at_most(made)
        live, made = live.less(live_part), made.less(made_part)
        stack.add(made_part, live_part, labels, part.keeps)
    for name, past, freed in zip(TERMS, then.freed, now.freed, strict=True):
        part_freed = freed.less(past).at_most(made)
        made = made.less(part_freed)
        stack.add(part_freed, NONE, (("lifetime", name),))
    stack.add(made.at_most(made), live.at_most(live), ())
