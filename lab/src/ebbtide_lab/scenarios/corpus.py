# SPDX-License-Identifier: MIT OR Apache-2.0
"""The corpus: recordings of programs that nobody here wrote, each a row that is replayed.

`corpus` is what `ebb traces` has recorded on this machine; `corpus-quick` the parts of some
of them that the repository holds.
"""

from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.scenarios.model import REPLAY, Scenario, ScenarioSet

WHOLE = "corpus"
QUICK = "corpus-quick"
SUFFIX = ".ebt"
ARMS = ["ebbtide", "glibc", "mimalloc2", "mimalloc3", "snmalloc", "rpmalloc", "jemalloc531"]
ARMS += ["tcmalloc", "mimalloc", "ebbtide-again", "floor"]
# Of a row, what a second of it is thought to hold: reading, and replaying it once.
BYTES_A_SECOND = 10e6
RUNS = 5


def folder_of(layout: Layout) -> Path:
    """Of what was recorded here."""
    return layout.build / "traces"


def quick_folder(layout: Layout) -> Path:
    return layout.root / "bench" / "traces" / "quick"


def find(name: str, layout: Layout) -> ScenarioSet | None:
    """The set of this name, if it is one of these."""
    if name == WHOLE:
        return _of(folder_of(layout), name, "`make traces` records it (minutes)")
    if name == QUICK:
        return _of(quick_folder(layout), name, "it belongs to the repository")
    return None


def _of(folder: Path, name: str, hint: str) -> ScenarioSet:
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if not files:
        raise LabError(f"{folder} has no recordings; {hint}")
    return ScenarioSet(name, "recordings of programs", ARMS, [row_of(path) for path in files])


def row_of(path: Path) -> Scenario:
    estimate_s = 0.1 + path.stat().st_size / BYTES_A_SECOND
    return Scenario(path.stem, REPLAY, [str(path)], runs=RUNS, floor=True, estimate_s=estimate_s)
