# SPDX-License-Identifier: MIT OR Apache-2.0
"""How far a session is: a bar on a terminal; in a file or a pipe, a line now and then."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

EVERY_S = 9.0  # between two lines


@contextmanager
def open_progress(
    console: Console, runs: int, total_s: float, budget_s: float | None
) -> Iterator["_Bar | _Lines"]:
    """`begin` and `end` of it tell of each run; times are estimates, but for the budget."""
    told: _Bar | _Lines
    if console.is_terminal:
        told = _Bar(console, min(total_s, budget_s) if budget_s else total_s)
    else:
        told = _Lines(console, runs, total_s, budget_s)
    told.start()
    try:
        yield told
    finally:
        told.stop()


@contextmanager
def waiting(console: Console, what: str) -> Iterator[None]:
    """Something that may take long and does not say how far it is."""
    if console.is_terminal:
        with console.status(what):
            yield
        return
    ticker = Ticker(lambda seconds: f"{what}, {seconds:.0f} s", console)
    ticker.start()
    try:
        yield
    finally:
        ticker.stop()


class _Bar:
    def __init__(self, console: Console, total_s: float) -> None:
        self._bar = Progress(
            TextColumn("{task.description:<36.36}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=total_s)

    def start(self) -> None:
        self._bar.start()

    def stop(self) -> None:
        self._bar.stop()

    def begin(self, what: str) -> None:
        self._bar.update(self._task, description=what)

    def end(self, took_s: float) -> None:
        self._bar.advance(self._task, took_s)


class Ticker:
    """A thread writes a line each EVERY_S: what it tells of may be longer than that."""

    def __init__(self, line: Callable[[float], str], console: Console) -> None:
        self._line = line
        self._console = console
        self._over = Event()
        self._thread = Thread(target=self._tell, args=(monotonic(),), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _tell(self, started: float) -> None:
        while not self._over.wait(EVERY_S):
            line = self._line(monotonic() - started)
            self._console.print(line, soft_wrap=True, style="dim", markup=False)


class _Lines(Ticker):
    def __init__(
        self, console: Console, runs: int, total_s: float, budget_s: float | None = None
    ) -> None:
        super().__init__(self._told, console)
        self._runs, self._total_s, self._budget_s = runs, total_s, budget_s
        self._done, self._done_s = 0, 0.0
        self._what = ""

    def begin(self, what: str) -> None:
        self._what = what

    def end(self, took_s: float) -> None:
        self._done += 1
        self._done_s += took_s

    def _told(self, seconds: float) -> str:
        share = self._done_s / self._total_s if self._total_s else 0.0
        runs = f"{self._done} of {self._runs} runs"
        if self._budget_s:  # what does not fit in is left out: it is the time that ends
            share = min(max(share, seconds / self._budget_s), 0.99)
            runs = f"run {self._done + 1}"
        return f"{share:4.0%} after {seconds:.0f} s, {runs}; now {self._what}"
