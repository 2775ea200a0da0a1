# SPDX-License-Identifier: MIT OR Apache-2.0
"""The README and the page of figures say what the kept sessions say."""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import find_root
from ebbtide_lab.cli import charts as command
from ebbtide_lab.cli.main import main
from ebbtide_lab.results import sessions, summary
from ebbtide_lab.results.summary import LOSES, NOISE, Ratio

ROOT = find_root()
MOST_BYTES = 50_000
MOST_LINES, MOST_NUMBERS, LEAST_CHARTS = 150, 60, 3
FIRST_SCREEN = 60
ANSWERS = ("# Ebbtide", "## Why", "## Try it", "## When not to use it", "## How it works")
REPORT = """# Ebbtide beside 1 allocator

2 workloads (sets: quick) in 12 runs, the allocators in turn, measured 1 May 2026 at 01:00 UTC.
A processor, 2 cores, Linux 6, glibc 2.36. Nothing is claimed beyond 2 cores.
Of 2 comparisons with a peer Ebbtide loses 1, 1 are within noise, and it wins 0.

## Cost

{caption}: what a reader must know. ▼ marks a loss of Ebbtide's.

| workload | ebbtide | glibc | A/A |
| :-- | --: | --: | --: |
| [one](#w-one) quick | 5.0 ns | ▼ {loss} \\[{bounds}\\] | 1.01 \\[0.98..1.05\\] |
| [two](#w-two) quick | 6.0 ns | ≈ 1.00 \\[0.90..1.10\\] | 1.00 \\[0.98..1.05\\] |

## Machine
"""


def visible(text: str) -> str:
    """Without code, addresses and tags."""
    for pattern in (r"```.*?```", r"\]\([^)]*\)", r"<[^>]*>"):
        text = re.sub(pattern, "", text, flags=re.S)
    return text


def test_nothing_differs_from_the_sessions() -> None:
    done = CliRunner().invoke(main, ["charts", "--check"])
    assert done.exit_code == 0, done.output


def test_a_changed_figure_and_a_changed_report_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("README.md", "docs/figures.md", "docs/figures", "docs/reference", "results"):
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    monkeypatch.setattr(command, "find_root", lambda: tmp_path)
    assert CliRunner().invoke(main, ["charts", "--check"]).exit_code == 0
    front = tmp_path / "README.md"
    front.write_text(front.read_text().replace("MB resident", "MB of memory"))
    done = CliRunner().invoke(main, ["charts", "--check"])
    assert done.exit_code == 1
    assert "README.md" in done.output
    [report] = tmp_path.glob("results/*-corpus/report.md")
    report.write_text(report.read_text().replace("| mimalloc3 | 0.", "| mimalloc3 | 9."))
    done = CliRunner().invoke(main, ["charts", "--check"])
    for name in ("summary.json", "means-light.svg", "means-dark.svg", "docs/figures.md"):
        assert name in done.output
    assert CliRunner().invoke(main, ["charts"]).exit_code == 0
    assert CliRunner().invoke(main, ["charts", "--check"]).exit_code == 0


def test_the_readme_is_short_and_answers_first() -> None:
    text = (ROOT / "README.md").read_text()
    lines = text.splitlines()
    assert len(lines) <= MOST_LINES
    assert len(re.findall(r"\d[\d.,]*", visible(text))) <= MOST_NUMBERS
    assert text.count("<picture>") >= LEAST_CHARTS
    assert all(answer in lines[:FIRST_SCREEN] for answer in ANSWERS)
    for picture in re.findall(r'(?:srcset|src)="([^"]+)"', text):
        assert (ROOT / picture).is_file()


def test_summaries_are_small_and_count_as_their_reports_do() -> None:
    for kept in sessions.read_all(ROOT / "results"):
        assert (kept.folder / summary.SUMMARY).stat().st_size < MOST_BYTES
        assert summary.load(kept.folder) == kept.summary
        assert kept.summary.workloads
        marked = [r.state for each in kept.summary.workloads for r in each.cost.values()]
        assert marked.count(LOSES) >= kept.summary.verdict["losses"]
    folders = {path.parent for path in (ROOT / "results").glob("*/report.md")}
    assert folders == {kept.folder for kept in sessions.read_all(ROOT / "results")}


@pytest.mark.parametrize(
    ("caption", "loss", "bounds", "expected"),
    [
        ("Cost: Ebbtide's over the allocator's", "1.25", "1.10..1.60", (1.25, 1.1, 1.6)),
        ("Cost over Ebbtide's", "0.80", "0.625..0.909", (1.25, 1.1, 1.6)),
    ],
)
def test_ratios_have_one_direction(
    caption: str, loss: str, bounds: str, expected: tuple[float, float, float]
) -> None:
    found = summary.of_report(REPORT.format(caption=caption, loss=loss, bounds=bounds))
    one, two = found.workloads
    assert one.cost["glibc"] == Ratio(*expected, LOSES)
    assert two.cost["glibc"].state == NOISE
    assert found.verdict == {"compared": 2, "losses": 1, "noise": 1, "wins": 0, "alone": 0}


def test_rates_and_means_of_early_reports_have_the_one_direction() -> None:
    text = REPORT.format(caption="Cost", loss="1.25", bounds="1.1..1.6")
    means = """## Means

| allocator | own CPU time | CPU time with the replay's | peak memory |
| :-- | --: | --: | --: |
| ▶ ebbtide | 0.500 | 0.900 | 0.600 |
| mimalloc3 | 1.000 | 1.000 | 1.000 |
| glibc | 0.250 | 1.800 | 0.300 |
| best peer of each row | 0.400 | - | 0.300 |

"""
    early = text.replace("## Cost", f"{means}## Cost").replace(
        "5.0 ns", "40.0 M ops per cpu second"
    )
    found = summary.of_report(early)
    assert found.means == {
        "glibc": [2.0, 0.5, 2.0],
        "best peer of each row": [1.25, None, 2.0],
        "mimalloc3": [0.5, 0.9, 0.6],
    }
    assert found.workloads[0].own == "25 cpu ns per op"
    ours = early.replace("| ▶ ebbtide | 0.500 | 0.900 | 0.600 |\n", "")
    assert summary.of_report(ours).means["glibc"] == [0.25, 1.8, 0.3]


def test_what_is_no_report_is_told() -> None:
    with pytest.raises(LabError, match="no report of the lab"):
        summary.of_report("# Something else\n\n## Cost\n")
