# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is true of all rows together: the matrices, the means, the bars."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_AGAIN, FLOOR
from ebbtide_lab.judge import verdict
from ebbtide_lab.results.model import Results, Row
from ebbtide_lab.show.report.cells import (
    FAILED,
    LOSS,
    NOT_RUN,
    NOTHING,
    Cell,
    Ratios,
    Table,
    interval,
    not_run,
    ratio_cell,
    written,
)
from ebbtide_lab.show.report.corpus import mean_table
from ebbtide_lab.show.units import ABSENT, DIRECTION, short, shown, unit_of


def in_order(rows: list[Row], ratios: Ratios) -> list[Row]:
    """What failed, then the losses, then the rest, each by the best peer's ratio."""

    def key(row: Row) -> tuple[bool, bool, float]:
        peers = verdict.peers_of(row)
        most = max((each.value for peer in peers if (each := ratios.of(row, peer))), default=0.0)
        return EBBTIDE not in row.failures, not losses([row], ratios), -most

    return sorted(rows, key=key)


def anchors(keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A name in the page for each row, by its set and name."""
    taken: Counter[str] = Counter()
    found = {}
    for group, name in keys:
        slug = "w-" + re.sub(r"[^a-z0-9]+", "-", f"{group}-{name}".lower()).strip("-")
        taken[slug] += 1
        suffix = f"-{taken[slug]}" if taken[slug] > 1 else ""
        found[group, name] = slug + suffix
    return found


def keys_of(rows: list[Row]) -> list[tuple[str, str]]:
    return [(row.group, row.scenario.name) for row in rows]


def columns(results: Results, rows: list[Row]) -> list[str]:
    """The arms that ran or failed in these rows, in the order of the session; each is
    compared with Ebbtide, so neither Ebbtide nor its second arm nor the floor is among them."""
    present = {name for row in rows for name in (*row.samples, *row.failures, *row.refusals)}
    compared = present - {EBBTIDE, EBBTIDE_AGAIN, FLOOR}
    return [arm.name for arm in results.arms if arm.name in compared]


def matrices(results: Results, rows: list[Row], ratios: Ratios, figure: str = "") -> list[Table]:
    """Workload by allocator, then workload of reclamation by scheme: they have no arm but
    Ebbtide in common. By the cost of each row, or by one figure for all."""
    parts = [[row for row in rows if _of_schemes(row) == schemes] for schemes in (False, True)]
    return [_matrix(results, part, ratios, figure) for part in parts if part] or [
        _matrix(results, [], ratios, figure)
    ]


def _of_schemes(row: Row) -> bool:
    return row.scenario.kind == "scheme"


def _matrix(results: Results, rows: list[Row], ratios: Ratios, figure: str) -> Table:
    arms = columns(results, rows)
    found = anchors(keys_of(results.rows))
    kept = [row for row in rows if not figure or row.figure(EBBTIDE, figure)]
    several = len({row.group for row in rows}) > 1
    body = [
        [
            Cell(
                row.scenario.name,
                row.group if several else "",
                link=found[row.group, row.scenario.name],
            ),
            own_cell(row, figure),
            *(_matrix_cell(row, arm, ratios, figure) for arm in arms),
            _noise_cell(row, ratios, figure),
        ]
        for row in kept
    ]
    what = "Peak resident memory" if figure else "Cost"
    what += " of reclamation" if rows and _of_schemes(rows[0]) else ""
    caption = f"{what}: Ebbtide's over the allocator's"
    heads = ["workload", EBBTIDE, *arms, "A/A"]
    return Table(caption, heads, body, shades=True, foot=DIRECTION)


def own_cell(row: Row, figure: str) -> Cell:
    if EBBTIDE in row.failures:
        return Cell("failed", state=FAILED)
    values = row.costs(EBBTIDE, figure or None)
    if not values:
        return NOTHING
    if figure:
        return Cell(f"{median(values) * 1024e-6:.1f}", "MB")
    return Cell(short(median(shown(row, values))), unit_of(row))


def _matrix_cell(row: Row, arm: str, ratios: Ratios, figure: str) -> Cell:
    if arm in row.failures:
        return Cell("failed", state=FAILED)
    if arm in row.not_run:
        return Cell(ABSENT, not_run(row.not_run[arm]), NOT_RUN)
    return ratio_cell(ratios.of(row, arm, figure))


def _noise_cell(row: Row, ratios: Ratios, figure: str) -> Cell:
    found = ratios.of(row, EBBTIDE_AGAIN, figure)
    if not found:
        return NOTHING
    return Cell(written(found.value), interval(found))


# --- means ------------------------------------------------------------------------


@dataclass(frozen=True)
class Means:
    """The geometric means over the corpus, and over the micro set with what is said of it;
    no table for what was not measured."""

    corpus: Table | None
    summary: list[str]
    table: Table | None


def means(results: Results) -> Means:
    corpus = mean_table(results.rows)
    micro = [row for row in results.rows if row.scenario.micro]
    if not micro:
        lack = "No row of the micro set was measured: there is no mean."
        return Means(corpus, [] if corpus else [lack], None)
    counted = [row for row in micro if _counts(row)]
    found = verdict.geometric_means(results.rows)
    summary = [_counted(counted, micro), _bar_of(found)]
    return Means(corpus, summary, _mean_table(results, counted, found))


def _counts(row: Row) -> bool:
    """As the verdict has it: Ebbtide ran, and at least one peer."""
    return bool(row.costs(EBBTIDE)) and any(row.costs(peer) for peer in verdict.peers_of(row))


def _counted(counted: list[Row], micro: list[Row]) -> str:
    said = f"{len(counted)} of the {len(micro)} rows of the micro set that were measured count"
    names = ", ".join(row.scenario.name for row in counted)
    left = ", ".join(row.scenario.name for row in micro if row not in counted)
    without = f" Not among them, as Ebbtide or every peer has no figure: {left}." if left else ""
    return f"{said}: {names}.{without}" if counted else f"{said}.{without}"


def _bar_of(found: dict[str, float]) -> str:
    """The bar is on the fastest of the peers."""
    bar = f"Claim: at most {verdict.MICRO_AT_MOST:.4f} on the best single peer"
    if not found:
        return (
            f"Micro set: no peer ran in every row that counts, so there is no mean. {bar}: missed."
        )
    best, worst = max(found, key=found.__getitem__), min(found, key=found.__getitem__)
    word = "held" if found[best] <= verdict.MICRO_AT_MOST else "missed"
    return (
        "Micro set, geometric mean of Ebbtide's time over a peer's: "
        f"from {_told(found[best])} ({best}) to {_told(found[worst])} ({worst}). "
        f"{bar}, {best}: {word}."
    )


def _told(mean: float) -> str:
    """Two places, or as many more as it takes not to seem to meet a bar that it misses."""
    seems = round(mean, 2) <= verdict.MICRO_AT_MOST
    return f"{mean:.2f}" if seems == (mean <= verdict.MICRO_AT_MOST) else f"{mean:.4f}"


def _mean_table(results: Results, counted: list[Row], found: dict[str, float]) -> Table:
    """The best peer first. A peer that lacks a row has no mean: it would be of other rows."""
    body = [
        [Cell(peer), Cell(_told(mean), state=LOSS if mean > 1 else ""), Cell(str(len(counted)))]
        for peer, mean in found.items()
    ]
    for peer in columns(results, [row for row in results.rows if not _of_schemes(row)]):
        if peer not in found:
            ran = sum(bool(row.costs(peer)) for row in counted)
            body.append([Cell(peer), NOTHING, Cell(f"ran in {ran} of {len(counted)}")])
    caption = "Geometric mean of Ebbtide's time over each peer's"
    return Table(caption, ["allocator", "mean", "rows"], body, foot=DIRECTION)


# --- losses and bars ----------------------------------------------------------------


def losses(rows: list[Row], ratios: Ratios, figure: str = "") -> list[tuple[Row, str, Cell]]:
    """Each row that a peer wins, with the peer that wins by most."""
    found = []
    for row in rows:
        cells = {peer: ratio_cell(ratios.of(row, peer, figure)) for peer in verdict.peers_of(row)}
        lost = {peer: cell for peer, cell in cells.items() if cell.state == LOSS}
        if lost:
            worst = max(lost, key=lambda peer: float(lost[peer].text))
            found.append((row, worst, lost[worst]))
    return sorted(found, key=lambda each: -float(each[2].text))


def bars(rows: list[Row], anchor: dict[tuple[str, str], str]) -> Table | None:
    """The bars of all rows, the missed ones first."""
    body = [
        [Cell(row.scenario.name, link=anchor[row.group, row.scenario.name]), *cells]
        for row in rows
        for cells in bars_of(row, rows)
    ]
    if not body:
        return None
    body.sort(key=lambda cells: cells[-1].text != "missed")
    return Table(
        "Claims that were set before measuring",
        ["workload", "claim", "figure", "peer", "verdict"],
        body,
        foot=DIRECTION,
    )


def bars_of(row: Row, rows: list[Row]) -> list[list[Cell]]:
    return [_bar_cells(verdict.judge(row, bar, rows)) for bar in row.scenario.bars]


def _bar_cells(outcome: verdict.Outcome) -> list[Cell]:
    value = f"{outcome.value:.3f}" if outcome.value is not None else outcome.why or ABSENT
    word = Cell("held") if outcome.holds else Cell("missed", state=LOSS)
    return [Cell(outcome.claim), Cell(value), Cell(outcome.best or ABSENT), word]
