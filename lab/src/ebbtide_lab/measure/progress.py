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
def open_progress(console: Console, runs: int, total_s: float) -> Iterator["_Bar | _Lines"]:
    """`begin` and `end` of it tell of each run; times are estimates."""
    told = _Bar(console, total_s) if console.is_terminal else _Lines(console, runs, total_s)
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
    def __init__(self, console: Console, runs: int, total_s: float) -> None:
        super().__init__(self._told, console)
        self._runs, self._total_s = runs, total_s
        self._done, self._done_s = 0, 0.0
        self._what = ""

    def begin(self, what: str) -> None:
        self._what = what

    def end(self, took_s: float) -> None:
        self._done += 1
        self._done_s += took_s

    def _told(self, seconds: float) -> str:
        share = self._done_s / self._total_s if self._total_s else 0.0
        text = f"{share:4.0%} after {seconds:.0f} s, {self._done} of {self._runs}"
        return f"{text} runs; now {self._what}"
