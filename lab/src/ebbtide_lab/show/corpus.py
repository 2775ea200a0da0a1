# SPDX-License-Identifier: MIT OR Apache-2.0
"""The corpus in two tables: each recording under every allocator, losses first, and the means."""

from dataclasses import dataclass
from statistics import median

from rich.console import Console

from ebbtide_lab.arms.allocators import EBBTIDE, FLOOR, is_peer
from ebbtide_lab.judge import corpus
from ebbtide_lab.judge.verdict import PEAK_RSS
from ebbtide_lab.results.model import Results, Row
from ebbtide_lab.scenarios.model import REPLAY
from ebbtide_lab.show.fit import Grid, codes
from ebbtide_lab.show.units import ABSENT, DIRECTION, short

TO_MB = 1024e-6
MEAN_HEADINGS = ["peer", "own CPU time", "CPU time with the replay's", "peak memory"]


@dataclass(frozen=True)
class Means:
    """A line is a peer and Ebbtide's means over its; the best peer of each row has the last."""

    caption: str
    lines: list[list[str]]


def means_of(rows: list[Row]) -> Means | None:
    """None where no recording was replayed under Ebbtide and a peer."""
    compared = _compared(rows)
    lines = [
        [mean.arm, f"{mean.own_cpu:.3f}", f"{mean.cpu:.3f}", f"{mean.peak:.3f}"]
        for mean in corpus.means(compared)
    ]
    if not lines:
        return None
    best_cpu, best_peak = corpus.best_of_each(compared)
    lines.append(["best peer of each row", f"{best_cpu:.3f}", ABSENT, f"{best_peak:.3f}"])
    recordings = sum(row.scenario.kind == REPLAY for row in rows)
    counted = f"{len(compared)} of {recordings} recordings"
    return Means(f"Geometric means over {counted}: Ebbtide's over each peer's", lines)


def _compared(rows: list[Row]) -> list[Row]:
    return [row for row in corpus.replayed(rows) if EBBTIDE in row.samples]


def print_corpus(results: Results, console: Console) -> None:
    means = means_of(results.rows)
    if means is None:
        return
    rows = _compared(results.rows)
    _print_rows(rows, [arm for arm in corpus.arms_of(rows) if is_peer(arm)], console)
    table = Grid(means.caption, MEAN_HEADINGS, brief={})
    for line in means.lines:
        table.add(*line)
    table.print(console)
    console.print(DIRECTION, style="dim")


def _print_rows(rows: list[Row], peers: list[str], console: Console) -> None:
    table = Grid(
        "Recordings, losses first: own CPU time and peak memory",
        [
            "recording",
            "own ns an event",
            "of the best",
            "peer",
            "peak, MB",
            "of the leanest",
            "peer",
        ],
        brief=codes(peers),
    )
    for row in sorted(rows, key=lambda row: -_cost(row, peers)[0]):
        cost, fastest = _cost(row, peers)
        memory, leanest = _memory(row, peers)
        table.add(
            row.scenario.name,
            short(corpus.own_cpu(row, EBBTIDE)),
            f"{cost:.2f}",
            fastest,
            short(median(row.figure(EBBTIDE, PEAK_RSS)) * TO_MB),
            f"{memory:.2f}",
            leanest,
        )
    table.print(console)
    console.print(
        f"own: without what the replay costs by itself ({FLOOR}). {DIRECTION}", style="dim"
    )


def _cost(row: Row, peers: list[str]) -> tuple[float, str]:
    best = min(peers, key=lambda arm: corpus.own_cpu(row, arm))
    return corpus.own_cpu(row, EBBTIDE) / corpus.own_cpu(row, best), best


def _memory(row: Row, peers: list[str]) -> tuple[float, str]:
    peaks = {arm: median(row.figure(arm, PEAK_RSS)) for arm in (*peers, EBBTIDE)}
    best = min(peers, key=lambda arm: peaks[arm])
    return peaks[EBBTIDE] / peaks[best], best
