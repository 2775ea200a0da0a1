# SPDX-License-Identifier: MIT OR Apache-2.0
"""Asks the process in a thread of its own, one question after the other, so that the screen never
waits for it; and what it says."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect.heap import Heap
from ebbtide_lab.inspect.lifetimes import is_running
from ebbtide_lab.inspect.stalls import Stalls
from ebbtide_lab.show.top.sheets import StackSum

REST_S = 0.05  # at least, between two looks


class Source(Protocol):
    """As `inspect.heap.Subject`."""

    def look(self, with_threads: bool = True) -> Heap: ...

    def stalls(self) -> Stalls: ...

    def trim(self) -> None: ...

    def is_there(self) -> bool: ...

    def close(self) -> None: ...


class Sampler(Protocol):
    """A profile that is on. `look` keeps it on, `end` switches it off, unless it is others'."""

    def look(self) -> list[StackSum]: ...

    def end(self) -> None: ...


@dataclass(frozen=True)
class News:
    """What the last round of questions found; None: it was not asked for, or not found."""

    heap: Heap | None = None
    stalls: Stalls | None = None
    stacks: list[StackSum] | None = None
    trouble: str = ""
    stacks_trouble: str = ""
    trim_trouble: str | None = None  # empty: it has given back what was free
    over: str = ""  # what became of the process


class Feed(threading.Thread):
    """Ends with the process, or when told to; then the source is closed and the profile off."""

    def __init__(
        self,
        pid: int,
        source: Source,
        sampling: Callable[[], Sampler],
        interval: float,
        deliver: Callable[[News], None],
    ) -> None:
        super().__init__(daemon=True)  # an answer that does not come holds up nobody's exit
        self._pid, self._source, self._sampling = pid, source, sampling
        self._interval, self._deliver = interval, deliver
        self._stops, self._wakes, self._trims = (threading.Event() for _ in range(3))
        self._sampler: Sampler | None = None
        self._wants_threads = self._wants_stalls = self._wants_stacks = False
        self._stacks_trouble = ""

    def watch(self, threads: bool = False, stalls: bool = False) -> None:
        """From now on these, and no others."""
        self._wants_threads, self._wants_stalls = threads, stalls
        if threads or stalls:
            self._wakes.set()

    def watch_stacks(self) -> None:
        """From now on until the end."""
        self._wants_stacks, self._stacks_trouble = True, ""
        self._wakes.set()

    def trim(self) -> None:
        self._trims.set()
        self._wakes.set()

    def stop(self) -> None:
        """Waits only where there is something to switch off."""
        self._stops.set()
        self._wakes.set()
        if self._wants_stacks and self.is_alive():
            self.join()

    def run(self) -> None:
        try:
            while not self._stops.is_set():
                begun = time.monotonic()
                self._wakes.clear()
                news = self._round()
                if not self._stops.is_set():
                    self._deliver(news)
                if news.over:
                    return
                self._wakes.wait(max(REST_S, begun + self._interval - time.monotonic()))
        finally:
            if self._sampler is not None:
                with suppress(LabError):
                    self._sampler.end()
            self._source.close()

    def _round(self) -> News:
        try:
            trim_trouble = self._trim() if self._trims.is_set() else None
            heap = self._source.look(self._wants_threads)
            stalls = self._source.stalls() if self._wants_stalls else None
        except LabError as error:
            return News(trouble=str(error), over=self._over())
        stacks = self._stacks() if self._wants_stacks and not self._stacks_trouble else None
        return News(heap, stalls, stacks, "", self._stacks_trouble, trim_trouble)

    def _over(self) -> str:
        if not is_running(self._pid):
            return "has ended"
        return "" if self._source.is_there() else "is another program now"

    def _trim(self) -> str:
        self._trims.clear()
        try:
            self._source.trim()
        except LabError as error:
            return str(error)
        return ""

    def _stacks(self) -> list[StackSum] | None:
        try:
            if self._sampler is None:
                self._sampler = self._sampling()
            return self._sampler.look()
        except LabError as error:
            self._stacks_trouble = str(error)
            return None
