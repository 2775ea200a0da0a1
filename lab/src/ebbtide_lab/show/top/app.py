# SPDX-License-Identifier: MIT OR Apache-2.0
"""The screen of `ebb top`."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.widgets import Footer, Input, Tab, Tabs

from ebbtide_lab.inspect.heap import Heap
from ebbtide_lab.inspect.stalls import Stalls
from ebbtide_lab.show.status import human_age, human_bytes
from ebbtide_lab.show.top import panels, sheets
from ebbtide_lab.show.top.canvas import Line
from ebbtide_lab.show.top.dialogs import Confirm, Filter, Help
from ebbtide_lab.show.top.feed import Feed, News, Sampler, Source
from ebbtide_lab.show.top.grid import Grid, Lines
from ebbtide_lab.show.top.history import History
from ebbtide_lab.show.top.sheets import Sheet, StackSum

TABS = {
    "classes": "Classes",
    "lifetimes": "Lifetimes",
    "threads": "Threads",
    "stalls": "Stalls",
    "stacks": "Stacks",
}
OVER, ODD = Style(color="red", bold=True), Style(color="yellow", bold=True)
ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PROFILED = "sampled: some 2 ns a malloc, and off again when you leave"


@dataclass
class Order:
    """Of a table: the column it is sorted by, None for the one it begins with."""

    sort: int | None = None
    is_reversed: bool = False


@dataclass
class Seen:
    """What is on the screen: the latest, or what it was when it was frozen."""

    heap: Heap
    earlier: Heap | None = None
    stalls: Stalls | None = None
    stacks: list[StackSum] | None = None
    stacks_trouble: str = ""


class Terminal(LinuxDriver):
    """Goes on behind a byte that is no UTF-8: a terminal of Latin-1 sends such keys."""

    def run_input_thread(self) -> None:
        while not self.exit_event.is_set():
            with suppress(UnicodeDecodeError):
                super().run_input_thread()


class Top(App[None]):
    """Of one process, whose first look has been taken."""

    TITLE = "ebb top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 2; }
    #accounts { height: 9; }
    #note { height: 1; color: $text-muted; }
    Grid { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("space", "freeze", "Freeze"),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("m", "mark", "Mark"),
        Binding("d", "diff", "Diff"),
        Binding("t", "trim", "Trim"),
        Binding("question_mark", "help", "Help", key_display="?"),
        *(Binding(str(at), f"tab('{tab}')", show=False) for at, tab in enumerate(TABS, 1)),
    ]

    class Told(Message):
        def __init__(self, news: News) -> None:
            super().__init__()
            self.news = news

    def __init__(
        self, first: Heap, source: Source, sampling: Callable[[], Sampler], interval: float
    ) -> None:
        # Without colours are those that the terminal has anyway, and no greys.
        super().__init__(driver_class=Terminal, ansi_color="NO_COLOR" in os.environ or None)
        self.animation_level = "none"
        self._feed = Feed(first.pid, source, sampling, interval, self._deliver)
        self._shown = self._latest = Seen(first)
        self._history = History()
        self._history.add(first)
        self.ended_by = 0  # a signal, or 0
        self._mark: Heap | None = None
        self._compares = self._is_frozen = False
        self._trouble = self._over = self._wanted = ""
        self._orders = {tab: Order() for tab in TABS}
        self._tab = next(iter(TABS))

    def compose(self) -> ComposeResult:
        # Kept, since a dialog in front has a screen of its own, in which they are not found.
        self._head, self._accounts, self._note = (Lines(id) for id in ("head", "accounts", "note"))
        self._tabs = Tabs(*(Tab(title, id=tab) for tab, title in TABS.items()))
        self._grid, self._filter = Grid(), Filter()
        yield from (self._head, self._accounts, self._tabs, self._note, self._grid, self._filter)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        for number in (each for each in ENDS if signal.getsignal(each) != signal.SIG_IGN):
            asyncio.get_running_loop().add_signal_handler(number, self._end_by, number)
        self._grid.focus()
        self._feed.start()

    def _end_by(self, number: int) -> None:
        """The terminal is as it was before the process ends."""
        self.ended_by = number
        self.exit()

    def on_unmount(self) -> None:
        self._feed.stop()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    # --- what the process says --------------------------------------------------------

    def _deliver(self, news: News) -> None:
        """In the feed's thread."""
        self.post_message(self.Told(news))

    def on_top_told(self, told: Told) -> None:
        news, before = told.news, self._latest
        self._trouble, self._over = news.trouble, news.over
        if news.heap is not None:
            self._history.add(news.heap)
            stacks = before.stacks if news.stacks is None else news.stacks
            self._latest = Seen(news.heap, before.heap, news.stalls, stacks, news.stacks_trouble)
        if news.trim_trouble is not None and news.heap is not None:
            self._tell_of_trim(news.trim_trouble, before.heap, news.heap)
        if not self._is_frozen:
            self._shown = self._latest
        self._draw()

    def _tell_of_trim(self, trouble: str, before: Heap, now: Heap) -> None:
        then, resident = human_bytes(before.resident_bytes), human_bytes(now.resident_bytes)
        what = trouble or f"What was free has gone back. Resident: {then} before, {resident} now."
        self.notify(what, severity="error" if trouble else "information", markup=False)

    # --- keys -------------------------------------------------------------------------

    def action_freeze(self) -> None:
        self._is_frozen = not self._is_frozen
        self._shown = self._latest
        self._draw()

    def action_sort(self) -> None:
        order, columns = self._orders[self._tab], self._grid.shown_columns()
        later = [at for at in columns if at > self._sort_of(self._sheet())]
        order.sort, order.is_reversed = (later or columns)[0], False
        self._draw_table()

    def action_reverse(self) -> None:
        order = self._orders[self._tab]
        order.is_reversed = not order.is_reversed
        self._draw_table()

    def action_filter(self) -> None:
        self._filter.add_class("is-open")
        self._filter.focus()

    def on_input_changed(self, changed: Input.Changed) -> None:
        self._wanted = changed.value
        self._draw_table()

    def on_input_submitted(self) -> None:
        self._filter.remove_class("is-open")
        self._grid.focus()

    def action_mark(self) -> None:
        self._mark, self._compares = self._shown.heap, True
        self._draw()

    def action_diff(self) -> None:
        if self._mark is None:
            self.notify("m marks a moment first; then d shows what has changed since.")
            return
        self._compares = not self._compares
        self._draw()

    def action_trim(self) -> None:
        def done(is_sure: bool | None) -> None:
            if is_sure:
                self._feed.trim()

        heap = self._shown.heap
        question = f"Have {heap.name} ({heap.pid}) give back all memory that is free in it?"
        self.push_screen(Confirm(question), done)

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_tab(self, tab: str) -> None:
        self._tabs.active = tab

    def on_tabs_tab_activated(self, activated: Tabs.TabActivated) -> None:
        self._tab = activated.tab.id or self._tab
        self._feed.watch(threads=self._tab == "threads", stalls=self._tab == "stalls")
        if self._tab == "stacks":
            self._feed.watch_stacks()
        self._grid.scroll_home(animate=False)
        self._grid.focus()
        self._draw_table()

    # --- drawing ----------------------------------------------------------------------

    def _draw(self) -> None:
        shown, width = self._shown, self.size.width - 2
        mark = self._mark if self._compares else None
        head = panels.head(shown.heap, shown.earlier, self._state(), width)
        self._head.show(head)
        accounts = panels.waterfall(shown.heap, mark, self._history, width)
        self._accounts.show(accounts)
        self._draw_table()

    def _state(self) -> Line:
        """What is not as it should be; empty when all is."""
        if self._over:
            pid = self._shown.heap.pid
            return ((f"Process {pid} {self._over}. Below is its last look. q leaves.", OVER),)
        if self._trouble:
            return ((self._trouble, ODD),)
        return (("Frozen. The space bar goes on.", ODD),) if self._is_frozen else ()

    def _draw_table(self) -> None:
        sheet, order = self._sheet(), self._orders[self._tab]
        sort = self._sort_of(sheet)
        rows = sheets.arranged(sheet, sort, order.is_reversed, self._wanted)
        self._grid.show(sheet, rows, sort, order.is_reversed)
        self._note.show([((self._noted(sheet), Style()),)])

    def _sort_of(self, sheet: Sheet) -> int:
        sort = self._orders[self._tab].sort
        return sheet.sort if sort is None else sort

    def _sheet(self) -> Sheet:
        shown = self._shown
        if self._tab == "classes":
            return sheets.classes(shown.heap, self._mark, self._compares)
        if self._tab == "lifetimes":
            return sheets.lifetimes(shown.heap, self._mark, self._compares)
        if self._tab == "threads":
            return sheets.threads(shown.heap, self._mark, self._compares)
        if self._tab == "stalls":
            return sheets.stalls(shown.stalls)
        note = shown.stacks_trouble or (PROFILED if shown.stacks else f"{PROFILED}; no sample yet")
        return sheets.stacks(shown.stacks, note)

    def _noted(self, sheet: Sheet) -> str:
        parts = [sheet.note]
        if self._wanted:
            parts.insert(0, f'only "{self._wanted}"')
        if self._mark is not None:
            age = human_age(round((self._shown.heap.taken - self._mark.taken) * 1000))
            parts.insert(0, f"changes in {age}" if self._compares else f"marked {age} ago")
        return " | ".join(parts)
