# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs and their replays side by side: do they rank allocators alike?"""

from rich.console import Console

from ebbtide_lab.judge.fidelity import ENOUGH, FIGURES, Agreement
from ebbtide_lab.show.fit import Grid


def print_fidelity(found: dict[str, list[Agreement]], console: Console) -> None:
    table = Grid(
        "Ranking of allocators by the program and by its replay", ["program", "by", "Spearman"]
    )
    for name, agreements in found.items():
        for each in agreements:
            colour = "green" if each.spearman >= ENOUGH else "red"
            table.add(name, FIGURES[each.figure], f"[{colour}]{each.spearman:.2f}[/]")
    table.print(console)


def print_orders(name: str, agreements: list[Agreement], console: Console) -> None:
    for each in agreements:
        _print_order(name, each, console)


def _print_order(name: str, found: Agreement, console: Console) -> None:
    """From the least to the most, each as a multiple of the least."""
    for side, (what, order) in enumerate((("program", found.program), ("replay", found.replay))):
        least = found.typical[order[0]][side]
        told = ", ".join(f"{arm} {found.typical[arm][side] / least:.2f}" for arm in order)
        console.print(f"{name}, {FIGURES[found.figure]}, {what}: {told}", soft_wrap=True)
