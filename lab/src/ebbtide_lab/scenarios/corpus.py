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
        return _of(layout, folder_of(layout), name, "`make traces` records it (minutes)")
    if name == QUICK:
        return _of(layout, quick_folder(layout), name, "it belongs to the repository")
    return None


def _of(layout: Layout, folder: Path, name: str, hint: str) -> ScenarioSet:
    files = sorted(folder.glob(f"*{SUFFIX}"))
    if not files:
        raise LabError(f"{folder} has no recordings; {hint}")
    rows = [row_of(path, layout) for path in files]
    return ScenarioSet(name, "recordings of programs", ARMS, rows)


def row_of(path: Path, layout: Layout) -> Scenario:
    """Its command is the recording, by its place in the checkout: results tell no more."""
    estimate_s = 0.1 + path.stat().st_size / BYTES_A_SECOND
    return Scenario(
        path.stem,
        REPLAY,
        [str(path.relative_to(layout.root))],
        runs=RUNS,
        floor=True,
        estimate_s=estimate_s,
    )
