# SPDX-License-Identifier: MIT OR Apache-2.0
"""Turns results into what a page needs: sentences, tables, charts; losses first."""

from dataclasses import dataclass
from datetime import datetime

from ebbtide_lab.arms.allocators import (
    EBBTIDE,
    EBBTIDE_AGAIN,
    EBBTIDE_WAYS,
    FLOOR,
    UNSAFE,
    WITH,
    Allocator,
    is_peer,
)
from ebbtide_lab.judge import verdict
from ebbtide_lab.results.model import Results, Row
from ebbtide_lab.show.published import LEGEND
from ebbtide_lab.show.report import matrix, published
from ebbtide_lab.show.report.cells import (
    ALONE,
    GAIN,
    LOSS,
    NOISE,
    Cell,
    Ratios,
    Table,
    ratio_cell,
)
from ebbtide_lab.show.report.scaling import scaling
from ebbtide_lab.show.report.workload import Chart, Section, section
from ebbtide_lab.show.units import ABSENT

ENOUGH_RUNS = 5
AGREED_NOISE = 0.9  # the share of rows whose A/A interval must contain 1.00
PUBLISHED_LEGEND = (
    f"What five earlier systems published, beside what the same work gives here. {LEGEND}"
)
GLOSSARY = {
    "ratio": "Ebbtide's cost divided by an allocator's, each the median of its runs; "
    "cost is time, memory or a count, of which less is better: below 1 Ebbtide is better.",
    "interval": "In brackets, [least..most]: where the ratio lies in 95 of 100 redraws "
    "of the runs (percentile bootstrap); fewer than five runs make it too narrow, "
    "fewer than three give none.",
    "within noise": "The interval, as printed, contains 1.00: these runs do not tell "
    "the two allocators apart.",
    "A/A": "Ebbtide against itself as if it were another allocator; how far its interval "
    "strays from 1.00 is what this machine makes of no difference at all.",
    "floor": "A stand-in that hands out memory from a warm ring and frees nothing: "
    "what the benchmark itself costs.",
    "own cost": "An allocator's cost less the floor's: what is left is the allocator's.",
    "peak RSS": "The most memory that was resident at any time of the run (VmHWM); "
    "of a replay, the most anonymous memory, which is the allocator's.",
    "two modes": "The runs fall into two separate groups, often by where the kernel "
    "placed the threads; then a median alone says little.",
    "claim": "A limit that was written down before measuring; missed ones come first.",
}


@dataclass(frozen=True)
class Notice:
    """What a reader must know before the first figure."""

    what: str
    why: str


@dataclass(frozen=True)
class Loss:
    workload: str
    anchor: str
    text: str


@dataclass(frozen=True)
class Page:
    title: str
    session: list[str]
    tally: str
    noise: str
    warnings: list[Notice]
    losses: list[Loss]
    memory_losses: list[Loss]
    means: matrix.Means
    costs: list[Table]
    memory: list[Table]
    bars: Table | None
    scaling: list[Chart]
    published: list[published.Document]
    published_legend: str
    sections: list[Section]
    machine: Table
    allocators: Table
    glossary: dict[str, str]
    schema: str
    date: str

    @property
    def summary(self) -> list[str]:
        """What the Markdown begins with."""
        told = (*self.session, *self.means.summary[-1:], self.tally, self.noise)
        return [each for each in told if each]


def page(results: Results, ratios: Ratios | None = None) -> Page:
    ratios = ratios or Ratios()
    rows = matrix.in_order(results.rows, ratios)
    anchor = matrix.anchors(matrix.keys_of(results.rows))
    facts = {name: str(value) for name, value in results.facts.items()}
    means = matrix.means(results)
    peers = sum(map(is_peer, matrix.columns(results, results.rows)))
    return Page(
        title=title_of(peers),
        session=_session(results),
        tally=_tally(results, ratios),
        noise=_noise(results, ratios),
        warnings=_warnings(results),
        losses=_losses(rows, ratios, anchor),
        memory_losses=_losses(rows, ratios, anchor, verdict.PEAK_RSS),
        means=means,
        costs=matrix.matrices(results, rows, ratios),
        memory=matrix.matrices(results, rows, ratios, verdict.PEAK_RSS),
        bars=matrix.bars(rows, anchor),
        scaling=scaling(results, facts.get("cores", "?")),
        published=published.documents(results),
        published_legend=PUBLISHED_LEGEND,
        sections=[
            section(row, results, ratios, anchor[row.group, row.scenario.name]) for row in rows
        ],
        machine=machine_table(facts),
        allocators=allocator_table(results.arms),
        glossary=GLOSSARY,
        schema=facts.get("schema", ABSENT),
        date=facts.get("date", ABSENT),
    )


def title_of(peers: int) -> str:
    return f"Ebbtide beside {peers} allocator{'s' if peers != 1 else ''}"


# --- the top of the page ----------------------------------------------------------------


def _session(results: Results) -> list[str]:
    facts = results.facts
    groups = ", ".join(dict.fromkeys(row.group for row in results.rows))
    runs = sum(len(each) for row in results.rows for each in row.samples.values())
    return [
        f"{len(results.rows)} workload{'s' if len(results.rows) != 1 else ''} "
        f"(sets: {groups}) in {runs} runs, the allocators in turn, "
        f"measured {_day(facts)}.",
        f"{facts.get('cpu', ABSENT)}, {facts.get('cores', ABSENT)} cores, "
        f"Linux {facts.get('kernel', ABSENT)}, glibc {facts.get('glibc', ABSENT)}. "
        f"Nothing is claimed beyond {facts.get('cores', ABSENT)} cores, nor for another machine.",
    ]


def _day(facts: dict[str, object]) -> str:
    """The date as one reads it; as it stands when it is none."""
    text = str(facts.get("date", ABSENT))
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{date.day} {date:%B %Y at %H:%M} UTC"


def _tally(results: Results, ratios: Ratios) -> str:
    states = [
        ratio_cell(ratios.of(row, peer)).state
        for row in results.rows
        for peer in verdict.peers_of(row)
        if ratios.of(row, peer)
    ]
    lost, even, won, alone = (states.count(each) for each in (LOSS, NOISE, GAIN, ALONE))
    untold = f" {alone} rest on fewer than three runs and tell nothing." if alone else ""
    return (
        f"Of {len(states)} comparisons with a peer Ebbtide loses {lost}, "
        f"{even} are within noise, and it wins {won}.{untold}"
    )


def _noise(results: Results, ratios: Ratios) -> str:
    compared = [ratio for row in results.rows if (ratio := ratios.of(row, EBBTIDE_AGAIN))]
    found = [ratio for ratio in compared if ratio.has_interval]
    if not found:
        return "Ebbtide against itself has no three runs: how noisy the machine was is not known."
    good = sum(each.contains(1.0) for each in found)
    share = good / len(found)
    judged = "as it should be" if share >= AGREED_NOISE else "below the 90 % that we ask for"
    return (
        f"Noise: Ebbtide against itself contains 1.00 in {good} of {len(found)} workloads "
        f"({share:.0%}), {judged}."
    )


def _warnings(results: Results) -> list[Notice]:
    missing = [Notice(f"{arm.name} is missing", arm.problem) for arm in results.arms if arm.problem]
    failed = [
        Notice(f"{arm} failed in {row.scenario.name}", why)
        for row in results.rows
        for arm, why in row.failures.items()
    ]
    own_first = sorted(failed, key=lambda each: not each.what.startswith(f"{EBBTIDE} "))
    return [*own_first, *missing, *_thin(results.rows)]


def _thin(rows: list[Row]) -> list[Notice]:
    """Rows with too few runs for an interval, and rows that were cut short."""
    few = [row for row in rows if row.samples and _least_runs(row) < ENOUGH_RUNS]
    uneven = [row for row in rows if len({len(each) for each in row.samples.values()}) > 1]
    found = []
    if few:
        why = "their intervals are narrower than they should be: " + _names(few)
        found.append(Notice(f"Fewer than 5 runs in {len(few)} of {len(rows)} workloads", why))
    if uneven:
        why = "the session was interrupted or an allocator failed midway: " + _names(uneven)
        found.append(Notice("Some allocators have fewer runs than others", why))
    return found


def _least_runs(row: Row) -> int:
    return min(len(each) for each in row.samples.values())


def _names(rows: list[Row]) -> str:
    return ", ".join(row.scenario.name for row in rows)


def _losses(
    rows: list[Row], ratios: Ratios, anchor: dict[tuple[str, str], str], figure: str = ""
) -> list[Loss]:
    failed = [
        Loss(row.scenario.name, anchor[row.group, row.scenario.name], "Ebbtide failed")
        for row in rows
        if EBBTIDE in row.failures
    ]
    return failed + [
        Loss(
            row.scenario.name,
            anchor[row.group, row.scenario.name],
            f"{cell.text} {cell.note} of what {peer} needs",
        )
        for row, peer, cell in matrix.losses(rows, ratios, figure)
    ]


# --- the end of the page ----------------------------------------------------------------


def machine_table(facts: dict[str, str]) -> Table:
    body = [[Cell(name.replace("_", " ")), Cell(value)] for name, value in facts.items()]
    return Table("The machine, read when the session began", ["what", "value"], body, prose=True)


def allocator_table(arms: list[Allocator]) -> Table:
    body = [
        [
            Cell(arm.name),
            Cell(arm.version or ABSENT),
            Cell(str(arm.path or "the program's own")),
            Cell(f"missing: {arm.problem}" if arm.problem else _part(arm.name)),
        ]
        for arm in arms
    ]
    heads = ["allocator", "version", "shared object", "part"]
    return Table("Allocators, as each told its version when it was loaded", heads, body, prose=True)


def _part(arm: str) -> str:
    said = {
        EBBTIDE: "measured",
        EBBTIDE_AGAIN: "A/A: the noise",
        FLOOR: "floor: the harness",
        **dict.fromkeys(EBBTIDE_WAYS, "measured: another way to reclaim"),
    }
    if arm.startswith(f"{UNSAFE}/"):
        return "no reclamation: unsafe, what a scheme can at best come to"
    if arm.startswith(f"{EBBTIDE}{WITH}"):
        return "measured: memory grouped by phase"
    return said.get(arm, "peer")
