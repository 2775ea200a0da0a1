# SPDX-License-Identifier: MIT OR Apache-2.0
"""Who catches which misuse of the heap."""

from collections import Counter

from rich.console import Console

from ebbtide_lab.measure.safety import AT_ONCE, HANG, LATER, MISSED, SKIP, Catalogue
from ebbtide_lab.show.fit import Grid

HEADINGS = ["allocator", "version", AT_ONCE, LATER, MISSED, "hangs", "of", "without fault"]


def caught(counts: Counter[str]) -> str:
    """At once, and later behind a plus."""
    later = f"+{counts[LATER]}" if counts[LATER] else ""
    return f"{counts[AT_ONCE]}{later}"


def print_catalogues(found: list[Catalogue], console: Console) -> None:
    table = Grid("Misuse of the heap: who catches how much", HEADINGS, left=2)
    for each in sorted(found, key=lambda each: -each.counts()[AT_ONCE]):
        counts = each.counts()
        of = sum(counts.values()) - counts[SKIP]
        figures = (counts[AT_ONCE], counts[LATER], counts[MISSED], counts[HANG], of, each.bad())
        table.add(each.label, each.arm.version, *map(str, figures))
    table.print(console)
    _print_families(found, console)
    console.print(
        "A case runs in three sizes, and without its fault; caught is caught in all that apply.\n"
        "at once: at the call that is wrong; later: before the program ends; without fault: cases\n"
        "whose right program was reported, or hung. One run each: a case or two may differ.",
        style="dim",
    )


def _print_families(found: list[Catalogue], console: Console) -> None:
    labels = [each.label for each in found]
    table = Grid("By family: at once + later", ["family", "cases", *labels])
    for family in dict.fromkeys(case["family"] for each in found for case in each.cases):
        counts = [each.counts(family) for each in found]
        cases = max(sum(each.values()) for each in counts)
        table.add(family, str(cases), *map(caught, counts))
    table.print(console)
