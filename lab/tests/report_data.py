# SPDX-License-Identifier: MIT OR Apache-2.0
"""A folder of made-up results with all that a report must cope with."""

import base64
import gzip
import json
import random
import re
import tomllib
from dataclasses import replace
from pathlib import Path

from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.layout import find_root
from ebbtide_lab.results.journal import Journal
from ebbtide_lab.results.model import Histogram, Results, Row, Sample
from ebbtide_lab.scenarios.described import RECORDED
from ebbtide_lab.scenarios.model import REPLAY, Bar, Scenario, load_all
from ebbtide_lab.show.report import files

HOSTILE = "<script>alert('x')</script> & |pipes| *stars* $math$"
SPEEDS = {  # cost of each arm over Ebbtide's
    "ebbtide": 1.0,
    "glibc": 1.62,
    "jemalloc": 1.21,
    "mimalloc": 1.08,
    "tcmalloc": 1.03,
    "mimalloc2": 1.06,
    "mimalloc3": 1.005,
    "snmalloc": 0.99,
    "jemalloc531": 1.19,
    "rpmalloc": 1.31,
    "floor": 0.35,
    "ebbtide-again": 1.0,
}
PEERS = [name for name in SPEEDS if name not in ("ebbtide", "floor", "ebbtide-again")]
RUNS = 7
THREADS = (1, 2, 4, 8)
TIMED = ("request", "soak", "half_freed", "pin", "retire", "atomic_swap")  # tell latencies
WHY_NOT = "reserves more address space than valgrind has"
# Of the set `published`: tables with notes, with arms that do not run, with a failed run.
PUBLISHED_ROWS = ("003-random-mixed", "004-instructions-lanes-small")
FAILURES = {
    "broken": ("ebbtide", "rpmalloc"),
    "larson-t8": ("snmalloc",),
    "003-random-mixed": ("rpmalloc",),
}


def allocators(problem: str = "") -> list[Allocator]:
    known = [
        Allocator(name, None if name == "glibc" else Path(f"/opt/{name}.so"), "1.2.3")
        for name in SPEEDS
    ]
    return [*known, Allocator("scudo", None, problem=problem or "install the package libscudo")]


def scenarios() -> list[Scenario]:
    """Workloads, a family by threads, series, latencies, counts, programs, published rows."""
    plain = [
        Scenario(
            f"random-mixed-{slots}",
            "workload",
            ["random_mixed", "--slots", slots],
            floor=True,
            micro=True,
        )
        for slots in ("400", "4000", "100k", "1m")
    ]
    family = [
        Scenario(
            f"larson-t{count}",
            "workload",
            ["larson", "--threads", str(count), "--ms", "900"],
            micro=True,
        )
        for count in THREADS
    ]
    lanes = [
        Scenario(
            f"lanes-{name}",
            "workload",
            ["lanes", "--sizes", name],
            bars=[Bar("speed", at_least=1.05), Bar("rss", at_most=1.05)],
        )
        for name in ("small", "medium", "mixed")
    ]
    latencies = [
        Scenario(f"tail-{count}", "workload", ["tail", "--threads", str(count)]) for count in (1, 2)
    ]
    idle = [
        Scenario(
            f"burst-idle-{name}",
            "workload",
            ["burst_idle", "--mb", "1024", "--keep", name],
            cost="rss_after_idle_mb",
            bars=[Bar("figure", at_most=3, figure="idle_percent_of_peak")],
        )
        for name in ("none", "some")
    ]
    return [
        *plain,
        *family,
        *lanes,
        *latencies,
        *idle,
        Scenario("hand-off", "workload", ["hand_off", "--remote", "90"], bimodal=True),
        Scenario("start", "start", ["true"], cost="wall", batch=100),
        Scenario("python3", "command", ["python3", "it's.py"], cost="wall", env={"A": "b c"}),
        Scenario(
            "lanes-count",
            "instructions",
            ["lanes"],
            cost="instructions_per_op",
            without={"snmalloc": WHY_NOT, "scudo": WHY_NOT, "nothing-of-this-session": WHY_NOT},
        ),
        Scenario("broken", "workload", ["broken"], micro=True, bars=[Bar("speed", at_least=1)]),
        *(each for each in load_all()["published"].scenarios if each.name in PUBLISHED_ROWS),
    ]


def recordings() -> list[Scenario]:
    return [Scenario(name, REPLAY, [f"{name}.ebt"], floor=True) for name in ("gcc", "jq", "vim")]


def full_session() -> list[Scenario]:
    """The rows of every set that `full` has, and as many recordings as the corpus."""
    sets = [each for each in load_all().values() if not each.apart]
    rows = [row for each in sets for row in each.scenarios]
    recorded = tomllib.loads((find_root() / RECORDED).read_text(encoding="utf-8"))["program"]
    recordings = [Scenario(each["name"], REPLAY, [f"{each['name']}.ebt"]) for each in recorded]
    return [replace(row, without={}) for row in (*rows, *recordings)]


def sample(scenario: Scenario, arm: str, rng: random.Random) -> Sample:
    cost = 8.0 * SPEEDS[arm] * rng.uniform(0.97, 1.03)
    if scenario.name.startswith("lanes") and arm == "tcmalloc":
        cost *= 0.8
    if scenario.bimodal:
        cost *= rng.choice((1.0, 3.0))
    if scenario.cost == "instructions_per_op":
        misses = {"d1_misses_per_op": cost / 8, "ll_misses_per_op": cost / 80}
        return Sample({"instructions_per_op": round(cost * 4, 1), **misses})
    figures = {
        "cpu": cost,
        "wall": cost * 1.02,
        "mops_per_wall_s": 1e3 / cost,
        "peak_rss_kb": float(round(9000 * (2 - 1 / SPEEDS[arm]) * rng.uniform(0.99, 1.01))),
        "minor_faults": float(rng.randrange(900, 1100)),
        "major_faults": 0.0,
        "idle_percent_of_peak": cost / 4,
        "rss_after_idle_mb": 10.0 if arm.startswith("ebbtide") else 60 * cost,
    }
    histograms, series = {}, {}
    if scenario.name.startswith("tail") or scenario.command[0] in TIMED:
        histograms = {name: latencies(arm, rng) for name in ("malloc_ns", "free_ns")}
    if scenario.name.startswith("burst"):
        floor_mb = figures["rss_after_idle_mb"]
        figures |= {"rss_at_peak_mb": 1030.0, "rss_after_free_mb": 1024.0}
        series = {"rss_mb": [1024 - (1024 - floor_mb) * min(1, at / 6) for at in range(11)]}
    return Sample(figures, series, histograms)


def latencies(arm: str, rng: random.Random) -> Histogram:
    """Counts that thin out by the bucket, as those of real latencies do."""
    spread = int(12 * SPEEDS[arm])
    counts = [(spread + at * 9, max(1, 20000 >> at)) for at in range(22)]
    tail = (900 + rng.randrange(400), rng.randrange(1, 4))
    return Histogram(1, 10_000_000_000, 2, [*counts, tail])


def folder(
    where: Path, rows: list[Scenario] | None = None, problem: str = "", runs: int = RUNS
) -> Path:
    """Written by the journal itself, as a session does."""
    rng = random.Random(3)
    arms = allocators(problem)
    journal = Journal(where, arms)
    for scenario in rows if rows is not None else scenarios():
        for arm in arms:
            if arm.problem or (arm.name == "floor" and not scenario.floor):
                continue
            if arm.name in scenario.without:
                continue
            if arm.name in FAILURES.get(scenario.name, ()):
                journal.write("published", scenario, arm.name, f"ended by SIGSEGV: {HOSTILE}")
                continue
            for _ in range(3 if scenario.name == "python3" else runs):
                journal.write("published", scenario, arm.name, sample(scenario, arm.name, rng))
    journal.close()
    return where


def html_of(results: Results) -> str:
    """The page with all that is packed in it, unpacked behind it."""
    text = files.of_results(results)[files.HTML]
    return text + "".join(parts_of(text))


def parts_of(text: str) -> list[str]:
    packed = re.search(r' id="parts">([^<]*)<', text)
    assert packed
    parts: list[str] = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    return parts


def row_of(results: Results, name: str) -> Row:
    return next(row for row in results.rows if row.scenario.name == name)


def made(
    costs: dict[str, list[float]], *bars: Bar, cost: str = "cpu", micro: bool = False
) -> Results:
    """One row with these costs, by arm."""
    rows = {arm: [Sample({cost: value}) for value in found] for arm, found in costs.items()}
    scenario = Scenario("row", "command", ["true"], cost=cost, micro=micro, bars=list(bars))
    arms = [Allocator(name, None, "1") for name in costs]
    return Results([Row("set", scenario, rows)], arms, {"cores": 2})
