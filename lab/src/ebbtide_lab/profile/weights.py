# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a profile says of one type of its values: by stack, by function, as a tree."""

import re
from dataclasses import dataclass, field

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.profile.stacks import Frame, Frames, Profile

# The types of each view, as Ebbtide, Go and tcmalloc call them.
VIEWS = {
    "in-use": ("inuse_space", "space"),
    "allocated": ("alloc_space",),
    "in-use-objects": ("inuse_objects", "objects"),
    "allocated-objects": ("alloc_objects",),
    "pinned": ("pinned_space",),
}


@dataclass(frozen=True)
class Weight:
    frames: Frames
    where: str
    now: int
    before: int  # 0 without a base
    is_new: bool  # the base has nothing of this stack

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


def type_of(profile: Profile, view: str) -> int:
    for name in VIEWS[view]:
        if name in profile.types:
            return profile.types.index(name)
    have = ", ".join(profile.types)
    raise LabError(f"{profile.path} has nothing for the view {view}: it holds {have}")


def weigh(profile: Profile, base: Profile | None, view: str) -> list[Weight]:
    """The most first; with a base what is new first, then what grew most."""
    at = type_of(profile, view)
    before: dict[Frames, int] = {}
    if base is not None:
        at_base = type_of(base, view)
        before = {frames: stack.values[at_base] for frames, stack in base.stacks.items()}
    found = []
    for frames in dict.fromkeys([*profile.stacks, *before]):
        stack = profile.stacks.get(frames) or (base and base.stacks[frames])
        now = profile.stacks[frames].values[at] if frames in profile.stacks else 0
        past = before.get(frames, 0)
        if (now or past) and stack:
            found.append(Weight(frames, stack.where, now, past, base is not None and not past))
    return sorted(found, key=lambda each: (not each.is_new, -each.grew))


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


def tree(weights: list[Weight]) -> Node:
    """The root has no name: all begin there."""
    root = Node(Frame("", ""))
    for each in weights:
        node = root
        node.value += each.grew
        for frame in each.frames:
            node = node.children.setdefault(frame, Node(frame))
            node.value += each.grew
        node.own += each.grew
    return root
