# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arms that group memory by phase, and the programs that they run: bench/lifetimes, request."""

import io
import json
import os
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from conftest import LIFETIMES, arm, sample
from rich.console import Console

from ebbtide_lab.arms import allocators, schemes, ways
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import LabError, RunError
from ebbtide_lab.base.layout import Layout, find_root
from ebbtide_lab.judge import compare, verdict
from ebbtide_lab.machine import card
from ebbtide_lab.measure import execute
from ebbtide_lab.measure.session import plan
from ebbtide_lab.results.model import Results, Row, Sample, same_work
from ebbtide_lab.scenarios.model import Scenario, ScenarioSet
from ebbtide_lab.show import tables
from ebbtide_lab.show.report import markdown
from ebbtide_lab.show.report import model as report
from ebbtide_lab.show.report.cells import Ratios
from ebbtide_lab.show.report.workload import section

SCOPED = Scenario("requests", "workload", ["request", "--requests", "200"], scoped=True)
PLAIN = replace(SCOPED, name="plain", scoped=False)
TINY = {
    "lifetimes/object": ["--iters", "100"],
    "lifetimes/open": ["--iters", "1000"],
    "lifetimes/release": ["--mb", "20", "--watch-ms", "1000"],
    "lifetimes/slack": ["--regions", "100"],
    "request": ["--requests", "200"],
}


# --- names ---------------------------------------------------------------------------


def test_an_arm_with_a_way_is_the_allocator_with_options(layout: Layout) -> None:
    found = schemes.find("ebbtide+batch-100", Layout.of(None, None))
    plain = allocators.find("ebbtide", Layout.of(None, None))
    assert (found.path, found.version, found.scheme) == (plain.path, plain.version, "")
    assert (found.name, found.way) == ("ebbtide+batch-100", "batch-100")
    assert ways.options(found.way) == ["--scope", "1", "--every", "100"]
    assert ways.options("") == []
    assert ways.options("heap") == ["--scope", "3", "--every", "1", "--free", "0"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ebbtide+charm", "no way is called 'charm'; there are per-request, "),
        ("ebbtide+batch-0", "no way is called 'batch-0'"),
        ("ebbtide+batch-1e6", "no way is called 'batch-1e6'"),
        ("ebbtide+heap", "the way heap is of mimalloc, not of ebbtide"),
        ("ebbtide-again+never", "the way never is of ebbtide, not of ebbtide-again"),
        ("mimalloc+never", "the way never is of ebbtide, not of mimalloc"),
        ("glibc+arena", "the way arena is of jemalloc, not of glibc"),
        ("mimalloc9+heap", "no allocator is called 'mimalloc9'"),
    ],
)
def test_ways_that_mean_nothing_are_clear_errors(layout: Layout, name: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        schemes.find(name, layout)


def test_ebbtide_is_no_peer_of_itself_whatever_its_way() -> None:
    assert not allocators.is_peer("ebbtide+never")
    assert allocators.is_peer("mimalloc+heap")
    samples = {"ebbtide": 2.0, "ebbtide+never": 1.0, "mimalloc": 4.0, "mimalloc+heap": 3.0}
    row = Row("set", SCOPED, {name: [Sample({"cpu": cost})] for name, cost in samples.items()})
    assert verdict.best_peer(row) == "mimalloc+heap"


def test_ebbtides_ways_tell_nothing_of_the_machines_drift() -> None:
    names = ("ebbtide", "ebbtide+never", "jemalloc+arena", "mimalloc")
    rows = [Row("set", SCOPED, {name: [sample(2.0), sample(2.1)] for name in names})]
    session = Results(rows, [arm(name) for name in names], {})
    (change, *_) = compare.compare(session, session, "ebbtide", 0.02).changes
    assert change.peers == 2


# --- plans ---------------------------------------------------------------------------


def _planned(*scenarios: Scenario) -> set[tuple[str, str]]:
    arms = [arm("ebbtide"), replace(arm("ebbtide+never"), way="never"), arm("glibc")]
    group = ScenarioSet("set", "", [each.name for each in arms], list(scenarios))
    return {(step.scenario.name, step.arm.name) for step in plan([group], {"set": arms}, 1)}


def test_arms_with_a_way_run_in_scoped_rows_others_in_both() -> None:
    assert _planned(SCOPED, PLAIN) == {
        *(("requests", name) for name in ("ebbtide", "ebbtide+never", "glibc")),
        *(("plain", name) for name in ("ebbtide", "glibc")),
    }


def test_a_row_that_becomes_scoped_does_the_same_work() -> None:
    assert same_work(SCOPED, replace(SCOPED, scoped=False))


def test_the_program_is_told_the_way(layout: Layout) -> None:
    """glibc has no domain, and the program says so: the options have arrived."""
    glibc = allocators.find("glibc", layout)
    assert execute.run(SCOPED, glibc, layout).figures["failed_allocations"] == 0
    with pytest.raises(RunError, match=r"--scope 1 \(domain\): .* has no ebb_domain_open"):
        execute.run(SCOPED, replace(glibc, name="glibc+never", way="never"), layout)


# --- programs ------------------------------------------------------------------------


def _run(
    layout: Layout, program: str, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(
        [str(layout.program(program)), *arguments],
        env={**clean, **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _failed_checks(done: subprocess.CompletedProcess[str]) -> set[str]:
    return {name for name, holds in _report(done)["verified"].items() if not holds}


def test_every_program_is_tried() -> None:
    assert {*TINY, "lifetimes/enter"} == {*LIFETIMES, "request"}


@pytest.mark.parametrize("program", TINY)
def test_plain_malloc_is_a_way_too(layout: Layout, program: str) -> None:
    done = _run(layout, program, *TINY[program])
    assert done.returncode == 0, done.stderr
    assert "advances" not in _report(done)["figures"]
    assert len(_report(done)["verified"]) >= 2


def _peer(name: str) -> Allocator:
    found = allocators.find(name, Layout.of(None, None))
    if found.problem:
        pytest.skip(found.problem)
    return found


@pytest.mark.parametrize(("name", "way"), [("mimalloc", "heap"), ("jemalloc", "arena")])
@pytest.mark.parametrize("program", TINY)
def test_peers_group_memory_in_their_own_way(
    layout: Layout, name: str, way: str, program: str
) -> None:
    if (program, way) == ("lifetimes/slack", "arena"):
        pytest.skip("jemalloc has too few arenas")
    given = [*TINY[program], *ways.options(way)]
    done = _run(layout, program, *given, LD_PRELOAD=str(_peer(name).path))
    assert done.returncode == 0, done.stderr
    if program == "request":
        assert _report(done)["figures"]["advances"] == 200


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        ("request", ["--scope", "1"], "has no ebb_domain_open"),
        ("request", ["--scope", "2"], "has no ebb_region_open"),
        ("request", ["--scope", "3"], "has no mi_heap_new"),
        ("request", ["--scope", "4"], "has no mallocx"),
        ("request", ["--scope", "1", "--reset", "1"], "--reset 1 is for --scope 2"),
        ("request", ["--scope", "3", "--free", "0", "--variant", "2"], "freed one by one"),
        ("request", ["--scope", "4", "--variant", "2"], "an arena is not closed"),
        ("lifetimes/enter", [], "only a domain (1) or a region (2) is entered"),
        ("lifetimes/slack", ["--scope", "1"], "one epoch of a domain, not many"),
        ("lifetimes/slack", ["--scope", "4"], "at most 4094 arenas"),
    ],
)
def test_what_cannot_be_done_is_told(
    layout: Layout, program: str, options: list[str], message: str
) -> None:
    done = _run(layout, program, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


# --- checks that must be able to fail --------------------------------------------------

# A stand-in for libebbtide with one fault: ASTRAY allocates outside of the region, TWICE
# gives every other object a second time, LOSES counts no epochs and no scopes, FAILS
# refuses every seventh object.
FAULTY = """
#include <ebbtide/region.h>
#include <stdlib.h>
#include <string.h>
enum { OBJECTS = 1 << 16, OBJECT = 512 };
static char memory[OBJECTS * OBJECT];
static size_t used, closed, opened;
struct ebb_region *ebb_region_open(const struct ebb_region_options *options)
{
    (void)options;
    return (struct ebb_region *)memory;
}
void *ebb_region_alloc(struct ebb_region *region, size_t bytes)
{
    (void)region;
    (void)bytes;
    size_t at = used++;
#if defined(TWICE)
    at &= ~(size_t)1;
#elif defined(FAILS)
    if (at % 7 == 6)
        return NULL;
#endif
    return memory + at % OBJECTS * OBJECT;
}
struct ebb_region *ebb_region_of(const void *p)
{
#if defined(ASTRAY)
    (void)p;
    return NULL;
#else
    return p == NULL ? NULL : (struct ebb_region *)memory;
#endif
}
static void end(void)
{
#if !defined(LOSES)
    closed++;
#endif
}
void ebb_region_release(struct ebb_region *region) { (void)region; end(); }
void ebb_region_reset(struct ebb_region *region) { (void)region; end(); }
void ebb_region_close(struct ebb_region *region) { (void)region; end(); }
struct ebb_scope ebb_region_enter(struct ebb_region *region)
{
    (void)region;
    return (struct ebb_scope){0};
}
struct ebb_domain *ebb_domain_open(const char *label)
{
    (void)label;
    return (struct ebb_domain *)memory;
}
int ebb_domain_set_policy(struct ebb_domain *domain, enum ebb_domain_policy policy, size_t n)
{
    (void)domain;
    (void)policy;
    (void)n;
    return 0;
}
struct ebb_scope ebb_domain_enter(struct ebb_domain *domain)
{
    (void)domain;
#if !defined(LOSES)
    opened++;
#endif
    return (struct ebb_scope){0};
}
void ebb_leave(struct ebb_scope before) { (void)before; }
size_t ebb_lifetimes_get(struct ebb_lifetime_stats *lines, size_t count)
{
    if (count > 0)
        *lines = (struct ebb_lifetime_stats){.label = "requests", .held_bytes = 3000000,
                                             .live_bytes = 2000000, .peak_bytes = 4000000,
                                             .slabs = 7, .closed = closed, .drained = closed / 2,
                                             .opened = opened};
    return 1;
}
"""
ONE_WORKER = ["--workers", "1", "--requests", "200"]
REGION = ["--scope", "2", "--free", "0"]
IN_A_REGION = [*ONE_WORKER, *REGION]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Libraries to preload, by their fault."""
    folder = tmp_path_factory.mktemp("faulty")
    source = folder / "faulty.c"
    source.write_text(FAULTY, encoding="utf-8")
    built = {}
    for fault in ("NONE", "ASTRAY", "TWICE", "LOSES", "FAILS"):
        target = folder / f"{fault}.so"
        flags = ["-O1", "-fPIC", "-shared", f"-I{find_root() / 'include'}", f"-D{fault}"]
        subprocess.run(["gcc", *flags, str(source), "-o", str(target)], check=True, timeout=60)
        built[fault] = str(target)
    return built


@pytest.mark.parametrize(
    ("fault", "command", "check"),
    [
        ("NONE", ["request", *IN_A_REGION], ""),
        ("ASTRAY", ["request", *IN_A_REGION], "objects_in_scope"),
        ("LOSES", ["request", *IN_A_REGION], "epochs_as_asked"),
        ("FAILS", ["request", *IN_A_REGION], "no_failed_allocation"),
        ("TWICE", ["request", *IN_A_REGION], "contents_intact"),
        ("NONE", ["request", *ONE_WORKER, "--scope", "1", "--every", "300"], ""),
        ("LOSES", ["request", *ONE_WORKER, "--scope", "1", "--every", "300"], "units_counted"),
        ("NONE", ["request", *ONE_WORKER, "--scope", "1"], "epochs_as_asked"),
        ("NONE", ["lifetimes/object", "--iters", "20", *REGION], ""),
        ("TWICE", ["lifetimes/object", "--iters", "20", *REGION], "objects_apart"),
        ("ASTRAY", ["lifetimes/object", "--iters", "20", *REGION], "objects_in_scope"),
        ("FAILS", ["lifetimes/object", "--iters", "20", *REGION], "no_failed_allocation"),
        ("NONE", ["lifetimes/open", "--iters", "20", *REGION], ""),
        ("ASTRAY", ["lifetimes/open", "--iters", "20", *REGION], "objects_in_scope"),
        ("FAILS", ["lifetimes/open", "--iters", "20", *REGION], "contents_intact"),
        ("NONE", ["lifetimes/enter", "--iters", "20", *REGION], "malloc_is_routed"),
        ("NONE", ["lifetimes/enter", "--iters", "20", "--scope", "1"], "malloc_is_routed"),
        ("TWICE", ["lifetimes/release", "--mb", "4", *REGION], "blocks_intact"),
        ("TWICE", ["lifetimes/slack", "--regions", "900", *REGION], "contents_intact"),
    ],
)
def test_a_fault_is_found(
    layout: Layout, faulty: dict[str, str], fault: str, command: list[str], check: str
) -> None:
    done = _run(layout, *command, LD_PRELOAD=faulty[fault])
    assert done.returncode == (1 if check else 0), done.stderr
    assert (check in _failed_checks(done)) if check else not _failed_checks(done)


def test_what_the_library_says_becomes_figures(layout: Layout, faulty: dict[str, str]) -> None:
    figures = _report(_run(layout, "request", *IN_A_REGION, LD_PRELOAD=faulty["NONE"]))["figures"]
    assert (figures["slabs"], figures["held_mb"], figures["held_peak_mb"]) == (7, 3, 4)
    assert (figures["advances"], figures["drained_percent"]) == (200, 50)
    assert {"pinned_mb", "late_allocations", "refused_allocations"} <= set(figures)


def test_memory_of_each_label_is_a_series(layout: Layout, faulty: dict[str, str]) -> None:
    slowly = ["--loop", "1", "--rate", "2000", "--sample-ms", "1", "--requests", "1000"]
    given = [*IN_A_REGION, *slowly]
    told = _report(_run(layout, "request", *given, LD_PRELOAD=faulty["NONE"]))
    series = told["series"]
    assert list(series) == ["rss_mb", "held_requests_mb", "live_requests_mb"]
    assert set(series["held_requests_mb"]) == {3.0}
    assert set(series["live_requests_mb"]) == {2.0}
    # Half a second in steps of a millisecond is more than a series holds: the step has doubled.
    lengths = {len(values) for values in series.values()}
    assert len(lengths) == 1
    assert 64 <= lengths.pop() <= 256
    assert told["series_step_s"] in (0.002, 0.004)


def test_the_report_draws_what_each_label_holds_over_time() -> None:
    never = replace(sample(1.0), series={"rss_mb": [2, 3], "held_requests_mb": [1.0, 2.5]})
    plain = replace(sample(1.0), series={"rss_mb": [2, 2]})
    row = Row("set", SCOPED, {"ebbtide": [plain], "ebbtide+never": [never]})
    results = Results([row], [arm(name) for name in row.samples], {})
    drawn = section(row, results, Ratios(), "w").charts
    found = {each.title: each.table.rows for each in drawn if each.table}
    held = found["held requests, MB over time: lower is better"]
    assert [[cell.text for cell in cells] for cells in held] == [
        ["ebbtide+never", "1.00", "2.50", "2.50", "1.00", "2.50"]
    ]
    assert len(found["RSS, MB over time: lower is better"]) == 2


def test_a_row_without_plain_malloc_is_shown() -> None:
    """As that of `enter`: there is no arm to compare with."""
    row = Row("set", SCOPED, {"ebbtide+never": [sample(1.0)], "ebbtide+region": [sample(2.0)]})
    results = Results([row], [arm(name) for name in row.samples], card.card())
    text = markdown.render(report.page(results))
    assert "ebbtide+never" in text
    tables.print_results(results, Console(file=io.StringIO()))


def test_plain_malloc_is_sampled_by_resident_memory_alone(layout: Layout) -> None:
    told = _report(_run(layout, "request", *ONE_WORKER, "--sample-ms", "1"))
    assert list(told["series"]) == ["rss_mb"]
