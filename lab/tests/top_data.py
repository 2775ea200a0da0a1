# SPDX-License-Identifier: MIT OR Apache-2.0
"""Heaps that tests of `ebb status` and `ebb top` make up, and the pictures of the documentation:
`python tests/top_data.py` writes them."""

import asyncio
import html
import random
import re
import sys
from collections.abc import Iterable
from dataclasses import replace

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import find_root
from ebbtide_lab.inspect.heap import Heap, SizeClass, ThreadHeap, Totals
from ebbtide_lab.inspect.labels import Label
from ebbtide_lab.inspect.stalls import Pin, Stalls
from ebbtide_lab.show.top.app import Top
from ebbtide_lab.show.top.feed import News, Sampler
from ebbtide_lab.show.top.sheets import StackSum

NOBODY = 4194400  # no process has this number
STARTED = 1_700_000_000.0
CELL = 12.2  # of a picture: how wide a letter is
TEXT = re.compile(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>')
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
PICTURES = {
    "top-classes": ("1", "m"),
    "top-lifetimes": ("2", "m", "d"),
    "leaky-classes": ("1", "m"),
    "leaky-stacks": ("5",),
}


def totals(classes: list[SizeClass], **others: int) -> Totals:
    cached = sum(each.cached_bytes for each in classes)
    counts = dict.fromkeys(Totals.__dataclass_fields__, 0) | {
        "live_bytes": sum(each.live_bytes for each in classes),
        "cached_bytes": cached,
        "free_bytes": sum(each.free_bytes for each in classes),
        "dirty_bytes": sum(each.dirty_bytes for each in classes),
        "pinned_bytes": sum(each.pinned_bytes for each in classes),
        "slabs": sum(each.slabs for each in classes),
    }
    return Totals(**(counts | others))


def label(name: str, held: int, **others: int) -> Label:
    numbers = {"open": 1, "opened": 900, "closed": 899, "drained": 870, "released": 0}
    numbers |= {"slabs": held >> 16, "demoted": 2, "late": 0, "refused": 0, "is_domain": 0}
    numbers |= {"peak_bytes": held * 2, "live_bytes": held // 3, "oldest_ms": 93_000}
    numbers |= others
    is_domain = bool(numbers.pop("is_domain"))
    share = numbers["drained"] / numbers["closed"]
    return Label(label=name, is_domain=is_domain, drain_share=share, held_bytes=held, **numbers)


def heap(second: int = 0, pid: int = NOBODY, **others: object) -> Heap:
    """A server that grows, `second` after its start."""
    grows = random.Random(second)
    classes = [
        SizeClass(
            size,
            12 + at,
            (9_000 >> at) + grows.randrange(40),
            (400 >> at) + grows.randrange(9),
            (2_500 >> at) + grows.randrange(40),
            dirty_bytes=((900 >> at) + grows.randrange(30)) * size,
            pinned_bytes=((700 >> at) + grows.randrange(30)) * size,
        )
        for at, size in enumerate((16, 32, 48, 64, 128, 256, 512, 1024, 2048, 4096, 8192))
    ]
    classes[3] = replace(classes[3], live_blocks=4_000 + 900 * second, slabs=20 + second)
    spans = {
        "span_bytes": 6 << 20,
        "huge_bytes": 64 << 20,
        "dirty_span_bytes": (3 << 20) >> (second % 4),
    }
    of_all = totals(classes, purged_bytes=(35 << 20) + (second << 19), **spans)
    heaps = [
        ThreadHeap(4711, "server", 200 << 10, 0, 3 << 20),
        ThreadHeap(4712, "worker-1", 300 << 10, 0, (8 << 20) + (second << 20)),
        ThreadHeap(4713, "worker-3", 4 << 10, 3 << 20, 64 << 10),
    ]
    labels = [
        label("requests", 48 << 20),
        label("session cache", (20 << 20) + (second << 18), is_domain=1),
        label("parser", 768 << 10, demoted=0, oldest_ms=0),
    ]
    found = Heap(
        pid=pid,
        name="server",
        library="/usr/lib/libebbtide.so.0.1.0",
        version="0.1.0",
        taken=STARTED + second,
        resident_bytes=(90 << 20) + second * 60_000,
        threads=12,
        minor_faults=40_000 + 130 * second,
        major_faults=3,
        totals=of_all,
        classes=classes,
        labels=labels,
        heaps=heaps,
    )
    return replace(found, **others)


def leaky(second: int, pid: int) -> Heap:
    """examples/leaky, which remembers 500 sessions a second, and notes that pin."""
    sessions = 1_500 + 500 * second
    classes = [
        SizeClass(32, 1 + sessions // 2045, sessions, 40, 2045 - sessions % 2045),
        SizeClass(208, 134, 2_000, 28, 40_182, 82 * 208, 40_000 * 208),
        SizeClass(512, 2, 33, 15, 206),
        SizeClass(2048, 1 + sessions // 32, sessions, 16, 32 - sessions % 32),
        SizeClass(73792, 1, 1, 3, 10),
    ]
    of_all = totals(classes, purged_bytes=(4 << 20) + (second << 18), span_bytes=576 << 10)
    own = of_all.live_bytes + of_all.cached_bytes + of_all.span_bytes
    return heap(
        pid=pid,
        name="leaky",
        taken=STARTED + second,
        resident_bytes=own + (11 << 20),
        threads=3,
        minor_faults=40_000 + 260 * second,
        totals=of_all,
        classes=classes,
        labels=[],
    )


def any_heap(seed: int) -> Heap:
    """Of any numbers at all, as a process may never have them."""
    dice = random.Random(seed)

    def upto(bits: int) -> int:
        return dice.getrandbits(dice.randrange(bits) + 1)

    classes = [
        SizeClass(16 * (at + 1), 1 + upto(12), upto(20), upto(20), upto(20), upto(34), upto(34))
        for at in range(dice.randrange(90))
    ]
    names = ("span_bytes", "huge_bytes", "dirty_span_bytes")
    found = totals(classes, **{name: upto(44) for name in names})
    spare = dice.choice([0, found.span_bytes])
    found = replace(found, cached_bytes=found.cached_bytes + spare)
    heaps = [
        ThreadHeap(upto(22), f"worker-{at}", upto(30), upto(30), upto(50))
        for at in range(dice.randrange(40))
    ]
    return heap(resident_bytes=upto(44), classes=classes, totals=found, heaps=heaps)


STALLS = Stalls(7, 3 << 20, 12, [Pin(4713, "worker-3", 1, 4, 61_000), Pin(4711, "server", 2, 0, 0)])
STACKS = [
    StackSum(9 << 20, "read_body < serve < worker < main"),
    StackSum(2 << 20, "insert < remember < serve < worker < main"),
]


LEAKY_STACKS = [
    StackSum(
        51 << 20, "{anonymous}::server::remember_session < std::thread::_State_impl<>::_M_run"
    ),
    StackSum(2 << 20, "{anonymous}::server::note_slow_query < std::thread::_State_impl<>::_M_run"),
]


class Source:
    """Says one thing after the other, then the last again, or that there is no process."""

    def __init__(self, heaps: Iterable[Heap], ends: bool = False) -> None:
        self._heaps, self._ends = list(heaps), ends
        self.looks = self.trims = 0
        self.is_closed = False

    def look(self, with_threads: bool = True) -> Heap:
        self.looks += 1
        if self._ends and self.looks > len(self._heaps):
            raise LabError("process has ended, or became another program, just now")
        return self._heaps[min(self.looks, len(self._heaps)) - 1]

    def stalls(self) -> Stalls:
        return STALLS

    def trim(self) -> None:
        self.trims += 1

    def is_there(self) -> bool:
        return not self._ends

    def close(self) -> None:
        self.is_closed = True


class Sampled:
    def __init__(self) -> None:
        self.has_ended = False

    def look(self) -> list[StackSum]:
        return STACKS

    def end(self) -> None:
        self.has_ended = True


def unsampled() -> Sampler:
    raise LabError("it has no profile")


def screen(app: Top) -> list[str]:
    """The lines that are seen."""
    lines: dict[float, list[str]] = {}
    for x, y, text in TEXT.findall(app.export_screenshot().partition("<g ")[2]):
        line = lines.setdefault(float(y), [])
        content = html.unescape(text).replace("\N{NO-BREAK SPACE}", " ")
        at = round(float(x) / CELL)
        line += " " * (at + len(content) - len(line))
        line[at : at + len(content)] = content
    return ["".join(lines[y]).rstrip() for y in sorted(lines)]


async def picture(name: str) -> str:
    """As it is 100 seconds after the start. Fonts are left to who shows it."""
    at = leaky if name.startswith("leaky") else heap
    first = at(0, pid=4711)
    app = Top(first, Source([first]), unsampled, 3600)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press(*PICTURES[name])
        await pilot.pause(0.3)
        for second in range(1, 101):
            app.post_message(Top.Told(News(at(second, pid=4711), stacks=LEAKY_STACKS)))
        await pilot.pause(0.3)
        return FONTS.sub("", app.export_screenshot())


def main() -> None:
    for name in PICTURES:
        target = find_root() / "docs" / "figures" / f"{name}.svg"
        target.write_text(asyncio.run(picture(name)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
