# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb status` prints."""

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape

from ebbtide_lab.inspect.heap import Heap, SizeClass, ThreadHeap
from ebbtide_lab.inspect.labels import Label, Rest
from ebbtide_lab.inspect.lifetimes import Status
from ebbtide_lab.show import waterfall
from ebbtide_lab.show.columns import Column, Printed
from ebbtide_lab.show.units import ABSENT, short

BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
AGES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))
SHOWN_THREADS = 8  # of those that keep most
ACCOUNTS = (Column("account", names=True), Column("bytes"), Column("share", 1))
CLASSES = (
    *(Column("block size"), Column("slabs", 4), Column("live", 1), Column("cached", 3)),
    *(Column("free", 2), Column("dirty", 6), Column("pinned", 5), Column("idle")),
)
THREADS = (
    *(Column("thread"), Column("name", 1, names=True)),
    *(Column("cached"), Column("retired", 2), Column("taken", 3)),
)
LABELS = (
    *(Column("label", names=True), Column("kind", 7, names=True), Column("open", 4)),
    *(Column("opened", 8), Column("closed", 9), Column("drained", 10), Column("released", 11)),
    *(Column("held"), Column("peak", 6), Column("live", 1)),
    *(Column("slabs", 5), Column("demoted", 3), Column("oldest", 2)),
)


@dataclass(frozen=True)
class Look:
    """`heap` is None where the process could not be asked for it, for the reason `why`."""

    status: Status
    heap: Heap | None
    why: str


def as_json(look: Look) -> dict[str, Any]:
    facts = asdict(look.status)
    if look.heap is None:
        return facts | {"not_asked": look.why}
    names = ("threads", "minor_faults", "major_faults")
    return (
        facts
        | {name: getattr(look.heap, name) for name in names}
        | {"accounts": {each.key: each.bytes for each in waterfall.accounts(look.heap)}}
        | {"totals": asdict(look.heap.totals)}
        | {"classes": [asdict(each) for each in look.heap.classes]}
        | {"heaps": [asdict(each) for each in look.heap.heaps]}
    )


def print_status(look: Look, console: Console) -> None:
    console.print(render_status(look), crop=False)


def render_status(look: Look) -> RenderableType:
    found = look.status
    parts: list[RenderableType] = [_head(found)]
    if look.heap is None:
        parts.append(f"Its heap is not shown: {escape(look.why)}.")
    else:
        parts.extend(_accounts_of(look.heap))
    if found.labels:
        parts.append(_table(found.labels))
        parts.extend(_note(each) for each in found.labels if each.late or each.refused)
    else:
        parts.append("No region or domain has been used.")
    if found.rest.labels:
        parts.append(f"[yellow]{rest_of(found.rest)}.[/]")
    return Group(*parts)


def _head(found: Status) -> str:
    held = sum(each.held_bytes for each in found.labels) + found.rest.held_bytes
    who = f"Process {found.pid} ({escape(found.name)})"
    what = f"Ebbtide {found.version}".strip()
    return (
        f"{who}: {what} from {escape(found.library)}\n"
        f"{human_bytes(found.resident_bytes)} resident; regions and domains hold "
        f"{human_bytes(held)} of address space." + "".join(_other(each) for each in found.others)
    )


def _other(library: str) -> str:
    return (
        "\n[yellow]It has another copy of Ebbtide, which does not serve malloc and is not shown:"
        f" {escape(library)}[/]"
    )


def _accounts_of(heap: Heap) -> list[RenderableType]:
    idle = waterfall.most_idle(heap)
    found: list[RenderableType] = [_accounts_table(heap)]
    if idle:
        found.append(_idle_table(idle))
    if heap.heaps:
        found.append(_threads_table(heap.heaps))
    return found


def _accounts_table(heap: Heap) -> Printed:
    return Printed(
        "Where resident memory is",
        ACCOUNTS,
        [
            [each.name, human_bytes(each.bytes), share(each.bytes, heap.resident_bytes)]
            for each in waterfall.accounts(heap)
        ],
        ["resident", human_bytes(heap.resident_bytes), ""],
        "by the allocator's accounts, whether pages were touched or not",
    )


def _threads_table(heaps: list[ThreadHeap]) -> Printed:
    title = "Threads that keep most" if len(heaps) > SHOWN_THREADS else "What threads keep"
    most = sorted(heaps, key=lambda one: -one.cached_bytes)[:SHOWN_THREADS]
    rows = [
        [
            str(each.thread),
            each.name or "(ended)",
            *map(human_bytes, (each.cached_bytes, each.retired_bytes, each.taken_bytes)),
        ]
        for each in most
    ]
    return Printed(title, THREADS, rows)


def _idle_table(classes: list[SizeClass]) -> Printed:
    rows = [
        [
            human_bytes(each.block_bytes),
            f"{each.slabs:,}",
            *map(human_bytes, (each.live_bytes, each.cached_bytes, each.free_bytes)),
            *map(human_bytes, (each.dirty_bytes, each.pinned_bytes)),
            share(each.idle_bytes, each.idle_bytes + each.live_bytes),
        ]
        for each in classes
    ]
    return Printed("Block sizes with the most free memory", CLASSES, rows)


def _table(labels: list[Label]) -> Printed:
    rows = [
        [
            each.label,
            "domain" if each.is_domain else "region",
            f"{each.open:,}",
            f"{each.opened:,}",
            f"{each.closed:,}",
            ABSENT if each.drain_share is None else f"{each.drain_share:.1%}",
            ABSENT if each.is_domain else f"{each.released:,}",
            human_bytes(each.held_bytes),
            human_bytes(each.peak_bytes),
            ABSENT if each.live_bytes is None else human_bytes(each.live_bytes),
            f"{each.slabs:,}",
            f"{each.demoted:,}",
            human_age(each.oldest_ms),
        ]
        for each in labels
    ]
    return Printed(
        "Who holds memory, the most first",
        LABELS,
        rows,
        caption="drained: closes that gave back everything; demoted: slabs that survivors of a"
        " close pin",
    )


def _note(each: Label) -> str:
    return (
        f"[yellow]{escape(each.label)}[/]: {each.late} allocations after a close, "
        f"{each.refused} refused by a hard limit."
    )


def rest_of(rest: Rest) -> str:
    more = "label" if rest.labels == 1 else "labels"
    return f"{rest.labels:,} more {more}, {rest.open:,} open, hold {human_bytes(rest.held_bytes)}"


def share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ABSENT


def human_bytes(count: int) -> str:
    power = min((max(abs(count), 1).bit_length() - 1) // 10, len(BYTES) - 1)
    return f"{short(count / 1024**power)} {BYTES[power]}" if power else f"{count} {BYTES[0]}"


def human_age(age_ms: int | None) -> str:
    if age_ms is None:
        return ABSENT
    scale, unit = next((each for each in AGES if age_ms >= each[0]), AGES[-1])
    return f"{short(age_ms / scale)} {unit}"
