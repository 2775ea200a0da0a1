# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb replay` prints: time, memory, and Ebbtide beside the best peer."""

from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.markup import escape

from ebbtide_lab.arms.allocators import EBBTIDE, FLOOR, is_peer
from ebbtide_lab.judge.stats import Ratio, ratio
from ebbtide_lab.measure.replaying import Row
from ebbtide_lab.show.fit import Grid
from ebbtide_lab.show.status import human_bytes
from ebbtide_lab.show.units import ABSENT, DIRECTION, short

RAW = "raw"  # there is no floor to take off
COUNTS = {"instructions": "instructions", "d1_misses": "D1 misses", "ll_misses": "LL misses"}


def print_replays(rows: list[Row], settle_ms: int, console: Console) -> None:
    """The cheapest first; what went wrong comes last, where it is seen."""
    floor_s = _floor(rows, lambda row: row.middle("cpu_s"))
    arms = [row for row in rows if row.arm.name != FLOOR]
    ran = sorted((row for row in arms if row.runs), key=lambda row: row.middle("cpu_s") or 0)
    if ran:
        _print_time(ran, floor_s, console)
        _print_memory(ran, settle_ms, console)
        _print_verdict(ran, floor_s, console)
    _print_failures(rows, console)


def _floor(rows: list[Row], figure: Callable[[Row], float | None]) -> float | None:
    """That of the floor's run; None where it is not built, or failed."""
    return next((figure(row) for row in rows if row.arm.name == FLOOR and not row.failure), None)


def _open(title: str, *headings: str) -> Grid:
    return Grid(title, ["allocator", *headings], brief={})


def _note(text: str, console: Console) -> None:
    console.print(text, style="dim")


def _name(row: Row) -> str:
    return f"{row.arm.name} [red]failed[/]" if row.failure else row.arm.name


def _print_time(rows: list[Row], floor_s: float | None, console: Console) -> None:
    count = max(len(row.runs) for row in rows)
    title = f"Time: median (min..max) of {count} runs" if count > 1 else "Time, one run"
    table = _open(title, "CPU s", "own CPU s", "wall s", "page faults")
    for row in rows:
        own = RAW if floor_s is None else short(_own(row, floor_s)[1])
        cells = [_spread(row), own, short(row.middle("wall_s") or 0)]
        table.add(_name(row), *cells, f"{row.middle('minor_faults'):,.0f}")
    table.print(console)
    if floor_s is not None:
        _note(f"own: without the {short(floor_s)} s of the replay itself", console)


def _own(row: Row, floor_s: float) -> tuple[list[float], float]:
    """CPU seconds of the allocator alone, and their median."""
    own = [max(each - floor_s, 0.0) for each in row.figures("cpu_s")]
    return own, median(own)


def _spread(row: Row) -> str:
    values = row.figures("cpu_s")
    middle = short(median(values))
    if len(values) == 1:
        return middle
    return f"{middle} [dim]({short(min(values))}..{short(max(values))})[/]"


def _print_memory(rows: list[Row], settle_ms: int, console: Console) -> None:
    settled = [f"after {settle_ms} ms"] if settle_ms else []
    headings = ("peak", "peak / live", "mean", "at the end", *settled, "end / live")
    table = _open("Anonymous memory", *headings)
    for row in rows:
        names = ["end_anonymous_bytes", *(["settled_anonymous_bytes"] if settle_ms else [])]
        table.add(
            _name(row),
            _bytes(row, "peak_anonymous_bytes"),
            _times(row.fragmentation(at_end=False)),
            _bytes(row, "mean_anonymous_bytes"),
            *(_bytes(row, name) for name in names),
            _times(row.fragmentation(at_end=True)),
        )
    live = rows[0].runs[0]
    table.print(console)
    peak, end = human_bytes(live["live_peak_bytes"]), human_bytes(live["live_end_bytes"])
    _note(f"live: {peak} at the peak, {end} at the end", console)


def _bytes(row: Row, name: str) -> str:
    return human_bytes(round(row.middle(name) or 0))


def _times(value: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _print_verdict(rows: list[Row], floor_s: float | None, console: Console) -> None:
    """Ratios below 1 are Ebbtide's gains."""
    sound = [row for row in rows if not row.failure]
    ours = next((row for row in sound if row.arm.name == EBBTIDE), None)
    peers = [row for row in sound if is_peer(row.arm.name)]
    if ours is None or not peers:
        return
    for what, values in _costs(floor_s).items():
        best = min(peers, key=lambda row: median(values(row)))
        if min(values(best)) > 0:
            found = ratio(values(ours), values(best))
            console.print(f"{what}: Ebbtide is {_told(found)} of the best peer, {best.arm.name}.")
        else:
            console.print(f"{what}: nothing to compare, {best.arm.name} had runs that took none.")
    _note(DIRECTION, console)


def _costs(floor_s: float | None) -> dict[str, Callable[[Row], list[float]]]:
    cpu = "CPU time" if floor_s is None else "Own CPU time"
    return {
        cpu: lambda row: _own(row, floor_s or 0.0)[0],
        "Peak memory": lambda row: row.figures("peak_anonymous_bytes"),
        "Mean memory": lambda row: row.figures("mean_anonymous_bytes"),
    }


def _told(found: Ratio) -> str:
    if not found.has_interval:
        return f"{found.value:.2f}"
    return f"{found.value:.2f} ({found.low:.2f}..{found.high:.2f})"


def _print_failures(rows: list[Row], console: Console) -> None:
    for row in rows:
        if row.failure:
            why = f"[red]failed[/] under {row.arm.name}: {escape(row.failure)}"
            console.print(why, soft_wrap=True)


# --- under callgrind --------------------------------------------------------------------


def print_counts(rows: list[Row], console: Console) -> None:
    floor = _floor(rows, lambda row: row.counts.get("instructions"))
    table = _open("An event costs", *COUNTS.values(), "own instructions")
    counted = [row for row in rows if row.counts and row.arm.name != FLOOR]
    for row in sorted(counted, key=lambda row: row.counts["instructions"]):
        own = RAW if floor is None else f"{row.counts['instructions'] - floor:.1f}"
        figures = (row.counts["instructions"], *(row.counts[name] for name in list(COUNTS)[1:]))
        table.add(row.arm.name, *map(short, figures), own)
    table.print(console)
    _print_failures(rows, console)
