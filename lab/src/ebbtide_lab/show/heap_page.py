# SPDX-License-Identifier: MIT OR Apache-2.0
"""`ebb profile --html`: a flame graph as one page, style, script and data inside."""

import json

from ebbtide_lab.profile.stacks import Frame
from ebbtide_lab.profile.weights import Node, functions, tree
from ebbtide_lab.show import templates
from ebbtide_lab.show.function_names import brief, label
from ebbtide_lab.show.heap_profile import Shown, headline
from ebbtide_lab.show.status import share

LISTED = 50  # functions in the table below the graph


def render(shown: Shown) -> str:
    """Widths are amounts: with a base only what grew has one, and the page says so."""
    drawn = [each for each in shown.weights if each.grew > 0]
    whole = sum(each.grew for each in drawn)
    rows = [
        (
            brief(each.frame.name),
            each,
            shown.plain(each.flat),
            share(each.flat, whole),
            shown.plain(each.cumulative),
        )
        for each in functions(drawn)[:LISTED]
    ]
    return (
        templates.environment(autoescape=True)
        .get_template("profile.html.j2")
        .render(
            lines=headline(shown),
            warnings=shown.warnings,
            compares=shown.base is not None,
            whole=shown.plain(whole),
            rows=rows,
            data=_script_data(_flat(tree(drawn, shown.by)) | {"bytes": shown.in_bytes}),
        )
        .lstrip()
    )


def _flat(root: Node) -> dict[str, object]:
    """Nodes in lists of numbers, a parent before its children; the first is the root."""
    names: dict[Frame, int] = {root.frame: 0}
    parents, frames, values = [-1], [0], [root.value]
    pending = [(root, 0)]
    while pending:
        node, at = pending.pop()
        for child in sorted(node.children.values(), key=lambda each: -each.value):
            parents.append(at)
            frames.append(names.setdefault(child.frame, len(names)))
            values.append(child.value)
            pending.append((child, len(values) - 1))
    texts = [(label(each), each.name, each.module) for each in names]
    return {"names": texts, "parents": parents, "frames": frames, "values": values}


def _script_data(found: dict[str, object]) -> str:
    """In a script's element: nothing in it may end that, and it is not escaped otherwise."""
    text = json.dumps(found, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("&", "\\u0026")
