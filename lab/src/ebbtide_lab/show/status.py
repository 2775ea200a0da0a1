# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb status` prints."""

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ebbtide_lab.inspect.lifetimes import MOST_ROWS, Label, Status
from ebbtide_lab.show.units import ABSENT, short

BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
AGES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))
HEADINGS = (
    *("label", "kind", "open", "opened", "closed", "drained", "released"),
    *("held", "peak", "live", "slabs", "demoted", "oldest"),
)


def print_status(found: Status, console: Console) -> None:
    console.print(render_status(found))


def render_status(found: Status) -> RenderableType:
    parts: list[RenderableType] = [_head(found)]
    if found.labels:
        parts.append(_table(found.labels))
        parts.extend(_note(each) for each in found.labels if each.late or each.refused)
    else:
        parts.append("No region or domain has been used.")
    if found.is_full:
        parts.append(f"[yellow]Only the first {MOST_ROWS} labels are shown.[/]")
    return Group(*parts)


def _head(found: Status) -> str:
    held = sum(each.held_bytes for each in found.labels)
    who = f"Process {found.pid} ({escape(found.name)})"
    what = f"Ebbtide {found.version}".strip()
    return (
        f"{who}: {what} from {escape(found.library)}\n"
        f"{human_bytes(found.resident_bytes)} resident; regions and domains hold "
        f"{human_bytes(held)} of address space."
    )


def _table(labels: list[Label]) -> Table:
    table = Table(title="Who holds memory, the most first", box=box.SIMPLE_HEAD, padding=0)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("label", "kind") else "right")
    for each in labels:
        table.add_row(
            escape(each.label),
            "domain" if each.is_domain else "region",
            str(each.open),
            str(each.opened),
            str(each.closed),
            _share(each.drain_share),
            ABSENT if each.is_domain else str(each.released),
            human_bytes(each.held_bytes),
            human_bytes(each.peak_bytes),
            ABSENT if each.live_bytes is None else human_bytes(each.live_bytes),
            str(each.slabs),
            str(each.demoted),
            human_age(each.oldest_ms),
        )
    table.caption = (
        "drained: closes that gave back everything; demoted: slabs that survivors of a close pin"
    )
    return table


def _note(each: Label) -> str:
    return (
        f"[yellow]{escape(each.label)}[/]: {each.late} allocations after a close, "
        f"{each.refused} refused by a hard limit."
    )


def _share(share: float | None) -> str:
    return ABSENT if share is None else f"{share:.1%}"


def human_bytes(count: int) -> str:
    power = min((max(count, 1).bit_length() - 1) // 10, len(BYTES) - 1)
    return f"{short(count / 1024**power)} {BYTES[power]}" if power else f"{count} {BYTES[0]}"


def human_age(age_ms: int | None) -> str:
    if age_ms is None:
        return ABSENT
    scale, unit = next((each for each in AGES if age_ms >= each[0]), AGES[-1])
    return f"{short(age_ms / scale)} {unit}"
