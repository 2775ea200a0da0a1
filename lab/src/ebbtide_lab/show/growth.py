# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb diff` prints."""

from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ebbtide_lab.inspect.growth import AccountChange, Change, ClassChange, Growth, LabelChange
from ebbtide_lab.show.status import human_age, human_bytes
from ebbtide_lab.show.units import ABSENT

ACCOUNTS = {
    "blocks": "blocks in use",
    "spans": "large objects and regions in use",
    "huge": "huge objects in use",
    "cached": "free blocks in threads' caches",
    "spare": "free large objects that threads keep",
    "dirty": "free blocks, not yet returned",
    "pinned": "free blocks, pinned by blocks in use",
    "clean": "free blocks, returned or untouched",
    "free_spans": "free spans, not yet returned",
    "resident": "resident",
}


def as_json(found: Growth) -> dict[str, Any]:
    meta = ("pid", "name", "version", "taken", "resident_bytes")
    facts = {
        side: {name: getattr(heap, name) for name in meta}
        for side, heap in (("before", found.before), ("after", found.after))
    }
    lists = {
        name: [asdict(each) | {"bytes": each.bytes} for each in changes]
        for name, changes in (
            ("accounts", found.accounts),
            ("classes", found.classes),
            ("labels", found.labels),
        )
    }
    return {
        **facts,
        "seconds": found.seconds,
        "sentence": sentence(found),
        "notes": notes(found),
        "in_use_bytes": found.in_use,
        **lists,
    }


def print_growth(found: Growth, console: Console) -> None:
    console.print(escape(sentence(found)))
    for each in notes(found):
        console.print(f"[yellow]{escape(each)}[/]")
    if found.accounts:
        console.print(_accounts(found.accounts))
    if found.classes:
        console.print(_classes(found.classes))
    if found.labels:
        console.print(_labels(found.labels))


def sentence(found: Growth) -> str:
    """With the change that explains most."""
    time = f"in {human_age(round(abs(found.seconds) * 1000))}"
    cause = found.largest()
    if found.in_use:
        verb = "grew" if found.in_use > 0 else "shrank"
        change = f"In use {verb} by {human_bytes(abs(found.in_use))} {time}"
    else:
        change = f"In use did not change {time}"
    return f"{change}; the largest change is {_cause(cause)}." if cause else f"{change}."


def notes(found: Growth) -> list[str]:
    """What one has to know before one believes the rest."""
    before, after = found.before, found.after
    said = []
    if found.is_other_process:
        said.append(
            f"These are two processes: {before.pid} ({before.name}) and {after.pid} ({after.name})."
        )
    elif found.was_restarted:
        said.append(f"Process {after.pid} was restarted in between: it is another one.")
    if found.seconds < 0:
        said.append("The second was taken before the first: what shrank has grown.")
    return said


def _cause(cause: Change) -> str:
    size = human_bytes(abs(cause.bytes))
    more = "more" if cause.bytes > 0 else "less"
    if isinstance(cause, ClassChange):
        count = f"{abs(cause.blocks):,} {'more' if cause.blocks > 0 else 'fewer'}"
        noun = "block" if abs(cause.blocks) == 1 else "blocks"
        return f"{count} {noun} of {cause.block_bytes:,} bytes ({size})"
    if isinstance(cause, LabelChange):
        who = "the domain" if cause.is_domain else "regions of label"
        return f"{size} {more} that {who} {cause.label or '(none)'} hold{'s' * cause.is_domain}"
    return f"{size} {more} in {ACCOUNTS[cause.account]}"


def _accounts(changes: list[AccountChange]) -> Table:
    table = _table("By account", "", "before", "after", "change")
    for each in changes:
        table.add_row(
            ACCOUNTS[each.account],
            human_bytes(each.before),
            human_bytes(each.after),
            _signed(each.bytes),
        )
    return table


def _classes(changes: list[ClassChange]) -> Table:
    table = _table("By block size", "bytes", "before", "after", "change", "in use", "free", "slabs")
    for each in changes:
        table.add_row(
            f"{each.block_bytes:,}",
            f"{each.blocks_before:,}",
            f"{each.blocks_after:,}",
            f"{each.blocks:+,}",
            _signed(each.live_bytes),
            _signed(each.idle_bytes),
            f"{each.slabs:+}",
        )
    table.caption = "before, after: blocks in use; free: in threads' caches and in slabs"
    return table


def _labels(changes: list[LabelChange]) -> Table:
    table = _table("By label", "label", "held before", "after", "change", "live", "open", "demoted")
    for each in changes:
        table.add_row(
            escape(each.label) + (" (domain)" if each.is_domain else ""),
            human_bytes(each.held_before),
            human_bytes(each.held_after),
            _signed(each.bytes),
            ABSENT if each.live_bytes is None else _signed(each.live_bytes),
            f"{each.open:+}",
            f"{each.demoted:+}",
        )
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0, title_justify="left")
    table.add_column(first, overflow="fold")
    for each in others:
        table.add_column(each, justify="right", overflow="fold")
    return table


def _signed(count: int) -> str:
    return f"{'+' if count > 0 else '-'}{human_bytes(abs(count))}" if count else "0"
