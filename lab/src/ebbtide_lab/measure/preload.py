# SPDX-License-Identifier: MIT OR Apache-2.0
"""The environment that preloads an allocator, and the proof that it was loaded."""

import os
from pathlib import Path

from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import RunError
from ebbtide_lab.scenarios.model import Scenario

WITNESS = "libebb_witness.so"


def preload_settings(allocator: Allocator, witness: Path, testimony: Path) -> dict[str, str]:
    """The environment that preloads an allocator, with the witness behind it."""
    objects = [*([allocator.path] if allocator.path else []), witness]
    return {"LD_PRELOAD": ":".join(map(str, objects)), "LAB_WITNESS": str(testimony)}


def check_testimony(testimony: Path, allocator: Allocator) -> int:
    """How many processes had this allocator's malloc; another one is an error."""
    lines = testimony.read_text(encoding="utf-8").splitlines() if testimony.is_file() else []
    if not lines:
        raise RunError("not proved that the allocator was loaded: is the program static?")
    for line in lines:
        pid, _, loaded = line.partition(" ")
        if allocator.expected not in loaded:
            raise RunError(f"process {pid} had malloc from {loaded}, expected {allocator.expected}")
    return len(lines)


def environment(scenario: Scenario) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    return {**clean, **scenario.env}
