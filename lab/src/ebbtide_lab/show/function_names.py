# SPDX-License-Identifier: MIT OR Apache-2.0
"""Names of C++ functions for a line of text: without parameters, template arguments and results;
those of Rust without what makes them unique."""

import re

from ebbtide_lab.profile.stacks import Frame

OPERATOR = "operator"
CLONE = re.compile(r" (?:\(\.[\w.]+\)|\[clone [^]]*\])")  # what a compiler has made of a function
RUST = re.compile(r"::h[0-9a-f]{16}$")
ESCAPED = re.compile(r"\$u([0-9a-f]{2,5})\$")
NAMELESS = "(anonymous namespace)"


def label(frame: Frame) -> str:
    return frame.name if frame.is_group else brief(frame.name)


def brief(name: str) -> str:
    """As it is where it is none of C++."""
    name = CLONE.sub("", name)
    if RUST.search(name):
        return ESCAPED.sub(lambda found: chr(int(found[1], 16)), RUST.sub("", name))
    is_cxx = "::" in name or name.endswith((")", ") const"))
    if not is_cxx or name.startswith("<"):  # that is Rust's
        return name
    head, operator, tail = name.rpartition(OPERATOR)
    if operator:
        sign = "()" if tail.startswith("()") else tail.partition("(")[0]
        return _flat(head) + operator + sign
    return _flat(name) or name  # a result that is a function leaves nothing


def _flat(name: str) -> str:
    kept, depth, is_argument = [], 0, False
    for letter in name.replace(NAMELESS, "{anonymous}"):
        if letter in "<(":
            if depth == 0:
                is_argument = letter == "<"
            depth += 1
        elif letter in ">)" and depth:
            depth -= 1
            if depth == 0 and is_argument:
                kept.append("<>")
        elif depth == 0:
            kept.append(letter)
    return "".join(kept).removesuffix(" const").rpartition(" ")[2]
