# SPDX-License-Identifier: MIT OR Apache-2.0
"""The faults of examples/leaky are found from outside, by the views of `ebb profile PID`."""

import json
import subprocess
from pathlib import Path

import pytest
from leaky import FAULTS, NAMES, PROGRAMS, leaky
from test_profile_live import profile

VIEWS = dict(zip(FAULTS, ("in-use", "pinned", "allocated"), strict=True))
RATE = ("--rate", "4000")  # a report a second
LOOKS = 20  # until what is read is not the middle of a report


def first(pid: int, view: str) -> str:
    """The function that the view names first; empty: none."""
    done = profile(pid, "--view", view, "--seconds", 1.3, "--mean", 16384, "--json")
    if f"counts nothing for the view {view}" in done.output:
        return ""
    assert done.exit_code == 0, done.output
    return str(json.loads(done.stdout)["functions"][0]["name"])


@pytest.mark.parametrize("language", PROGRAMS)
def test_each_fault_is_named_first_by_its_view(language: str, tmp_path: Path) -> None:
    with leaky(language, tmp_path, *RATE) as pid:
        for fault, name in zip(FAULTS, NAMES[language], strict=True):
            seen = []
            while not seen or name not in seen[-1]:
                assert len(seen) < LOOKS, (fault, seen)
                seen.append(first(pid, VIEWS[fault]))


@pytest.mark.parametrize("language", PROGRAMS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_off_is_not_named(fault: str, language: str, tmp_path: Path) -> None:
    others = [f"--{each}" for each in FAULTS if each != fault]
    name = dict(zip(FAULTS, NAMES[language], strict=True))[fault]
    with leaky(language, tmp_path, *RATE, *others) as pid:
        assert name not in first(pid, VIEWS[fault])


@pytest.mark.parametrize("language", PROGRAMS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_leaves_what_its_fault_leaves(fault: str, language: str, tmp_path: Path) -> None:
    command = [*PROGRAMS[language](tmp_path), f"--{fault}", "--requests", "4001"]
    done = subprocess.run(
        [*command, "--rate", "100000"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("ready\n4001 requests served: what is left is as asked")
