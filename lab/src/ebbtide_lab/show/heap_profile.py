# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb profile` prints: totals, functions or grown stacks, a tree, or JSON."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from ebbtide_lab.profile.stacks import Profile
from ebbtide_lab.profile.weights import (
    WHOLE,
    Function,
    Node,
    Weight,
    functions,
    groups,
    tree,
    type_of,
)
from ebbtide_lab.show.fit import Grid
from ebbtide_lab.show.function_names import brief, label
from ebbtide_lab.show.status import human_bytes, share
from ebbtide_lab.show.units import ABSENT

WORDS = {
    "in-use": "in use",
    "allocated": "allocated while it was sampled",
    "in-use-objects": "objects in use",
    "allocated-objects": "objects allocated while it was sampled",
    "short-lived": "allocated and freed within a second",
    "short-lived-objects": "objects allocated and freed within a second",
    "pinned": "free and kept by blocks in use beside it",
}
TITLES = {"pinned": "Which functions allocated the blocks that keep it, the most first"}
GROUP_TITLES = {
    "thread": "Which threads allocated it, the most first",
    "label": "For which domains it was allocated, the most first",
    "age": "How old it is",
    "lifetime": "How long it was in use",
}
TREE_LEAST = 0.01  # of the whole: what weighs less is not in the tree
CUMULATIVE = ["cumulative", "cumulative %"]
FRAMES_SHOWN = 6  # of a stack that grew
BYTES = "bytes"


@dataclass(frozen=True)
class Shown:
    """A view of a profile, perhaps beside a base."""

    profile: Profile
    base: Profile | None
    view: str
    weights: list[Weight]
    warnings: list[str]
    by: str = ""  # what tells its groups apart
    whole: list[Weight] = field(default_factory=list)  # that it is a part of (WHOLE)

    @property
    def unit(self) -> str:
        return self.profile.units[type_of(self.profile, self.view)]

    @property
    def in_bytes(self) -> bool:
        return self.unit == BYTES

    def plain(self, value: int) -> str:
        return human_bytes(value) if self.in_bytes else f"{value:,}"

    def signed(self, value: int) -> str:
        return f"+{self.plain(value)}" if value > 0 else self.plain(value)


def headline(shown: Shown) -> list[str]:
    profile, base, weights = shown.profile, shown.base, shown.weights
    now, before = sum(each.now for each in weights), sum(each.before for each in weights)
    what = f"{profile.path}: {shown.plain(now)} {WORDS[shown.view]}"
    if base is None:
        stacks = len({each.frames for each in weights})
        lines = [f"{what}, by {_stacks(stacks)}."]
        if shown.view in WHOLE:
            whole = sum(each.now for each in shown.whole)
            lines.append(f"That is {share(now, whole)} of {shown.plain(whole)} allocated.")
    else:
        new = [each for each in weights if each.is_new]
        lines = [
            f"{what}; in {base.path}: {shown.plain(before)}."
            f" Difference: {shown.signed(now - before)}.",
        ]
        if new:
            held = shown.plain(sum(each.now for each in new))
            lines.append(f"{_stacks(len(new))} not in {base.path}: {held}.")
    if profile.period and profile.period_unit == BYTES:
        lines.append(f"Estimated from samples, one in {human_bytes(profile.period)} allocated.")
    return lines


def _stacks(count: int) -> str:
    return f"{count:,} {'stack' if count == 1 else 'stacks'}"


def _print_head(shown: Shown, console: Console) -> None:
    for line in headline(shown):
        console.print(Text(line), overflow="fold")


# --- functions ------------------------------------------------------------------------


def print_functions(shown: Shown, top: int, console: Console) -> None:
    _print_head(shown, console)
    found = functions(shown.weights)
    whole = sum(each.grew for each in shown.weights)
    own = {each.frame: each.flat for each in functions(shown.whole)}
    table = Grid(
        TITLES.get(shown.view, "Which functions allocated it, the most first"),
        ["function", "flat", "flat %", *(["of its own"] if own else []), *CUMULATIVE],
    )
    for each in found[:top]:
        flat, cumulative = each.flat, each.cumulative
        table.add(
            _named(each),
            *(shown.plain(flat), share(flat, whole)),
            *([share(flat, own[each.frame])] if own else []),
            *(shown.plain(cumulative), share(cumulative, whole)),
        )
    table.print(console)
    console.print("flat: by the function itself; cumulative: by it and all that it calls.")
    if own:
        console.print("of its own: the share of all that the function itself allocated.")
    _print_rest(len(found) - top, "functions", console)


def _named(function: Function) -> str:
    where = f"\n[dim]{escape(function.where)}[/]" if function.where and function.flat else ""
    return escape(brief(function.frame.name)) + where


def _print_rest(count: int, what: str, console: Console) -> None:
    if count > 0:
        console.print(f"{count:,} more {what}: --top N shows N, --json all.", style="dim")


# --- groups ---------------------------------------------------------------------------


def print_groups(shown: Shown, top: int, console: Console) -> None:
    """With a base what each has grown by."""
    _print_head(shown, console)
    found = groups(shown.weights)
    whole = sum(each.grew for each in found)
    compares = shown.base is not None
    table = Grid(
        GROUP_TITLES[shown.by],
        [shown.by, *(["grew by", "before", "now"] if compares else ["bytes", "%"]), "most by"],
    )
    if not shown.in_bytes and not compares:
        table.headings[1] = "objects"
    for each in found[:top]:
        if compares:
            cells = [shown.signed(each.grew), shown.plain(each.before), shown.plain(each.now)]
        else:
            cells = [shown.plain(each.now), share(each.now, whole)]
        table.add(escape(each.name), *cells, escape(brief(each.heaviest.frames[-1].name)))
    table.print(console)
    console.print("--tree, --html and --json tell the stacks of each.", style="dim")
    _print_rest(len(found) - top, "groups", console)


# --- what grew ------------------------------------------------------------------------


def print_growth(shown: Shown, top: int, console: Console) -> None:
    _print_head(shown, console)
    changed = [each for each in shown.weights if each.grew]
    table = Grid(
        "What changed: new stacks first, then those that grew most",
        ["stack", "grew by", "before", "now", "new"],
        lines=True,
    )
    for each in changed[:top]:
        before = ABSENT if each.is_new else shown.plain(each.before)
        table.add(
            _innermost(each),
            *(shown.signed(each.grew), before, shown.plain(each.now)),
            "yes" if each.is_new else ABSENT,
        )
    if changed:
        table.print(console)
    else:
        console.print("No stack differs.")
    _print_rest(len(changed) - top, "stacks", console)


def _innermost(weight: Weight) -> str:
    names = [brief(each.name) for each in reversed(weight.frames)]
    first, more = names[:FRAMES_SHOWN], len(names) - FRAMES_SHOWN
    lines = [escape(first[0]) + (f" [dim]{escape(weight.where)}[/]" if weight.where else "")]
    lines += [f"< {escape(name)}" for name in first[1:]]
    if more > 0:
        lines.append(f"[dim]< {more} more[/]")
    return "\n".join(lines)


# --- the tree -------------------------------------------------------------------------


def print_tree(shown: Shown, console: Console) -> None:
    """Calls that lead to one call alone share a line."""
    _print_head(shown, console)
    root = tree(shown.weights, shown.by)
    whole = sum(abs(each.grew) for each in shown.weights)
    top = Tree(Text(_told(root, whole, shown, ["all"])), highlight=False)
    pending = [(root, top)]
    while pending:
        node, drawn = pending.pop()
        for child in _heavy(node, whole):
            names, last = _chain(child, whole)
            pending.append((last, drawn.add(Text(_told(child, whole, shown, names)))))
    console.print(top)
    console.print(f"Calls that weigh less than {TREE_LEAST:.0%} are left out.", style="dim")


def _heavy(node: Node, whole: int) -> list[Node]:
    found = [each for each in node.children.values() if abs(each.value) >= whole * TREE_LEAST]
    return sorted(found, key=lambda each: -abs(each.value))


def _chain(node: Node, whole: int) -> tuple[list[str], Node]:
    names = [label(node.frame)]
    while len(found := _heavy(node, whole)) == 1 and found[0].value == node.value:
        (node,) = found
        names.append(label(node.frame))
    return names, node


def _told(node: Node, whole: int, shown: Shown, names: list[str]) -> str:
    return f"{share(node.value, whole):>6} {shown.plain(node.value)}  {' > '.join(names)}"


# --- JSON -----------------------------------------------------------------------------


def as_json(shown: Shown) -> dict[str, Any]:
    """All of it. With a base the values of functions and `total` are differences."""
    return {
        "file": str(shown.profile.path),
        "base": str(shown.base.path) if shown.base else None,
        "view": shown.view,
        "unit": shown.unit,
        "period": shown.profile.period,
        "total": sum(each.grew for each in shown.weights),
        "warnings": shown.warnings,
        "functions": [_function(each) for each in functions(shown.weights)],
        "stacks": list(_all_stacks(shown)),
    } | _told_of_parts(shown)


def _told_of_parts(shown: Shown) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if shown.by:
        found["by"] = shown.by
        found["groups"] = [
            {"name": each.name, "value": each.grew} for each in groups(shown.weights)
        ]
    if shown.whole:
        found["allocated"] = sum(each.grew for each in shown.whole)
    return found


def _function(found: Function) -> dict[str, Any]:
    return {
        "name": found.frame.name,
        "module": found.frame.module,
        "where": found.where,
        "flat": found.flat,
        "cumulative": found.cumulative,
    }


def _all_stacks(shown: Shown) -> Iterator[dict[str, Any]]:
    own = {each.frames: each.grew for each in shown.whole}
    for each in shown.weights:
        frames = [{"name": frame.name, "module": frame.module} for frame in each.frames]
        found = {"frames": frames, "where": each.where, "value": each.now}
        if shown.base is not None:
            found |= {"before": each.before, "grew": each.grew, "new": each.is_new}
        if shown.by:
            found[shown.by] = each.group
        if shown.whole:
            found["allocated"] = own[each.frames]
        yield found
