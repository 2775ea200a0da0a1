# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb record` and `ebb trace info` print."""

from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ebbtide_lab.measure.recording import Recording, Run
from ebbtide_lab.measure.tracing import Info
from ebbtide_lab.show.status import human_bytes
from ebbtide_lab.show.units import short

EIGHTHS = "▏▎▍▌▋▊▉█"
STEPS = "▁▂▃▄▅▆▇█"
PLOT_ROWS = 8
BAR_MOST = 60
SIDE = 12  # of the plot: its labels


def print_recordings(found: list[Recording], console: Console) -> None:
    table = Table(title="Recordings", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("file", overflow="fold")
    table.add_column("program", overflow="fold")
    for heading in ("events", "threads", "bytes an event", "peak live"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found:
        info = each.info
        table.add_row(
            escape(str(each.path)),
            escape(info.name),
            f"{info.events:,}",
            str(info.threads),
            f"{info.bytes_per_event:.2f}",
            human_bytes(info.peak_bytes),
        )
    console.print(table)


def print_overhead(recorded: Run, plain: Run, console: Console) -> None:
    ratio = f": {recorded.cpu_s / plain.cpu_s:.2f} times" if plain.cpu_s > 0 else ""
    console.print(
        f"CPU time {recorded.cpu_s:.3f} s recorded, {plain.cpu_s:.3f} s unrecorded{ratio}."
    )


# --- one recording --------------------------------------------------------------------


def print_info(info: Info, console: Console) -> None:
    process = f", process {info.pid}" if info.pid else ""
    console.print(f"[bold]{escape(info.name)}[/]{process}", highlight=False)
    if info.command:
        console.print(escape(info.command), style="dim", overflow="fold", highlight=False)
    for line in sentences(info):
        console.print(line, highlight=False)
    print_histogram("Sizes of the objects made and resized", size_rows(info), console)
    print_histogram("Lifetimes of the objects that ended, in events", lifetime_rows(info), console)
    print_live(info, console)


def sentences(info: Info) -> list[str]:
    """The figures in words, for the terminal and the page."""
    made = info.mallocs + info.callocs + info.aligned
    ended = info.frees + info.reallocs
    share = f", {info.between_threads / ended:.1%} of the objects that ended" if ended else ""
    lines = [
        f"{info.events:,} events of {count_of(info.threads, 'thread')} in "
        f"{info.microseconds * 1e-6:.3f} s; the file has {human_bytes(info.file_bytes)}, "
        f"{info.bytes_per_event:.2f} bytes an event.",
        f"{made:,} objects made ({info.mallocs:,} by malloc, {info.callocs:,} by calloc, "
        f"{info.aligned:,} aligned), {info.reallocs:,} resized, {info.frees:,} freed.",
        f"Hand-overs: {info.between_threads:,} objects ended in another thread than they were "
        f"made{share}.",
        f"Live: {human_bytes(info.peak_bytes)} in {info.peak_objects:,} objects at the peak, "
        f"{human_bytes(info.end_bytes)} at the end.",
    ]
    if info.lost:
        lines.append(f"Lost: {info.lost:,} calls of signal handlers inside of malloc.")
    return lines


def count_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_rows(info: Info) -> list[tuple[str, int]]:
    return _rows(info.sizes, lambda power: human_bytes(1 << power))


def lifetime_rows(info: Info) -> list[tuple[str, int]]:
    return _rows(info.lifetimes, lambda power: f"{1 << power:,}")


def _rows(counts: list[int], label: Callable[[int], str]) -> list[tuple[str, int]]:
    """Powers of two with their counts, from the first to the last that has any."""
    used = [power for power, count in enumerate(counts) if count]
    powers = range(used[0], used[-1] + 1) if used else range(0)
    return [(f"up to {label(power)}", counts[power]) for power in powers]


def print_histogram(title: str, rows: list[tuple[str, int]], console: Console) -> None:
    console.print(f"\n[bold]{title}[/]")
    if not rows:
        console.print("none")
        return
    total, most = sum(count for _, count in rows), max(count for _, count in rows)
    left = max(len(label) for label, _ in rows)
    right = max(len(_figure(count, total)) for _, count in rows)
    room = min(BAR_MOST, console.width - left - right - 4)
    for label, count in rows:
        drawn = bar(count / most, room)
        text = f"{label:>{left}}  {drawn:<{room}}  {_figure(count, total):>{right}}"
        console.print(text, highlight=False, no_wrap=True)


def _figure(count: int, total: int) -> str:
    return f"{count:,} {count / total:6.1%}"


def bar(share: float, room: int) -> str:
    """As long as its share of the room, to an eighth; what is there at all is seen."""
    eighths = max(round(share * room * 8), 1 if share > 0 else 0)
    return EIGHTHS[-1] * (eighths // 8) + (EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")


def print_live(info: Info, console: Console) -> None:
    step = info.events // max(len(info.live_bytes), 1)
    console.print(f"\n[bold]Live bytes over time[/], looked at every {count_of(step, 'event')}")
    columns = spread(info, console.width - SIDE - 2)
    most = max(columns, default=0)
    if not most:
        console.print("none")
        return
    for row in range(PLOT_ROWS - 1, -1, -1):
        label = {PLOT_ROWS - 1: human_bytes(most), 0: "0"}.get(row, "")
        steps = "".join(_step(value / most * PLOT_ROWS - row) for value in columns)
        console.print(f"{label:>{SIDE}} {steps}", highlight=False, no_wrap=True)
    end = f"{short(info.microseconds * 1e-6)} s"
    console.print(f"{'':{SIDE}} 0{end:>{len(columns) - 1}}", highlight=False, no_wrap=True)


def _step(height: float) -> str:
    """What a column of this height, in rows, shows of one row."""
    eighths = min(round(height * 8), 8)
    return STEPS[eighths - 1] if eighths > 0 else " "


def spread(info: Info, columns: int) -> list[int]:
    """The most that was live in each of so many equal parts of the time; a part without a
    sample has what was live before it."""
    parts: list[list[int]] = [[] for _ in range(columns)]
    end = max(at_us for at_us, _ in info.live) + 1
    for at_us, live in info.live:
        parts[at_us * columns // end].append(live)
    heights, last = [], 0
    for part in parts:
        heights.append(max(part, default=last))
        last = part[-1] if part else last
    return heights
