# SPDX-License-Identifier: MIT OR Apache-2.0
"""The corpus: its means, its rows, and recordings that are replayed as rows of a set."""

import io
import json
import re
from math import sqrt
from pathlib import Path

import pytest
from conftest import invoke, sample
from rich.console import Console
from test_cli import with_library
from test_replay import AS_EVER, WRAPS

from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import LabError, RunError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.judge import corpus as judged
from ebbtide_lab.judge.corpus import LEAST_SHARE, best_of_each, means, own_cpu
from ebbtide_lab.judge.fidelity import Agreement, agree, spearman
from ebbtide_lab.measure import replaying
from ebbtide_lab.measure.replaying import FLOOR_LIBRARY, run_replay
from ebbtide_lab.measure.tracing import read_info
from ebbtide_lab.results import journal
from ebbtide_lab.results.model import Results, Row
from ebbtide_lab.scenarios import corpus
from ebbtide_lab.scenarios.model import REPLAY, Scenario
from ebbtide_lab.show.corpus import print_corpus
from ebbtide_lab.show.fidelity import print_fidelity, print_orders

FLOOR_NS = 10.0
# Gives every eighth small block a second time, to whoever asks next.
GIVES_TWICE = (
    WRAPS
    + """
static void *last;
static unsigned count;
void *malloc(size_t bytes)
{
    if (bytes > 128)
        return __libc_malloc(bytes);
    if (++count % 8 == 0)
        return last;
    return last = __libc_malloc(128);
}
void free(void *block) { (void)block; }
"""
)


def recording(
    costs: dict[str, float], peaks: dict[str, float] | None = None, kind: str = REPLAY
) -> Row:
    """One run of each arm: nanoseconds an event, and KB; the floor is among them."""
    told = {"floor": FLOOR_NS, **costs}
    samples = {arm: [sample(cost, (peaks or {}).get(arm, 1000))] for arm, cost in told.items()}
    return Row("corpus", Scenario("row", kind, ["row.ebt"], floor=True), samples)


def two() -> list[Row]:
    """Ebbtide's own times over mimalloc3's: 1/2 and 2; over glibc's: 1/4 and 10."""
    return [
        recording(
            {"ebbtide": 15, "mimalloc3": 20, "glibc": 30, "ebbtide-again": 15},
            {"ebbtide": 500, "mimalloc3": 1000, "glibc": 2000},
        ),
        recording(
            {"ebbtide": 30, "mimalloc3": 20, "glibc": 12, "ebbtide-again": 30},
            {"ebbtide": 800, "mimalloc3": 1000, "glibc": 500},
        ),
    ]


# --- the means ------------------------------------------------------------------------


def test_means_are_geometric_over_the_recordings_and_the_hardest_comes_first() -> None:
    found = means(two())
    assert [mean.arm for mean in found] == ["glibc", "mimalloc3"]
    glibc, mimalloc = found
    assert (glibc.own_cpu, glibc.cpu) == pytest.approx((sqrt(2.5), sqrt(0.5 * 2.5)))
    assert glibc.peak == pytest.approx(sqrt(0.25 * 1.6))
    assert (mimalloc.own_cpu, mimalloc.cpu) == pytest.approx((1.0, sqrt(0.75 * 1.5)))
    assert mimalloc.peak == pytest.approx(sqrt(0.5 * 0.8))


def test_own_time_is_the_median_without_the_floors() -> None:
    row = recording({})
    row.samples["glibc"] = [sample(each) for each in (13, 900, 14)]
    row.samples["floor"] = [sample(each) for each in (1, 10, 11)]
    assert own_cpu(row, "glibc") == 4


@pytest.mark.parametrize(("cost", "own"), [(9, 0.2), (10, 0.2), (10.1, 0.2), (10.3, 0.3)])
def test_less_than_the_least_share_of_the_floor_counts_as_so_much(cost: float, own: float) -> None:
    assert LEAST_SHARE == 0.02
    assert own_cpu(recording({"glibc": cost}), "glibc") == pytest.approx(own)


def test_rows_that_lack_an_arm_or_the_floor_and_other_kinds_are_left_out() -> None:
    whole = two()
    lacking = recording({"ebbtide": 1000, "mimalloc3": 20, "ebbtide-again": 20})
    unfloored = recording({"ebbtide": 1000, "mimalloc3": 20, "glibc": 20, "ebbtide-again": 20})
    del unfloored.samples["floor"]
    program = recording({"ebbtide": 1000, "mimalloc3": 20, "clang-only": 1}, kind="command")
    rows = [program, lacking, *whole, unfloored]
    assert judged.replayed(rows) == whole
    assert means(rows) == means(whole)
    assert best_of_each(rows) == best_of_each(whole)


def test_without_ebbtide_there_are_no_means() -> None:
    assert means([recording({"mimalloc3": 15, "glibc": 20})]) == []
    assert means([]) == []


def test_the_best_of_each_row_is_a_peer_and_not_the_same_in_all() -> None:
    # mimalloc3 and glibc: 5 over 10 and 20 over 2 ns, 500 over 1000 and 800 over 500 KB.
    assert best_of_each(two()) == pytest.approx((sqrt(0.5 * 10), sqrt(0.5 * 1.6)))


def printed(rows: list[Row]) -> str:
    out = io.StringIO()
    print_corpus(Results(rows, [], {}), Console(file=out, width=120))
    return out.getvalue()


def test_the_tables_have_losses_first_and_the_best_peer_last() -> None:
    first, second = two()
    first.scenario, second.scenario = (
        Scenario(name, REPLAY, ["x"], floor=True) for name in ("won", "lost")
    )
    text = printed([first, second, recording({"ebbtide": 1, "mimalloc3": 1})])
    assert re.search(r"lost +│ +20\.0 +│ +10\.00 +│ +glibc .*\n.*won +│ +5\.00 +│ +0\.50 ", text)
    assert "Geometric means over 2 of 3 recordings: Ebbtide's over each peer's" in text
    lines = [line.split()[1] for line in text.splitlines() if "│" in line][-3:]
    assert lines == ["glibc", "mimalloc3", "best"]
    assert re.search(r"mimalloc3 +│ +1\.000 +│ +1\.061 +│ +0\.632 ", text)
    assert re.search(r"best peer of each row +│ +2\.236 +│ +- +│ +0\.894 ", text)


@pytest.mark.parametrize("missing", ["ebbtide", "floor"])
def test_nothing_is_printed_without_what_is_compared(missing: str) -> None:
    rows = two()
    for row in rows:
        del row.samples[missing]
    assert printed(rows) == ""


# --- do replays rank as programs do? ----------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "coefficient"),
    [
        ([1, 2, 3, 4, 5], [10, 20, 30, 40, 500], 1.0),
        ([1, 2, 3, 4, 5], [9, 7, 5, 3, 1], -1.0),
        ([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], 0.8),
        ([1, 2, 3, 4, 5], [5, 6, 7, 8, 7], 8 / sqrt(95)),  # two share the ranks 3 and 4
        ([3, 3, 3], [1, 2, 3], 0.0),
        ([7], [7], 0.0),
    ],
    ids=["same", "reversed", "swaps", "ties", "all-equal", "one"],
)
def test_spearman(left: list[float], right: list[float], coefficient: float) -> None:
    assert spearman(left, right) == pytest.approx(coefficient)
    assert spearman(right, left) == pytest.approx(coefficient)


def runs(*cpu: float, peak: float = 1) -> list[dict[str, float]]:
    return [{"cpu": each, "peak_rss_kb": peak} for each in cpu]


def test_the_least_times_of_arms_that_both_have_are_ranked() -> None:
    program = {
        "glibc": runs(90, 5, 99, peak=3),
        "mimalloc": runs(4, peak=2),
        "ebbtide": runs(3, peak=1),
        "gone": runs(1),
    }
    replay = {
        "ebbtide": runs(30, peak=8),
        "mimalloc": runs(40, peak=7),
        "glibc": runs(50, peak=6),
        "new": runs(1),
    }
    cpu, peak = agree(program, replay)
    assert (cpu.figure, cpu.spearman) == ("cpu", pytest.approx(1))
    assert cpu.program == cpu.replay == ["ebbtide", "mimalloc", "glibc"]
    assert cpu.typical["glibc"] == (5, 50)
    assert (peak.figure, peak.spearman) == ("peak_rss_kb", pytest.approx(-1))
    assert peak.program == peak.replay[::-1]


def test_the_order_is_told_in_multiples_of_the_least() -> None:
    found = Agreement("cpu", 0.5, ["a", "b"], ["b", "a"], {"a": (2, 9), "b": (3, 6)})
    out = io.StringIO()
    console = Console(file=out, width=100)
    print_orders("jq", [found], console)
    print_fidelity({"jq": [found]}, console)
    assert re.search(r"jq +│ +CPU time +│ +0\.50 ", out.getvalue())
    assert "jq, CPU time, program: a 1.00, b 1.50\n" in out.getvalue()
    assert "jq, CPU time, replay: b 1.00, a 1.50\n" in out.getvalue()


# --- the rows -------------------------------------------------------------------------


def test_without_recordings_the_error_names_what_makes_them(tmp_path: Path) -> None:
    layout = Layout(tmp_path, tmp_path, tmp_path)
    with pytest.raises(LabError, match=r"has no recordings; `make traces` records it"):
        corpus.find("corpus", layout)
    with pytest.raises(LabError, match=r"traces/quick has no recordings; it belongs to"):
        corpus.find("corpus-quick", layout)
    assert corpus.find("quick", layout) is None


def test_each_file_is_a_row_with_a_floor(tmp_path: Path) -> None:
    folder = tmp_path / "build" / "traces"
    folder.mkdir(parents=True)
    (folder / "vim.ebt").write_bytes(b"x" * 10_000_000)
    (folder / "g++.ebt").write_bytes(b"x")
    (folder / "input").mkdir()
    found = corpus.find("corpus", Layout(tmp_path, tmp_path, tmp_path))
    assert found
    assert {"ebbtide", "ebbtide-again", "floor", "mimalloc3"} < set(found.arms)
    compiler, editor = found.scenarios
    assert (compiler.name, editor.name) == ("g++", "vim")
    assert compiler.command == ["build/traces/g++.ebt"]
    assert (compiler.kind, compiler.floor) == (REPLAY, True)
    assert editor.estimate_s == pytest.approx(1.1)


def test_the_recordings_of_the_repository_are_those_of_the_list(layout: Layout) -> None:
    found = corpus.find("corpus-quick", layout)
    assert found
    text = (layout.root / "bench" / "traces" / "programs.toml").read_text(encoding="utf-8")
    tables = text.split("[[program]]")[1:]
    listed = [re.search(r'name = "(.*)"', each) for each in tables if "\nquick = " in each]
    assert [row.name for row in found.scenarios] == sorted(each[1] for each in listed if each)


# --- replays as runs --------------------------------------------------------------------


def test_a_recording_is_measured_as_a_row(floored: Layout, tmp_path: Path) -> None:
    library = with_library(floored, tmp_path, AS_EVER)
    out = tmp_path / "out"
    options = ("--runs", "1", "--arms", "ebbtide,glibc,floor", "--out", str(out))
    done = invoke(library, "bench", "corpus-quick/buffers", *options)
    assert done.exit_code == 0, done.output
    (row,) = journal.load(out).rows
    assert (row.group, row.scenario.name, row.scenario.kind) == ("corpus-quick", "buffers", REPLAY)
    assert set(row.samples) == {"ebbtide", "glibc", "floor"}
    events = read_info(floored, corpus.quick_folder(floored) / "buffers.ebt").events
    assert {each.figures["events"] for found in row.samples.values() for each in found} == {events}
    # The buffers of glibc are what it was asked for; the floor has none.
    assert row.figure("glibc", "peak_rss_kb")[0] > 10 * row.figure("floor", "peak_rss_kb")[0] > 0
    assert "Geometric means over 1 of 1 recordings: Ebbtide's over each peer's" in done.output


def test_a_replay_that_finds_damage_is_a_failed_run(floored: Layout, tmp_path: Path) -> None:
    library = with_library(floored, tmp_path, GIVES_TWICE)
    out = tmp_path / "out"
    options = ("--runs", "1", "--arms", "ebbtide,glibc", "--out", str(out))
    done = invoke(library, "bench", "corpus-quick/gawk", *options)
    assert done.exit_code == 1
    (row,) = journal.load(out).rows
    assert re.search(r"^[\d,]+ damaged blocks", row.failures["ebbtide"]), row.failures
    assert set(row.samples) == {"glibc"}


TOLD = {
    "schema": replaying.SCHEMA,
    "events": 2000,
    "cpu_s": 0.006,
    "wall_s": 0.008,
    "peak_anonymous_bytes": 4096,
    "mean_anonymous_bytes": 2048,
    "end_anonymous_bytes": 1024,
    "minor_faults": 7,
    "damaged": 0,
    "sums_that_differ": 0,
    "refused": 0,
}


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str]]:
    """The commands of runs with what was preloaded; each tells TOLD of what was preloaded."""
    found: list[tuple[list[str], str]] = []

    def finish(command: list[str], *, env: dict[str, str], **_: object) -> str:
        found.append((command, env.get("LD_PRELOAD", "")))
        return json.dumps({**TOLD, "allocator": env.get("LD_PRELOAD", "libc.so")})

    monkeypatch.setattr(replaying, "finish", finish)
    return found


def quick(layout: Layout, name: str) -> Scenario:
    return corpus.row_of(corpus.quick_folder(layout) / f"{name}.ebt", layout)


def test_figures_are_nanoseconds_an_event_and_kilobytes(
    floored: Layout, tmp_path: Path, replays: list[tuple[list[str], str]]
) -> None:
    arm = Allocator("mine", Path("/lib/mine.so"))
    told = run_replay(quick(floored, "buffers"), arm, floored, tmp_path).figures
    assert told == pytest.approx(
        {
            "cpu": 3000,
            "wall": 4000,
            "peak_rss_kb": 4,
            "mean_rss_kb": 2,
            "end_rss_kb": 1,
            "minor_faults": 7,
            "events": 2000,
        }
    )
    ((command, preloaded),) = replays
    assert "--floor" not in command
    assert preloaded == "/lib/mine.so"


def test_the_floors_arm_is_the_replays_own_floor(
    floored: Layout, tmp_path: Path, replays: list[tuple[list[str], str]]
) -> None:
    arm = Allocator("floor", floored.program("libebb_floor.so"))
    run_replay(quick(floored, "buffers"), arm, floored, tmp_path)
    ((command, preloaded),) = replays
    assert "--floor" in command
    assert preloaded == str(floored.programs / FLOOR_LIBRARY)


def test_a_floor_that_is_not_built_is_a_failed_run(traced: Layout, tmp_path: Path) -> None:
    arm = Allocator("floor", traced.program("libebb_floor.so"))
    with pytest.raises(RunError, match=f"{FLOOR_LIBRARY} is not built"):
        run_replay(quick(traced, "nginx"), arm, traced, tmp_path)


def test_a_recording_is_compiled_once_for_all_arms_in_turn(
    floored: Layout,
    tmp_path: Path,
    replays: list[tuple[list[str], str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(replaying, "call_tool", lambda _, *words: compiled.append(words[1]))
    for name in ("convert", "convert", "node"):
        arm = Allocator("mine", Path("/lib/mine.so"))
        run_replay(quick(floored, name), arm, floored, tmp_path)
    assert [Path(each).stem for each in compiled] == ["convert", "node"]
    assert len(replays) == 3
