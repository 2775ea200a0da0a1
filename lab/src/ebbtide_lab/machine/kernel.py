# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads /proc and /sys, or a folder that stands in for them in a test.

What cannot be read is UNKNOWN and never an error: a container hides half of it.
"""

from pathlib import Path

UNKNOWN = "unknown"
ROOT = Path("/")


def read(root: Path, name: str) -> str:
    """The text of root/name without the last line's end."""
    try:
        return (root / name).read_text(encoding="utf-8").strip() or UNKNOWN
    except (OSError, UnicodeDecodeError):
        return UNKNOWN


def number(text: str) -> int | None:
    """The first word as a whole number, if it is one."""
    words = text.split()
    return int(words[0]) if words and words[0].lstrip("-").isdigit() else None


def selected(root: Path, name: str) -> str:
    """The word in brackets of a kernel switch."""
    text = read(root, name)
    return text.split("[", 1)[1].split("]", 1)[0] if "[" in text else text


def table(root: Path, name: str) -> dict[str, str]:
    """The lines `key: value` of a file; of a key that comes twice, the first."""
    found: dict[str, str] = {}
    for line in read(root, name).splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found.setdefault(key.strip(), value.strip())
    return found
