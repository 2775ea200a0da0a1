# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb top` asks or explains in front of its tables."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input, Static

BOX = """
{name} {{ align: center middle; }}
{name} Static {{ width: auto; max-width: 76; height: auto; padding: 0 2; border: round $primary;
    background: $surface; }}
"""
HELP = """\
1 to 5      classes, lifetimes, threads, stalls, stacks
up, down    scroll; so do Page Up, Page Down, Home and End
space       freeze the screen; again: go on
s  r        sort by the next column; reverse the order
/           show only rows with this text; Escape: all rows
m  d        mark this moment and show differences; on and off
t           have the process give back what is free in it
q           leave; Ctrl-C leaves from here, too

The upper lines are the accounts of the allocator. They sum to the
resident memory; the last one is what is left, and below zero where
the program has not touched all that it has. The pictures go from zero
to the most of two minutes.
idle: the share of a block size that is free. change: of what is
live or held, since the mark."""


class Help(ModalScreen[None]):
    DEFAULT_CSS = BOX.format(name="Help")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, "dismiss", show=False) for key in ("escape", "q", "question_mark", "enter")
    ]

    def compose(self) -> ComposeResult:
        yield Static(HELP, markup=False)


class Confirm(ModalScreen[bool]):
    DEFAULT_CSS = BOX.format(name="Confirm")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", show=False),
        *(Binding(key, "dismiss(False)", show=False) for key in ("n", "escape", "q")),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(f"{self._question}\n\ny  yes     n  no", markup=False)


class Filter(Input):
    """One line, which is there while it is used."""

    DEFAULT_CSS = """
    Filter, Filter:focus { display: none; border: none; height: 1; padding: 0 1; }
    Filter.is-open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "clear", show=False)]

    def __init__(self) -> None:
        super().__init__(placeholder="show only rows with this text; Escape: all rows")

    def action_clear(self) -> None:
        self.value = ""
        self.post_message(self.Submitted(self, ""))
