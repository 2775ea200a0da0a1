# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb doctor --pid` prints."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ebbtide_lab.inspect.stalls import Pin, Stalls
from ebbtide_lab.show.units import ABSENT

PINS_SHOWN = 20


def take_part(found: Stalls) -> str:
    number = found.participants
    return "1 thread takes part" if number == 1 else f"{number} threads take part"


def print_stalls(found: Stalls, pid: int, stall_ms: int, console: Console) -> None:
    console.print(
        f"Process {pid}: epoch {found.epoch}, at least {found.waiting_bytes} bytes wait to be"
        f" freed, {take_part(found)}, {len(found.pins)} of them inside a pin."
    )
    if found.pins:
        console.print(_table(found.pins, stall_ms))
    console.print(_verdict(found, stall_ms))


def _table(pins: list[Pin], stall_ms: int) -> Table:
    table = Table(title="Pins, the oldest first")
    for heading in ("thread", "name", "nested", "epochs behind", "for at least"):
        table.add_column(heading, justify="left" if heading == "name" else "right")
    for pin in pins[:PINS_SHOWN]:
        colour = "red" if pin.age_ms >= stall_ms else ""
        name = escape(pin.name) or "(ended)"
        table.add_row(
            str(pin.thread), name, str(pin.depth), str(pin.behind), _age(pin), style=colour
        )
    if len(pins) > PINS_SHOWN:
        table.caption = f"the {PINS_SHOWN} oldest of {len(pins)}"
    return table


def _age(pin: Pin) -> str:
    """A pin of the present epoch may be as old as that, or new: nothing tells."""
    return f"{pin.age_ms / 1e3:.3f} s" if pin.behind > 0 else ABSENT


def _verdict(found: Stalls, stall_ms: int) -> str:
    stalled = [pin for pin in found.pins if pin.age_ms >= stall_ms]
    if not stalled:
        return f"[green]Nobody stalls:[/] no pin is known to last for {stall_ms} ms."
    who = ", ".join(str(pin.thread) for pin in stalled[:PINS_SHOWN])
    threads = f"thread {who} has" if len(stalled) == 1 else f"threads {who} have"
    return (
        f"[red]Stalled:[/] {threads} been inside a pin for {found.oldest_ms / 1e3:.3f} s or more; "
        "nothing that any thread has retired since then can be freed."
    )
