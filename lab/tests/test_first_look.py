# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `make run` shows to who has never seen it, with sessions that are made up."""

import importlib.util
import io
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import LabError, RunError
from ebbtide_lab.base.layout import find_root
from ebbtide_lab.cli import demo
from ebbtide_lab.cli.main import main
from ebbtide_lab.measure import progress
from ebbtide_lab.results.model import Sample
from ebbtide_lab.scenarios.model import Scenario

MOST_LINES_BEFORE = 20
MOST_SECONDS = 10
NEVER = (r"\barms?\b", r"\bfloor\b", r"\bbars?\b", r"A/A", r"\bebbtide-again\b", r"\bRSS\b")
VERSIONS = {"glibc": "2.36", "jemalloc531": "5.3.1-0-g81034ce", "mimalloc3": "3.3.2"}
COSTS = {"ebbtide": 1.0, "glibc": 1.1, "jemalloc531": 1.2, "mimalloc3": 0.8, "tcmalloc": 1.0}
PEAKS_MB = {"ebbtide": 20, "glibc": 24, "jemalloc531": 30, "mimalloc3": 40, "tcmalloc": 15}
KEPT_MB = {"ebbtide": 11, "glibc": 1055, "jemalloc531": 541, "mimalloc3": 1150, "tcmalloc": 1108}


def private_words() -> list[re.Pattern[str]]:
    """Those that the documents must not have either, and those that this output must not."""
    loader = SourceFileLoader("lint_words", str(find_root() / "tools" / "lint_words"))
    spec = importlib.util.spec_from_loader("lint_words", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    known = [pattern for pattern, _ in module.patterns(find_root())]
    return [*known, *(re.compile(word, re.IGNORECASE) for word in NEVER)]


def words_in(text: str) -> list[str]:
    return [found[0] for pattern in private_words() if (found := pattern.search(text))]


def find(name: str) -> Allocator:
    return Allocator(name, Path(f"/lib/{name}.so"), VERSIONS.get(name, "1.0"))


def execute(scenario: Scenario, arm: Allocator) -> Sample:
    if scenario.name == "sqlite3" and arm.name == "tcmalloc":
        raise RunError("ended by SIGSEGV")
    figures = {
        "cpu": COSTS[arm.name],
        "wall": COSTS[arm.name] * 1.01,
        "peak_rss_kb": PEAKS_MB[arm.name] / 1024e-6,
    }
    if scenario.command[0] == "burst_idle":
        kept = {"rss_after_idle_mb": KEPT_MB[arm.name], "rss_at_peak_mb": 1090.0}
        return Sample({**figures, **kept}, {"rss_mb": [1000.0, float(KEPT_MB[arm.name])]})
    return Sample(figures)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """What the command prints, of runs that take no time, where some programs are missing."""

    def run(*options: str, absent: tuple[str, ...] = (), columns: int = 80) -> str:
        def need(name: str) -> None:
            if name in absent:
                raise LabError(f"{name} is not installed")

        monkeypatch.setattr(demo, "need_program", need)

        def look(name: str, _: object) -> Allocator:
            problem = "`make lib` builds it" if name in absent else ""
            return replace(find(name), problem=problem)

        monkeypatch.setattr(demo.schemes, "find", look)
        monkeypatch.setattr(demo, "executor", lambda *_: execute)
        runner = CliRunner(env={"COLUMNS": str(columns)})
        return runner.invoke(main, ["demo", "--out", str(tmp_path / "out"), *options]).output

    return run


def parts(text: str) -> tuple[list[str], list[str], str]:
    """The lines before the table, those of it, and what follows."""
    lines = text.splitlines()
    drawn = [at for at, line in enumerate(lines) if line[:1] in "┏┃┡│├└" and line]
    after = "\n".join(lines[drawn[-1] + 1 :])
    return lines[: drawn[0]], lines[drawn[0] : drawn[-1] + 1], after


def test_there_is_one_table_and_one_paragraph(shown: Callable[..., str]) -> None:
    before, table, after = parts(shown())
    assert len(before) <= MOST_LINES_BEFORE
    assert sum(line.startswith("┏") for line in table) == 1
    assert max(map(len, table)) <= 80
    assert "\n".join(table).count("MB kept") == 1
    assert all(line[:1] in "┃┏┡│└" for line in table), "one table, in one piece"
    paragraphs = [each for each in after.split("\n\n") if "machine" in each]
    assert len(paragraphs) == 1
    assert "Your own program: build/venv/bin/ebb bench -- your-program" in after


def test_the_paragraph_says_what_the_figures_say(shown: Callable[..., str]) -> None:
    told = " ".join(parts(shown())[2].split())
    assert "beside glibc, redis-server: 9% less time, 4.0 MB less" in told
    assert (
        "After a burst of 1 GB that is freed, Ebbtide keeps 11 MB, glibc 1,055, jemalloc 541, "
        "mimalloc 1,150 and tcmalloc 1,108." in told
    )
    assert "Ebbtide needs more time than mimalloc in redis-server (25%)" in told
    assert "Ebbtide needs more memory than tcmalloc in redis-server (5.0 MB)" in told
    assert "sqlite3 failed under tcmalloc: ended by SIGSEGV" in told
    assert "rough" not in told


def test_what_no_run_tells_apart_is_the_same(
    shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COSTS, "glibc", 1.005)
    monkeypatch.setitem(PEAKS_MB, "glibc", 20.2)
    told = " ".join(parts(shown())[2].split())
    assert "redis-server: same speed, same memory;" in told


def test_few_runs_are_called_rough(shown: Callable[..., str]) -> None:
    told = " ".join(parts(shown("--budget", "0"))[2].split())
    assert "There was time for 1 run of each: the times are rough." in told
    assert "needs more time" not in told


def test_no_private_word_is_in_it(shown: Callable[..., str]) -> None:
    text = shown(absent=("sqlite3",)).replace("-- your-program", "")
    assert words_in(text) == []
    for planted in ("four arms", "the floor", "2 bars held", "A/A by row", "a granule"):
        assert words_in(f"{text}\n{planted}") != []


def test_what_is_missing_is_one_short_line(shown: Callable[..., str]) -> None:
    text = shown(absent=("redis-server", "g++", "tcmalloc"))
    (line,) = [each for each in text.splitlines() if "left out" in each]
    assert line == "Not installed here, and left out: redis-server, c++-compile, tcmalloc."
    assert "redis-server," not in "\n".join(parts(text)[1])
    assert "sqlite3, peak MB" in "\n".join(parts(text)[1])


def test_an_older_allocator_stands_in_for_one_that_cannot_be_built(
    shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COSTS, "mimalloc", 3.0)
    monkeypatch.setitem(PEAKS_MB, "mimalloc", 9)
    monkeypatch.setitem(KEPT_MB, "mimalloc", 999)
    text = shown(absent=("mimalloc3", "jemalloc531", "jemalloc"))
    assert "left out: jemalloc.\n" in text
    assert "│ burst-1gb, MB kept    │      11 │ 1,055 │      999 │    1,108 │" in text


def test_without_ebbtide_there_is_nothing_to_show(shown: Callable[..., str]) -> None:
    assert shown("--arms", "ebbtide", absent=("ebbtide",)) == (
        "Error: missing ebbtide: `make lib` builds it; --arms chooses others\n"
    )


def test_each_step_before_it_is_quiet_or_told_of() -> None:
    """What builds says a line for each file: in `make run` that goes to a log."""
    rule = re.search(r"^run:.*\n((?:\t.*\n)+)", (find_root() / "Makefile").read_text(), re.M)
    assert rule
    steps = rule[1].splitlines()
    assert [each.split()[0] for each in steps] == [
        "@tools/setup",
        "@tools/told",
        "@tools/told",
        "@$(EBB)",
    ]
    assert steps[0].split()[1] == "--try"


# --- progress -------------------------------------------------------------------------


class Clock:
    """Time that passes only where somebody waits for it."""

    def __init__(self, ends: float) -> None:
        self.now, self._ends = 0.0, ends

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now >= self._ends


class Lines(io.StringIO):
    """The seconds at which something was written."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.seconds = clock, [0.0]

    def write(self, text: str) -> int:
        self.seconds.append(self.clock.now)
        return super().write(text)


@pytest.mark.parametrize("of_runs", [True, False])
def test_a_line_comes_at_least_every_ten_seconds(
    of_runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(ends=300.0)
    log = Lines(clock)
    console = Console(file=log, width=100)
    monkeypatch.setattr(progress, "monotonic", lambda: clock.now)
    monkeypatch.setattr(progress, "Event", lambda: clock)
    told = (
        progress._Lines(console, 20, 300.0)
        if of_runs
        else progress.Ticker(lambda seconds: f"preparing, {seconds:.0f} s", console)
    )
    told._tell(0.0)
    gaps = [after - before for before, after in zip(log.seconds, log.seconds[1:], strict=False)]
    assert 0 < max(gaps) <= MOST_SECONDS
    assert clock.now - log.seconds[-1] <= MOST_SECONDS
    assert len(log.getvalue().splitlines()) > 25


def test_a_budget_is_what_the_share_is_of() -> None:
    told = progress._Lines(Console(quiet=True), 105, 900.0, 270.0)
    told.begin("redis-server under glibc")
    told.end(9.0)
    assert told._told(135.0) == " 50% after 135 s, run 2; now redis-server under glibc"
    assert told._told(300.0).startswith(" 99% after 300 s")


def test_a_terminal_sees_what_is_prepared() -> None:
    log = io.StringIO()
    with progress.waiting(Console(file=log, force_terminal=True), "preparing mimalloc"):
        pass
    assert "preparing mimalloc" in log.getvalue()
