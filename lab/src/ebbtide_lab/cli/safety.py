# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb bench safety: no set of workloads, but misuse of the heap: who catches how much."""

import click

from ebbtide_lab.arms import allocators
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli.measuring import refuse_missing
from ebbtide_lab.measure import safety
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.safety import print_catalogues

NAME = "safety"


def is_asked(names: tuple[str, ...]) -> bool:
    return any(name.partition("/")[0] == NAME for name in names)


def bench_safety(layout: Layout, names: tuple[str, ...], arms: list[str] | None) -> None:
    """`safety`, or `safety/REGEX` for the cases that have this in their names."""
    if len(names) > 1:
        raise click.UsageError(f"{NAME} is no set of workloads: it stands alone")
    found = [allocators.find(name, layout) for name in arms or []] or allocators.at_hand(layout)
    refuse_missing(found)
    done = []
    for arm, options in safety.ways(found):
        chosen = " ".join(f"{name}={what}" for name, what in options.items())
        click.echo(f"misuse under {arm.name} {chosen}".rstrip(), err=True)
        done.append(safety.run(layout, arm, options, names[0].partition("/")[2]))
    print_catalogues(done, open_console())
