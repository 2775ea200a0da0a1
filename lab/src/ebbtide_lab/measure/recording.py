# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a command under the recorder, and gathers the recordings of its processes."""

import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure.signals import Child, Signals
from ebbtide_lab.measure.tracing import Info, call_tool, read_info

RECORDER = "libebbtide_record.so"
SPOOL = ".spool"
SUFFIX = ".ebt"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S = 0.02
LOOK_S = 0.1  # between two looks at all processes
LOOKS = 3
BETWEEN_LOOKS_S = 0.03
GRACE_S = 10.0  # from SIGTERM until a process is killed, or left out
QUIET_S = 1.0  # until it is told that processes outlive the command
LINGER_S = 30.0  # how long processes that outlive the command are waited for
WORTH_KEEPING = 1000  # events, of all recordings but the largest

Tell = Callable[[str], None]


class FolderError(LabError):
    """The recording has nowhere to go."""


@dataclass(frozen=True)
class Request:
    command: list[str]
    target: Path
    only: str | None = None
    seconds: float | None = None
    keep_all: bool = False


@dataclass(frozen=True)
class Run:
    """How a command ended: its exit status, and the CPU time of all its processes that ended."""

    status: int
    cpu_s: float
    lost: int = 0  # recordings that cannot be read


@dataclass(frozen=True)
class Recording:
    path: Path
    info: Info


def run_plain(request: Request, tell: Tell) -> Run:
    """The command without the recorder."""
    with Watch(tell) as watch:
        return _run(request, _clean_environment(), watch)


def record(request: Request, layout: Layout, tell: Tell) -> tuple[Run, list[Recording]]:
    """The recordings that were kept, the largest first."""
    with _scratch(_checked(request.target).parent) as scratch:
        base = scratch / "process"
        with Watch(tell) as watch:
            deadline = _deadline(request)
            run = _run(request, _settings(request, layout.program(RECORDER), base), watch)
            held = _await_others(base, deadline, watch)
        found = [each for each in _files(base) if each not in held]
        finished = [each for each in (_finish(layout, path, tell) for path in found) if each]
        lost = len(found) - len(finished)
        return replace(run, lost=lost), _keep(finished, request)


def _checked(target: Path) -> Path:
    """Where a link leads; a recording replaces files, nothing else."""
    try:
        real = target.resolve()
        if real.exists() and not real.is_file():
            raise FolderError(f"{target} is no file")
    except (OSError, RuntimeError) as error:
        raise FolderError(f"cannot write {target}: {error}") from error
    return real


# --- the command --------------------------------------------------------------------


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Beside the recording, so that it is renamed into its place."""
    try:
        scratch = tempfile.TemporaryDirectory(
            dir=folder, prefix=".ebb-record-", ignore_cleanup_errors=True
        )
    except OSError as error:
        raise FolderError(f"cannot write in {folder}: {error.strerror}") from error
    with scratch as name:
        yield Path(name).resolve()


class Watch(Signals):
    """Waits for others. Ctrl-C, and what else would end this process, ends a wait instead; not what
    is ignored, as under nohup."""

    def __init__(self, tell: Tell) -> None:
        super().__init__([each for each in ENDING if signal.getsignal(each) != signal.SIG_IGN])
        self.tell = tell

    def __enter__(self) -> "Watch":
        super().__enter__()
        return self

    def wait(self, is_over: Callable[[], bool], deadline: float, poll_s: float) -> bool:
        """False at the deadline, and when it was interrupted."""
        while not is_over():
            if time.monotonic() >= deadline or self.take(poll_s):
                return False
        return True


def _clean_environment() -> dict[str, str]:
    ours = ("LD_PRELOAD", "EBB_RECORD", "EBB_RECORD_ONLY")
    return {key: value for key, value in os.environ.items() if key not in ours}


def _settings(request: Request, recorder: Path, base: Path) -> dict[str, str]:
    only = {"EBB_RECORD_ONLY": request.only} if request.only else {}
    recorded = {"LD_PRELOAD": str(recorder), "EBB_RECORD": str(base), **only}
    return {**_clean_environment(), **recorded}


def _deadline(request: Request) -> float:
    return inf if request.seconds is None else time.monotonic() + request.seconds


def _run(request: Request, environment: dict[str, str], watch: Watch) -> Run:
    before = _children_cpu_s()
    child = watch.start(request.command, environment, in_own_session=True)
    try:
        if not watch.wait(child.is_over, _deadline(request), POLL_S):
            _end(child, watch)
    finally:
        if not child.is_over():
            child.kill()
    return Run(child.status, _children_cpu_s() - before)


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _end(child: Child, watch: Watch) -> None:
    """A second Ctrl-C is for who cannot wait."""
    child.end_group(signal.SIGTERM)
    if not watch.wait(child.is_over, time.monotonic() + GRACE_S, POLL_S):
        watch.tell("the command does not end on SIGTERM: it is killed")


# --- processes that outlive it ----------------------------------------------------------


def _await_others(base: Path, deadline: float, watch: Watch) -> set[Path]:
    """The files that are still being written when the wait is over. A deadline and Ctrl-C
    end the processes; without a deadline they are left out after a while."""
    if _are_gone(base) and _await_none(base, watch, time.monotonic() + QUIET_S):
        return set()
    watch.tell(f"waiting for {_listed(_others(base))}, started by the command; Ctrl-C ends it")
    limit = min(deadline, time.monotonic() + LINGER_S)
    if not _await_none(base, watch, limit):
        if limit <= time.monotonic() < deadline:
            watch.tell(f"{_listed(_others(base))} still runs: what it does is not recorded")
        else:
            _end_others(base, watch)
    return _held(base)


def _end_others(base: Path, watch: Watch) -> None:
    for pid in _others(base):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    if not _await_none(base, watch, time.monotonic() + GRACE_S):
        watch.tell(f"{_listed(_others(base))} does not end on SIGTERM: it is killed")
        for pid in _others(base):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _await_none(base, watch, time.monotonic() + QUIET_S)


def _await_none(base: Path, watch: Watch, deadline: float) -> bool:
    return watch.wait(lambda: _are_gone(base), deadline, LOOK_S)


def _are_gone(base: Path) -> bool:
    """Not seen by several looks: one that is just forked may have neither its parent's
    environment nor a file yet when /proc is read."""
    for _ in range(LOOKS):
        if _others(base):
            return False
        time.sleep(BETWEEN_LOOKS_S)
    return True


def _others(base: Path) -> dict[int, str]:
    """Processes that the recorder is in, or will be, by their environment: names by pid."""
    mark = os.fsencode(f"EBB_RECORD={base}\0")
    found = {}
    for folder in _processes():
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes() or _spools(folder, base):
                found[int(folder.name)] = (folder / "comm").read_text(errors="replace").strip()
    return found


def _held(base: Path) -> set[Path]:
    held: set[Path] = set()
    for folder in _processes():
        with suppress(OSError):
            held |= {Path(each.removesuffix(SPOOL)) for each in _spools(folder, base)}
    return held


def _processes() -> list[Path]:
    return [each for each in Path("/proc").iterdir() if each.name.isdigit()]


def _spools(process: Path, base: Path) -> set[str]:
    """Those that it has mapped."""
    lines = (process / "maps").read_text(errors="replace").splitlines()
    paths = (line.split(maxsplit=5)[-1] for line in lines)
    return {each for each in paths if each.startswith(f"{base}.") and each.endswith(SPOOL)}


def _listed(others: dict[int, str]) -> str:
    return ", ".join(f"{name} ({pid})" for pid, name in sorted(others.items()))


# --- the recordings -----------------------------------------------------------------


def _files(base: Path) -> list[Path]:
    return sorted(
        each for each in base.parent.glob(f"{base.name}.*") if not each.name.endswith(SPOOL)
    )


def _finish(layout: Layout, path: Path, tell: Tell) -> Recording | None:
    """None for what cannot be read: the recorder has told why, if the disk was full."""
    try:
        call_tool(layout, "finish", str(path))
        return Recording(path, read_info(layout, path))
    except LabError as error:
        tell(f"a recording is lost: {error}")
        return None


def _keep(found: list[Recording], request: Request) -> list[Recording]:
    ordered = sorted(found, key=lambda each: -each.info.events)
    worth = [
        each
        for at, each in enumerate(ordered)
        if at == 0 or request.keep_all or each.info.events >= WORTH_KEEPING
    ]
    return [_move(each, numbered(request.target, at)) for at, each in enumerate(worth)]


def numbered(target: Path, number: int) -> Path:
    """FILE.ebt, FILE.1.ebt, FILE.2.ebt, ..."""
    return target.with_suffix(f".{number}{target.suffix}") if number else target


def _move(recording: Recording, target: Path) -> Recording:
    try:
        recording.path.replace(_checked(target))
    except OSError as error:
        raise FolderError(f"cannot write {target}: {error.strerror}") from error
    return Recording(target, recording.info)
