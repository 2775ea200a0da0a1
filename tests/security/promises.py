#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What docs/safety.md promises, tried on the catalogue: `promises.py PROGRAM LIBRARY MODE [RUNS]`.
MODE is default, checked, log, any-family or unsaid.

Exit status: 0; 1 when a promise was not kept, a clean run was reported or a run hung; 2 for bad usage."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Patterns of "family: case", and how it is caught; the first that fits counts.
PROMISES: dict[str, list[tuple[str, str | None]]] = {
    "default": [
        (r"impossible size: ", "at once"),
        (r"double free: double_(at_once|after_1)$", "at once"),
        (r"invalid free: (retire_|free_before_page$)", None),  # may be a block that is free
        (r"invalid free: ", "at once"),
        (r"zero size: ", "at once"),
        (r"mismatch: (delete_size_(more|double|half|huge|8)|array_size_)", "at once"),
        (r"mismatch: (free_sized_double|aligned_delete_wrong_size)$", "at once"),
    ],
    "checked": [
        (r"impossible size: ", "at once"),
        (r"(double free|invalid free|mismatch|zero size): ", "at once"),
        (r"(overflow: over_|underflow: under_)(?!mega)", "caught"),
        (r"use after free: (write_|increment)", "caught"),
        (r"leak: ", "at once"),
    ],
    "log": [  # a call that refuses counts as caught
        (r"(double|invalid) free: (double_)?(realloc(?!_zero)|usable)", "at once"),
        (r"(double free|invalid free|mismatch): ", "missed"),
    ],
    "any-family": [
        (r"mismatch: (new_free|malloc_delete|array_delete|new_realloc)$", "missed"),
        (r"mismatch: (delete_size_|free_sized_)", "missed"),
    ],
    "unsaid": [(r"mismatch: (delete_size_|array_size_|free_sized_)", "missed")],
}
SETTINGS: dict[str, list[str]] = {
    "default": [],
    "checked": ["EBB_CHECK=1", "EBB_GUARD=0"],  # what holds of each block
    "log": ["EBB_CHECK=log"],
    "any-family": ["EBB_CHECK=1", "EBB_CHECK_FAMILY=0"],
    "unsaid": ["EBB_CHECK_FAMILY=0"],
}
CASES = {
    "any-family": "new_free|malloc_delete|array_delete|new_realloc|delete_size_|free_sized_",
    "unsaid": "delete_size_|array_size_|free_sized_",
}


def run(program: str, library: str, mode: str, cases: str | None) -> list[dict[str, object]]:
    catalogue = Path(__file__).with_name("catalogue.py")
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [sys.executable, str(catalogue), program, "--preload", library, "--json", out.name]
        command += [word for setting in SETTINGS[mode] for word in ("--env", setting)]
        command += ["--cases", cases] if cases is not None else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print("\n".join(done.stdout.splitlines()[-13:]))
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        outcomes: list[dict[str, object]] = json.loads(Path(out.name).read_text())
        return outcomes


def is_kept(promise: str | None, verdict: object) -> bool:
    kept: dict[str | None, tuple[str, ...]] = {
        "at once": ("at once",),
        "caught": ("at once", "later"),
        "missed": ("missed",),
    }
    return promise is None or verdict in (*kept[promise], "skip")


def broken_promises(cases: list[dict[str, object]], mode: str) -> list[tuple[str, str]]:
    out = []
    for case in cases:
        name = f"{case['family']}: {case['name']}"
        fits = (promise for pattern, promise in PROMISES[mode] if re.match(pattern, name))
        promise = next(fits, None)
        if not is_kept(promise, case["verdict"]):
            out.append((str(case["name"]), f"{name}: {promise} was promised, not {case['verdict']}"))
    return out


def try_once(program: str, library: str, mode: str) -> list[str]:
    """A byte that is written may be the canary's: once, not twice."""
    broken = broken_promises(run(program, library, mode, CASES.get(mode)), mode)
    if not broken:
        return []
    again = "^(" + "|".join(name for name, _ in broken) + ")$"
    return [text for _, text in broken_promises(run(program, library, mode, again), mode)]


def main() -> int:
    if len(sys.argv) not in (4, 5) or sys.argv[3] not in PROMISES:
        print(__doc__, file=sys.stderr)
        return 2
    program, library, mode = sys.argv[1:4]
    broken: list[str] = []
    for _ in range(int(sys.argv[4]) if len(sys.argv) == 5 else 1):
        broken += try_once(program, library, mode)
    print("\n".join(broken))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
