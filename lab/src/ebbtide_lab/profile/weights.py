# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a profile says of one type of its values: by stack, by function, as a tree."""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.profile.stacks import Frame, Frames, Profile
from ebbtide_lab.profile.terms import SHORT, TERMS

# The types of each view, as Ebbtide, Go and tcmalloc call them.
VIEWS = {
    "in-use": ("inuse_space", "space"),
    "allocated": ("alloc_space",),
    "short-lived": ("alloc_space",),
    "in-use-objects": ("inuse_objects", "objects"),
    "allocated-objects": ("alloc_objects",),
    "short-lived-objects": ("alloc_objects",),
    "pinned": ("pinned_space",),
}
# Of what is short-lived: the view that it is a part of.
WHOLE = {"short-lived": "allocated", "short-lived-objects": "allocated-objects"}
LIFETIME = "lifetime"
# By which labels what is in use can be told apart, and what was allocated; and who has none.
GROUPS = {
    "thread": "(not known)",
    "label": "(no label)",
    "age": "(not known)",
    LIFETIME: "(in use)",
}


@dataclass(frozen=True)
class Weight:
    frames: Frames
    where: str
    now: int
    before: int  # 0 without a base
    is_new: bool  # the base has nothing of this stack
    group: str = ""  # "": they are not told apart

    @property
    def grew(self) -> int:
        return self.now - self.before


@dataclass
class Function:
    frame: Frame
    where: str = ""  # of the stack that weighs most there
    flat: int = 0  # as the innermost
    cumulative: int = 0  # anywhere in a stack, once


@dataclass
class Node:
    frame: Frame
    value: int = 0  # with all that it calls
    own: int = 0
    children: dict[Frame, "Node"] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    name: str
    now: int
    before: int
    heaviest: Weight

    @property
    def grew(self) -> int:
        return self.now - self.before


def type_of(profile: Profile, view: str) -> int:
    for name in VIEWS[view]:
        if name in profile.types:
            return profile.types.index(name)
    have = ", ".join(profile.types)
    raise LabError(f"{profile.path} has nothing for the view {view}: it holds {have}")


def weigh(profile: Profile, base: Profile | None, view: str, by: str = "") -> list[Weight]:
    """The most first; with a base what is new first, then what grew most."""
    after = _values(profile, view, by)
    before = _values(base, view, by) if base is not None else {}
    found = []
    for key in dict.fromkeys([*after, *before]):
        group, frames = key
        stack = profile.stacks.get(frames) or (base and base.stacks[frames])
        now, past = after.get(key, 0), before.get(key, 0)
        if (now or past) and stack:
            is_new = base is not None and not past
            found.append(Weight(frames, stack.where, now, past, is_new, group))
    return sorted(found, key=lambda each: (not each.is_new, -each.grew))


def _values(profile: Profile, view: str, by: str) -> dict[tuple[str, Frames], int]:
    """By group and stack."""
    at = type_of(profile, view)
    found: dict[tuple[str, Frames], int] = defaultdict(int)
    known: set[str] = set()
    for frames, stack in profile.stacks.items():
        for labels, values in stack.parts.items():
            named = dict(labels)
            known.update(named)
            if view not in WHOLE or named.get(LIFETIME) in SHORT:
                found[named.get(by, GROUPS[by]) if by else "", frames] += values[at]
    if by and profile.stacks and not known & GROUPS.keys():
        raise LabError(f"{profile.path} does not tell what it counts by {by}")
    return found


def groups(weights: list[Weight]) -> list[Group]:
    """The most first; lengths of time as these are."""
    members: dict[str, list[Weight]] = defaultdict(list)
    for each in weights:
        members[each.group].append(each)
    found = [
        Group(
            name,
            sum(each.now for each in its),
            sum(each.before for each in its),
            max(its, key=lambda each: abs(each.grew)),
        )
        for name, its in members.items()
    ]
    terms = {name: at for at, name in enumerate(TERMS)}
    return sorted(found, key=lambda each: (terms.get(each.name, -1), -abs(each.grew)))


def focus(weights: list[Weight], pattern: str) -> list[Weight]:
    """Of stacks with a function, module or line that the pattern finds."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise LabError(f"--focus: {pattern!r} is no regular expression: {error}") from error
    found = [each for each in weights if _has(each, wanted)]
    if not found:
        raise LabError(f"--focus: no stack has a function like {pattern!r}")
    return found


def _has(weight: Weight, wanted: re.Pattern[str]) -> bool:
    texts = [weight.where, *(text for each in weight.frames for text in (each.name, each.module))]
    return any(wanted.search(each) for each in texts)


def functions(weights: list[Weight]) -> list[Function]:
    found: dict[Frame, Function] = {}
    heaviest: dict[Frame, int] = {}
    for each in weights:
        for frame in dict.fromkeys(reversed(each.frames)):
            found.setdefault(frame, Function(frame)).cumulative += each.grew
        leaf = found[each.frames[-1]]
        leaf.flat += each.grew
        if abs(each.grew) > heaviest.get(leaf.frame, -1):
            heaviest[leaf.frame], leaf.where = abs(each.grew), each.where
    return sorted(found.values(), key=lambda each: (-abs(each.flat), -abs(each.cumulative)))


def tree(weights: list[Weight], by: str = "") -> Node:
    """The root has no name: all begin there. Groups come next, then functions."""
    root = Node(Frame("", ""))
    for each in weights:
        node = root
        node.value += each.grew
        for frame in (*_group_of(each, by), *each.frames):
            node = node.children.setdefault(frame, Node(frame))
            node.value += each.grew
        node.own += each.grew
    return root


def _group_of(weight: Weight, by: str) -> Frames:
    name = weight.group
    told = name if name.startswith("(") else f"{by} {name}"
    return (Frame(told, "", is_group=True),) if name else ()
