# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb-trace, which reads and writes recordings, and what it tells of one."""

import json
from dataclasses import dataclass, fields
from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.base.text import shown
from ebbtide_lab.measure.process import ExitError, finish

TOOL = "ebb-trace"
SCHEMA = 1


@dataclass(frozen=True)
class Info:
    """What a recording holds; the names are those of `ebb-trace info`."""

    program: str
    command: str
    pid: str
    libc: str
    mallocs: int
    callocs: int
    aligned: int
    frees: int
    reallocs: int
    handed_over: int  # ended by another thread than the one that made it
    inherited: int  # of these, made by the process that forked this one
    turns: int
    bytes_made: int
    peak_bytes: int
    peak_objects: int
    end_bytes: int
    microseconds: int
    sizes: list[int]  # objects by the power of two that they fit into
    lifetimes: list[int]  # the same, of how many events they lived
    live_bytes: list[int]
    live_at_us: list[int]
    file_bytes: int
    events: int
    threads: int
    lost: int

    @property
    def between_threads(self) -> int:
        return self.handed_over - self.inherited

    @property
    def name(self) -> str:
        """Of the program; an anonymised recording has none."""
        return Path(self.program).name or "unnamed"

    @property
    def live(self) -> list[tuple[int, int]]:
        """Microseconds and bytes, to the end, which is seldom the last sample."""
        samples = list(zip(self.live_at_us, self.live_bytes, strict=True))
        return [*samples, (self.microseconds, self.end_bytes)]

    @property
    def bytes_per_event(self) -> float:
        return self.file_bytes / max(self.events, 1)


def call_tool(layout: Layout, *arguments: str) -> str:
    """Standard output of ebb-trace; its one line of complaint is the error."""
    try:
        return finish([str(layout.program(TOOL)), *arguments], timeout_s=None)
    except ExitError as error:
        said = error.last_line
        raise LabError(said.removeprefix(f"{TOOL}: ") if said else str(error)) from error


def read_info(layout: Layout, path: Path) -> Info:
    data = json.loads(call_tool(layout, "info", str(path)))
    if data["schema"] != SCHEMA:
        raise LabError(f"{TOOL} prints schema {data['schema']}, this lab reads {SCHEMA}")
    names = {name: shown(data[name]) for name in ("program", "command", "pid", "libc")}
    return Info(**{each.name: data[each.name] for each in fields(Info)} | names)
