# SPDX-License-Identifier: MIT OR Apache-2.0
"""The accounts of the heap of a running process, class by class: what it has asked for itself
when told so from outside (control.py), read from its memory (src/process/snapshot.c). No thread
of it waits for the reader.
"""

import struct
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.inspect import board, control, lifetimes, stalls
from ebbtide_lab.inspect.control import Control
from ebbtide_lab.inspect.image import Process, Torn, told
from ebbtide_lab.inspect.labels import NO_REST, Label, Rest, Table
from ebbtide_lab.inspect.lifetimes import Status
from ebbtide_lab.inspect.stalls import Stalls

TURN = struct.Struct("<Q")
TOTALS = struct.Struct("<19Q")
ROW = struct.Struct("<7Q")
ROWS = 96  # of classes; EBB_SNAPSHOT_CLASSES
COUNT = struct.Struct("<2Q")  # unsealed bytes, threads
THREAD = struct.Struct("<4Q")
MOST_THREADS = 1024  # EBBI_PUBLISHED_THREADS
ATTEMPTS = 20


@dataclass(frozen=True)
class SizeClass:
    """Of one block size, in bytes. Cached: free in a thread's magazine; free: in its slab; of
    these, dirty: not yet returned; pinned: on pages that blocks in use keep."""

    block_bytes: int
    slabs: int
    live_blocks: int
    cached_blocks: int
    free_blocks: int
    dirty_bytes: int = 0
    pinned_bytes: int = 0

    @property
    def live_bytes(self) -> int:
        return self.live_blocks * self.block_bytes

    @property
    def cached_bytes(self) -> int:
        return self.cached_blocks * self.block_bytes

    @property
    def free_bytes(self) -> int:
        return self.free_blocks * self.block_bytes

    @property
    def idle_bytes(self) -> int:
        """Free, and not the program's."""
        return self.cached_bytes + self.free_bytes


@dataclass(frozen=True)
class Totals:
    """As in `struct ebb_snapshot` of ebbtide.h, whose order this is."""

    taken_ms: int
    live_bytes: int
    cached_bytes: int
    free_bytes: int
    dirty_bytes: int
    pinned_bytes: int
    slab_bytes: int
    span_bytes: int
    dirty_span_bytes: int
    huge_bytes: int
    huge_count: int
    committed_bytes: int
    reserved_bytes: int
    asked_huge_bytes: int
    purged_bytes: int
    purges: int
    slabs: int
    heaps: int
    class_count: int


@dataclass(frozen=True)
class ThreadHeap:
    """As in `struct ebb_thread_stats`; `name` is empty where the thread has ended."""

    thread: int
    name: str
    cached_bytes: int
    retired_bytes: int
    taken_bytes: int


@dataclass(frozen=True)
class Heap:
    """`classes`: those that have slabs, the smallest blocks first. Faults: of the process since
    its start, without and with the disk. `start_ticks`: when it began, in the kernel's ticks since
    the machine's start; with the number it tells a process from the next that has it. `rest`: of
    the labels, as in labels.py. `heaps`: of threads that have allocated, the first 1,024.
    `others`: as in lifetimes.py."""

    pid: int
    name: str
    library: str
    version: str
    taken: float  # Unix time
    resident_bytes: int
    threads: int
    minor_faults: int
    major_faults: int
    totals: Totals
    classes: list[SizeClass]
    labels: list[Label]
    start_ticks: int = 0  # 0: not known
    rest: Rest = NO_REST
    heaps: list[ThreadHeap] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @property
    def status(self) -> Status:
        """Its labels, as a process that is not asked has them."""
        return Status(
            self.pid,
            self.name,
            self.library,
            self.version,
            self.resident_bytes,
            self.labels,
            self.rest,
            self.others,
        )


class Subject:
    """A process that is asked again and again. Close it. LabError: there is none, it may not be
    written, it has no Ebbtide or one of another version; from `look` also that it has ended.
    `most_labels`: those that hold most; None: all."""

    def __init__(self, pid: int, most_labels: int | None = None) -> None:
        self._process = Process(pid, writes=True)
        self._unsealed = 0  # bytes
        try:
            self._its = its = board.require(self._process)
            self._control = Control(self._process, its.control)
            self._labels = Table(self._process, its.labels, its.labels_a_part, most_labels)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._process.close()

    def look(self, with_threads: bool = True) -> Heap:
        """With the heaps of its threads and their names, which are a file each."""
        pid = self._process.pid
        self._control.ask(control.SNAPSHOT)
        with told(pid):
            totals, classes, heaps = self._published(with_threads)
            now_ms = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
            held = self._labels.read(now_ms)
            library = lifetimes.file_at(self._process, self._its.address)
            minor, major, threads, began = _of_the_kernel(pid)
            return Heap(
                pid,
                self._process.name(),
                library,
                self._its.release,
                time.time(),
                lifetimes.resident_bytes(self._process.folder),
                threads,
                minor,
                major,
                totals,
                classes,
                held.found,
                began,
                held.rest,
                [self._named(*row) for row in heaps],
                [lifetimes.file_at(self._process, each) for each in self._its.others],
            )

    def stalls(self) -> Stalls:
        """Without a question: who is inside a pin. What waits for them has in it what threads had
        begun to put together when they were last looked at."""
        with told(self._process.pid):
            now_ms = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
            name_of = self._process.thread_name
            found = stalls.read_stalls(self._process, self._its.reclaim, now_ms, name_of)
            return replace(found, waiting_bytes=found.waiting_bytes + self._unsealed)

    def trim(self) -> None:
        self._control.ask(control.TRIM)

    def is_there(self) -> bool:
        """False when the process has ended or executed another program."""
        try:
            self._process.read(self._its.address, 1)
        except Torn:
            return False
        return True

    def _named(self, thread: int, cached: int, retired: int, taken: int) -> ThreadHeap:
        return ThreadHeap(thread, self._process.thread_name(thread), cached, retired, taken)

    def _published(
        self, with_threads: bool
    ) -> tuple[Totals, list[SizeClass], list[tuple[int, int, int, int]]]:
        """Another tool's question may overwrite it meanwhile: its turn tells."""
        at = self._its.snapshot + TURN.size
        behind = at + TOTALS.size + ROWS * ROW.size
        for _ in range(ATTEMPTS):
            turn = self._turn()
            totals = Totals(*TOTALS.unpack(self._process.read(at, TOTALS.size)))
            rows = min(totals.class_count, ROWS) * ROW.size
            content = self._process.read(at + TOTALS.size, rows)
            self._unsealed, count = COUNT.unpack(self._process.read(behind, COUNT.size))
            size = min(count, MOST_THREADS) * THREAD.size if with_threads else 0
            threads = self._process.read(behind + COUNT.size, size)
            if turn % 2 == 0 and self._turn() == turn:
                classes = [SizeClass(*row) for row in ROW.iter_unpack(content)]
                heaps = list(THREAD.iter_unpack(threads))
                return totals, [each for each in classes if each.slabs], heaps
            time.sleep(control.LOOK_S)
        raise LabError(f"other tools ask process {self._process.pid} all the time")

    def _turn(self) -> int:
        return int(TURN.unpack(self._process.read(self._its.snapshot, TURN.size))[0])


def examine(pid: int) -> Heap:
    subject = Subject(pid)
    try:
        return subject.look()
    finally:
        subject.close()


def start_ticks(pid: int) -> int:
    with told(pid):
        return _of_the_kernel(pid)[3]


def _of_the_kernel(pid: int) -> tuple[int, int, int, int]:
    """Minor and major faults, threads, start (proc_pid_stat(5)); the process's also when its
    first thread has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        fields = text.rpartition(") ")[2].split()
        return int(fields[7]), int(fields[9]), int(fields[17]), int(fields[19])
    except (OSError, IndexError, ValueError) as error:
        raise Torn from error
