# SPDX-License-Identifier: MIT OR Apache-2.0
"""What each workload imitates, in a sentence, and which are real programs: read from data.

The sentences are not part of a session, so that those measured earlier have them too.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import PACKAGE, find_root
from ebbtide_lab.scenarios.corpus import QUICK, WHOLE
from ebbtide_lab.scenarios.model import REPLAY, Scenario, load_all

SENTENCES = PACKAGE / "scenarios" / "workloads.toml"
RECORDED = Path("bench") / "traces" / "programs.toml"
PROGRAMS = ("command", "server")  # kinds that run somebody else's program
PATTERN = "pattern"  # the kind of a recording of a program of ours


@dataclass(frozen=True)
class Description:
    """`imitates` is empty of a program that nobody has described."""

    imitates: str = ""
    is_program: bool = False


def describe(scenario: Scenario) -> Description:
    name, program = scenario.name, scenario.command[0].removeprefix("{programs}/")
    if scenario.kind == REPLAY:
        return _recording(Path(program).stem)
    texts = _sentences()
    sentence = texts["rows"].get(name) or texts["programs"].get(program, "")
    return Description(sentence, scenario.kind in PROGRAMS)


def describe_kept(group: str, name: str) -> Description:
    """Of a row of which the session keeps no more than its set and name."""
    if group in (WHOLE, QUICK):
        return _recording(name)
    sets = load_all()
    ordered = sorted(sets, key=lambda each: each != group)
    found = (row for each in ordered for row in sets[each].scenarios if row.name == name)
    scenario = next(found, None)
    return describe(scenario) if scenario else Description()


def _recording(name: str) -> Description:
    entry = _recordings().get(name, {})
    return Description(entry.get("imitates", ""), entry.get("kind") != PATTERN)


@cache
def _sentences() -> dict[str, dict[str, str]]:
    data: dict[str, dict[str, str]] = _read(SENTENCES)
    return data


@cache
def _recordings() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in _read(find_root() / RECORDED)["program"]}


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}") from error
