# SPDX-License-Identifier: MIT OR Apache-2.0
"""What of a heap is more, and what is less, than it was."""

from dataclasses import dataclass, fields

from ebbtide_lab.inspect.accounts import Accounts, Holding, accounts_of, holdings_of
from ebbtide_lab.inspect.heap import Heap, SizeClass

IN_USE = ("blocks", "spans", "huge")
RESIDENT = "resident"
PART_OF_OTHERS = ("blocks", "clean", RESIDENT)  # told by class, no memory, or the sum


@dataclass(frozen=True)
class ClassChange:
    """Of one block size. What changed is after less before."""

    block_bytes: int
    blocks_before: int  # in use, as are those after
    blocks_after: int
    live_bytes: int  # changed by
    idle_bytes: int  # changed by; cached or free in slabs
    slabs: int  # changed by

    @property
    def blocks(self) -> int:
        return self.blocks_after - self.blocks_before

    @property
    def bytes(self) -> int:
        return self.live_bytes


@dataclass(frozen=True)
class LabelChange:
    label: str
    is_domain: bool
    held_before: int
    held_after: int
    live_bytes: int | None  # changed by; None: not measured both times
    open: int  # changed by
    demoted: int  # changed by

    @property
    def bytes(self) -> int:
        return self.held_after - self.held_before


@dataclass(frozen=True)
class AccountChange:
    """`account` is a field of Accounts, or the resident memory."""

    account: str
    before: int
    after: int

    @property
    def bytes(self) -> int:
        return self.after - self.before


Change = ClassChange | LabelChange | AccountChange


@dataclass(frozen=True)
class Growth:
    """Only what changed, the largest change first. `in_use`: changed by so many bytes."""

    before: Heap
    after: Heap
    in_use: int
    accounts: list[AccountChange]
    classes: list[ClassChange]
    labels: list[LabelChange]

    @property
    def seconds(self) -> float:
        return self.after.taken - self.before.taken

    @property
    def is_other_process(self) -> bool:
        return self.before.pid != self.after.pid

    @property
    def was_restarted(self) -> bool:
        """By the start of a process, or by the kernel's counters, which never go back."""
        one, other = self.before, self.after
        if one.start_ticks and other.start_ticks and one.start_ticks != other.start_ticks:
            return True
        first, second = (one, other) if self.seconds >= 0 else (other, one)
        return second.minor_faults < first.minor_faults or second.major_faults < first.major_faults

    def largest(self) -> Change | None:
        """The change that explains most. What is free is mostly the reverse of what is in use,
        and therefore counts half. What regions hold is taken from the spans that it is part of."""
        regions = sum(each.bytes for each in self.labels if not each.is_domain)
        parts: list[Change] = [*self.classes, *self.labels]
        weighed: list[tuple[float, Change]] = [(abs(each.bytes), each) for each in parts]
        for each in self.accounts:
            if each.account == "spans":
                rest = AccountChange(each.account, each.before, each.after - regions)
                weighed.append((abs(rest.bytes), rest))
            elif each.account not in PART_OF_OTHERS:
                weight = 1 if each.account in IN_USE else 0.5
                weighed.append((abs(each.bytes) * weight, each))
        weight, found = max(weighed, key=lambda pair: pair[0], default=(0, None))
        return found if weight else None


def growth(before: Heap, after: Heap) -> Growth:
    earlier, later = accounts_of(before), accounts_of(after)
    return Growth(
        before,
        after,
        later.in_use - earlier.in_use,
        _accounts(before, after, earlier, later),
        _classes(before.classes, after.classes),
        _labels(before, after),
    )


def _accounts(before: Heap, after: Heap, one: Accounts, other: Accounts) -> list[AccountChange]:
    names = [each.name for each in fields(Accounts)]
    changes = [AccountChange(name, getattr(one, name), getattr(other, name)) for name in names]
    changes.append(AccountChange(RESIDENT, before.resident_bytes, after.resident_bytes))
    return sorted((each for each in changes if each.bytes), key=lambda each: -abs(each.bytes))


def _classes(before: list[SizeClass], after: list[SizeClass]) -> list[ClassChange]:
    one, other = ({each.block_bytes: each for each in found} for found in (before, after))
    changes = []
    for size in one.keys() | other.keys():
        was, now = (found.get(size, SizeClass(size, 0, 0, 0, 0)) for found in (one, other))
        if was != now:
            changes.append(
                ClassChange(
                    size,
                    was.live_blocks,
                    now.live_blocks,
                    now.live_bytes - was.live_bytes,
                    now.idle_bytes - was.idle_bytes,
                    now.slabs - was.slabs,
                )
            )
    kept = (each for each in changes if each.live_bytes or each.idle_bytes or each.slabs)
    return sorted(kept, key=lambda each: (-abs(each.bytes), -abs(each.idle_bytes)))


def _labels(before: Heap, after: Heap) -> list[LabelChange]:
    one, other = holdings_of(before), holdings_of(after)
    changes = []
    for key in one.keys() | other.keys():
        was, now = one.get(key, Holding()), other.get(key, Holding())
        is_measured = was.live_bytes is not None and now.live_bytes is not None
        changes.append(
            LabelChange(
                *key,
                was.held_bytes,
                now.held_bytes,
                (now.live_bytes or 0) - (was.live_bytes or 0) if is_measured else None,
                now.open - was.open,
                now.demoted - was.demoted,
            )
        )
    kept = (each for each in changes if each.bytes or each.live_bytes or each.open or each.demoted)
    return sorted(kept, key=lambda each: (-abs(each.bytes), each.label))
