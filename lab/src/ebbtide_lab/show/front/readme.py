# SPDX-License-Identifier: MIT OR Apache-2.0
"""The README's figures: each stands between two marks and is written anew from the summaries."""

import re

from ebbtide_lab.arms.allocators import EBBTIDE
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.results.sessions import Session
from ebbtide_lab.results.summary import LOSES, NOISE, WINS, Series, Summary
from ebbtide_lab.show.front import words

BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.S)
# Chosen by what they are: two databases, a server, two interpreters, a compiler.
PROGRAMS = ("redis-server", "postgres", "nginx", "python3", "node", "clang")
LISTED = 3  # losses that are named
BURST, CORPUS = "burst", "corpus"


def of_set(sessions: list[Session], name: str) -> Session:
    """The newest session of a set."""
    for session in sessions:
        if name in session.summary.sets:
            return session
    raise LabError(f"results/ holds no session of the set {name}")


def burst_series(summary: Summary) -> Series:
    """What is drawn: without Ebbtide's second arm."""
    [series] = summary.series.values()
    shown = {
        arm: mb for arm, mb in series.mb.items() if arm == EBBTIDE or arm in words.peers(summary)
    }
    return Series(series.step_s, series.runs, shown)


def blocks(sessions: list[Session]) -> dict[str, str]:
    burst, corpus = (of_set(sessions, name).summary for name in (BURST, CORPUS))
    return {
        "tide": _tide(burst),
        "corpus": _corpus(corpus),
        "programs": _programs(corpus),
        "losses": _losses(corpus),
    }


def fill(text: str, blocks: dict[str, str]) -> str:
    found = [name for _, name, _ in BLOCK.findall(text)]
    if sorted(found) != sorted(blocks):
        raise LabError(f"README has the blocks {found}, the lab writes {[*blocks]}")
    return BLOCK.sub(lambda block: f"{block[1]}{blocks[block[2]]}\n{block[3]}", text)


def _tide(summary: Summary) -> str:
    series = burst_series(summary)
    ends = {arm: f"{mb[-1]:,.0f}" for arm, mb in series.mb.items()}
    others = ", ".join(f"{_family(summary, arm)} {ends[arm]}" for arm in ends if arm != EBBTIDE)
    seconds = round((len(series.mb[EBBTIDE]) - 2) * series.step_s)
    return (
        "Eight threads fill 1 GB with small blocks, free all of them, and sleep. "
        f"{seconds} seconds later Ebbtide keeps {ends[EBBTIDE]} MB resident, {others} MB "
        f"(medians of {series.runs} runs)."
    )


def _corpus(summary: Summary) -> str:
    cost, peak = (words.counts(summary, kind) for kind in ("cost", "peak"))
    machine, _, _ = summary.where.partition(", Linux")
    return (
        f"{len(summary.workloads)} recordings of programs, replayed under each allocator "
        f"({machine}).\n\n"
        f"- **CPU time**: of {sum(cost.values())} comparisons with a peer, Ebbtide wins "
        f"{cost[WINS]}, loses {cost[LOSES]}; {cost[NOISE]} are within noise.\n"
        f"- **Peak memory**: it wins {peak[WINS]}, loses {peak[LOSES]}; "
        f"{peak[NOISE]} are within noise."
    )


def _programs(summary: Summary) -> str:
    known = {each.name: each for each in summary.workloads}
    rows = []
    for name in PROGRAMS:
        each = known[name]
        figures = [each.own.split()[0], each.own_peak.split()[0]]
        ratios = [_short(words.best(table), summary) for table in (each.cost, each.peak)]
        rows.append([name, figures[0], ratios[0], figures[1], ratios[1]])
    heads = [
        "program",
        "CPU, ns an event",
        "of the fastest peer's",
        "peak, MB",
        "of the leanest peer's",
    ]
    return (
        f"{words.table(heads, rows)}\n\n"
        "A ratio is Ebbtide's over the peer's: below 1 Ebbtide needs less. "
        "▼ Ebbtide loses, ≈ within noise."
    )


def _short(found: words.Best | None, summary: Summary) -> str:
    if found is None:
        raise LabError("a program of the README has no peer")
    mark = words.MARKS.get(found.ratio.state, "")
    return f"{mark}{words.number(found.ratio.value)} {_family(summary, found.arm)}"


def _family(summary: Summary, arm: str) -> str:
    return words.name_of(summary, arm).split()[0]


def _losses(summary: Summary) -> str:
    lines = []
    for kind, what in (("cost", "CPU time"), ("peak", "Peak memory")):
        lost = words.losses(summary, kind)
        named = ", ".join(
            f"{each.name} {words.number(loss.ratio.value)} of {_family(summary, loss.arm)}"
            for each, loss in lost[:LISTED]
        )
        lines.append(f"- **{what}**, {len(lost)} of the recordings; the worst: {named}.")
    return "\n".join(lines)
