# SPDX-License-Identifier: MIT OR Apache-2.0
"""The corpus in two tables: each recording under every allocator, losses first, and the means."""

from statistics import median

from rich.console import Console

from ebbtide_lab.arms.allocators import EBBTIDE, FLOOR
from ebbtide_lab.judge import corpus
from ebbtide_lab.judge.verdict import PEAK_RSS
from ebbtide_lab.results.model import Results, Row
from ebbtide_lab.show.fit import Grid
from ebbtide_lab.show.units import DIRECTION, short

TO_MB = 1024e-6


def print_corpus(results: Results, console: Console) -> None:
    """Nothing where no recording was replayed under Ebbtide and the reference."""
    rows = [row for row in corpus.replayed(results.rows) if EBBTIDE in row.samples]
    found = corpus.means(rows)
    peers = [mean.arm for mean in found if mean.arm != EBBTIDE]
    if EBBTIDE not in {mean.arm for mean in found} or not peers:
        return
    _print_rows(rows, peers, console)
    table = Grid(
        f"Geometric means over {len(rows)} recordings, of {corpus.REFERENCE}'s",
        ["allocator", "own CPU time", "CPU time with the replay's", "peak memory"],
    )
    for mean in found:
        table.add(mean.arm, f"{mean.own_cpu:.3f}", f"{mean.cpu:.3f}", f"{mean.peak:.3f}")
    best_cpu, best_peak = corpus.best_of_each(rows, EBBTIDE)
    table.add("best peer of each row", f"{best_cpu:.3f}", "", f"{best_peak:.3f}")
    table.print(console)


def _print_rows(rows: list[Row], peers: list[str], console: Console) -> None:
    table = Grid(
        "Recordings, losses first: own CPU time and peak memory",
        ["recording", "own ns an event", "of the best peer", "", "peak, MB", "of the leanest", " "],
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
