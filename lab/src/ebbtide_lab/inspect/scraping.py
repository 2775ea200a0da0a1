# SPDX-License-Identifier: MIT OR Apache-2.0
"""Heaps of many processes, looked at side by side, again and again.

A process answers within a second, or not at all: each has a thread of its own that waits for it.
A round ends after `WITHIN_S`, with those that have answered by then. Two rounds at once share
their looks.
"""

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect import control, heap, lifetimes, processes
from ebbtide_lab.inspect.control import NoAnswer
from ebbtide_lab.inspect.heap import Heap, Subject
from ebbtide_lab.inspect.image import Torn
from ebbtide_lab.inspect.labels import SHOWN
from ebbtide_lab.inspect.stalls import Stalls

ENDED, SILENT, SLOW, DENIED, UNREADABLE = REASONS = (
    *("ended", "no_answer", "too_slow", "no_permission", "unreadable"),
)
WITHIN_S = control.ANSWERS_WITHIN_S + 1  # below the 10 s that Prometheus waits
MOST_AT_ONCE = 64


class Ended(LabError):
    """Its number may be that of another process."""


@dataclass(frozen=True)
class Seen:
    """`pins`: None where its library has no reclamation, or changes too fast to be read."""

    heap: Heap
    pins: Stalls | None


@dataclass(frozen=True)
class Round:
    """The smallest process number first. `failures`: how many processes were left out, for each
    of REASONS."""

    seen: list[Seen]
    failures: dict[str, int]


def _seen(subject: Subject) -> Seen:
    found = subject.look()
    try:
        return Seen(found, subject.stalls())
    except LabError:
        return Seen(found, None)


class Watch:
    """Of one process, or with None of all that have Ebbtide, found anew in each round. LabError:
    the one process cannot be looked at. Close it."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._lock = Lock()  # of what follows
        self._targets: dict[int, Subject] = {}
        self._looks: dict[int, Future[Seen]] = {}
        self._seen: set[int] = set()  # the last time
        self._rounds = 0
        self._begun: dict[int, int] = {}  # the round in which it was looked at last
        self._is_closed = False
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE)
        if pid is not None:
            self._targets[pid] = Subject(pid, SHOWN)
            self._start = heap.start_ticks(pid)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._pool.shutdown(cancel_futures=True)
        self._close_all_but(set())

    def round(self) -> Round:
        hidden = 0
        pids = {self._pid} if self._pid is not None else set()
        if self._pid is None:
            listing = processes.everywhere()
            pids, hidden = {each.pid for each in listing.found}, listing.hidden
        looks = self._begin(pids)
        wait(looks.values(), timeout=WITHIN_S)
        found = {pid: self._end(pid, look) for pid, look in looks.items()}
        seen = [found[pid] for pid in sorted(found)]
        failures = Counter(each for each in seen if isinstance(each, str))
        failures[DENIED] += hidden
        return Round(
            [each for each in seen if isinstance(each, Seen)],
            {reason: failures[reason] for reason in REASONS},
        )

    def _begin(self, pids: set[int]) -> dict[int, Future[Seen]]:
        """Those that were seen the last time come first, and then who has waited longest: who does
        not answer holds up those behind until the round is over.
        """
        with self._lock:
            if self._is_closed:
                return {}
            self._close_all_but(pids | self._looks.keys())
            self._seen &= pids
            self._rounds += 1
            self._begun = {pid: self._begun.get(pid, 0) for pid in pids}
            for pid in sorted(pids, key=lambda each: (each not in self._seen, self._begun[each])):
                if pid not in self._looks:
                    self._looks[pid] = self._pool.submit(self._look, pid)
            return {pid: self._looks[pid] for pid in pids}

    def _end(self, pid: int, look: Future[Seen]) -> Seen | str:
        """What was seen, or why not. One that has not even begun is not waited for any more."""
        with self._lock:
            has_begun = not look.cancel()
            if not has_begun and self._looks.get(pid) is look:
                del self._looks[pid]
            found = _outcome(pid, look)
            if has_begun:
                self._begun[pid] = self._rounds
            if isinstance(found, Seen):
                self._seen.add(pid)
            else:
                self._seen.discard(pid)
        return found

    def _look(self, pid: int) -> Seen:
        """In a thread of the pool, one at a time for each process."""
        try:
            return _seen(self._target(pid))
        except NoAnswer:
            raise
        except (LabError, Torn, OSError):
            with self._lock:
                target = self._targets.pop(pid, None)
            if target:
                target.close()
            raise
        finally:
            with self._lock:
                del self._looks[pid]

    def _target(self, pid: int) -> Subject:
        """Its number may be another's by now; a program that it executes instead is the same."""
        with self._lock:
            found = self._targets.get(pid)
        if found:
            return found
        if self._pid is not None and heap.start_ticks(pid) != self._start:
            raise Ended(f"process {pid} has ended")
        opened = Subject(pid, SHOWN)
        with self._lock:
            self._targets[pid] = opened
        return opened

    def _close_all_but(self, pids: set[int]) -> None:
        for pid in self._targets.keys() - pids:
            self._targets.pop(pid).close()


def _outcome(pid: int, look: Future[Seen]) -> Seen | str:
    if not look.done() or look.cancelled():
        return SLOW
    error = look.exception()
    if error is None:
        return look.result()
    if isinstance(error, NoAnswer):
        return SILENT
    is_gone = isinstance(error, Ended) or isinstance(error.__cause__, Torn)
    if is_gone or not lifetimes.is_running(pid):
        return ENDED
    return DENIED if isinstance(error.__cause__, PermissionError) else UNREADABLE
