# SPDX-License-Identifier: MIT OR Apache-2.0
"""The upper lines of `ebb top`: which process it is, and where its resident memory is."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.style import Style

from ebbtide_lab.inspect.heap import Heap
from ebbtide_lab.show.columns import LEAST_NAME, cut
from ebbtide_lab.show.status import human_bytes, share
from ebbtide_lab.show.top.canvas import Line
from ebbtide_lab.show.top.history import RESIDENT, History, lines_of
from ebbtide_lab.show.top.sheets import GAP, signed

NAME_WIDTH, BYTES_WIDTH, SHARE_WIDTH = 29, 11, 8
MOST_BARS = 60  # two seconds each
PLAIN, BOLD, BARS = Style(), Style(bold=True), Style(color="steel_blue")


def head(heap: Heap, earlier: Heap | None, state: Line, width: int) -> list[Line]:
    """`state` takes the place of the second line, unless it is empty. What there is no room for is
    left out."""
    who = f"{heap.name} {heap.pid}"
    version = f"   {f'Ebbtide {heap.version}'.strip()}"
    resident = f"   {human_bytes(heap.resident_bytes)} resident"
    threads = f"   {heap.threads:,} thread{'s' if heap.threads != 1 else ''}"
    first = (version + resident + threads, resident + threads, resident)
    faults = f"{_faults(heap, earlier)} faults/s"
    returned = f"   {human_bytes(heap.totals.purged_bytes)} returned to the OS so far"
    second = _fitting((faults + returned, faults), width)
    told = _fitting(first, width - cell_len(who))
    return [((who, BOLD), (told, PLAIN)), state or ((second, PLAIN),)]


def _fitting(texts: Sequence[str], width: int) -> str:
    """The first that fits, or else the last."""
    return next((each for each in texts if cell_len(each) <= width), texts[-1])


def _faults(heap: Heap, earlier: Heap | None) -> str:
    if earlier is None or heap.taken <= earlier.taken:
        return "-"
    count = heap.minor_faults + heap.major_faults - earlier.minor_faults - earlier.major_faults
    return f"{count / (heap.taken - earlier.taken):,.0f}"


def waterfall(heap: Heap, mark: Heap | None, history: History, width: int) -> list[Line]:
    """With a mark: what has changed since; shares are of the present."""
    name_width = min(NAME_WIDTH, max(width - BYTES_WIDTH - SHARE_WIDTH - GAP, LEAST_NAME))
    bars = min(width - name_width - BYTES_WIDTH - SHARE_WIDTH - GAP, MOST_BARS)
    before = lines_of(mark) if mark else None
    lines: list[Line] = []
    for at, (name, count) in enumerate(lines_of(heap)):
        told = signed(count - before[at][1], human_bytes) if before else human_bytes(count)
        of_all = share(count, heap.resident_bytes)
        text = f"{cut(name, name_width)}{told:>{BYTES_WIDTH}}{of_all:>{SHARE_WIDTH}}{'':{GAP}}"
        style = BOLD if name == RESIDENT else PLAIN
        lines.append(((text, style), (history.line(at, bars, heap.taken), BARS)))
    return lines
