# SPDX-License-Identifier: MIT OR Apache-2.0
"""Records the programs of bench/traces, and cuts the parts that the repository holds."""

import os
import subprocess
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure import recording
from ebbtide_lab.measure.recording import Recording, Request
from ebbtide_lab.measure.tracing import call_tool, read_info
from ebbtide_lab.scenarios.corpus import SUFFIX, folder_of, quick_folder, row_of
from ebbtide_lab.scenarios.model import Scenario

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Program:
    name: str
    file: str  # of the process that counts
    path: str
    packages: list[str]
    quick: list[int]  # from which event to which; none: not in the repository

    @classmethod
    def of(cls, data: dict[str, Any]) -> "Program":
        path = data["command"][0]
        file = data.get("record", Path(path).name)
        return cls(data["name"], file, path, data["packages"], data.get("quick", []))


def read_programs(layout: Layout) -> list[Program]:
    path = _folder(layout) / "programs.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}") from error
    return [Program.of(each) for each in data["program"]]


def choose(programs: list[Program], names: tuple[str, ...]) -> list[Program]:
    """Those of these names; all without any."""
    known = {each.name: each for each in programs}
    for name in names:
        if name not in known:
            raise LabError(f"no program is called {name!r}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else programs


def target_of(layout: Layout, program: Program) -> Path:
    return folder_of(layout) / f"{program.name}{SUFFIX}"


def make_input(layout: Layout) -> None:
    _call([str(_folder(layout) / "make-input"), str(_input(layout))], "make-input")


def record(layout: Layout, program: Program, tell: Tell) -> Recording:
    """The recording of the process that counts, in its place; an error says why there is none."""
    if "{" not in program.path and not os.access(program.path, os.X_OK):
        packages = ", ".join(program.packages)
        raise LabError(f"{program.path} is missing ({packages}); `tools/setup traces` installs it")
    target = target_of(layout, program)
    command = _run_command(layout, program)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".traces-") as scratch:
        os.chmod(scratch, 0o777)  # a server may have given up its rights
        request = Request(command, Path(scratch) / target.name, only=program.file)
        run, found = recording.record(request, layout, tell)
        if run.status != 0:
            raise LabError(f"exit status {run.status}")
        if not found:
            raise LabError(f"no process that runs {program.file} asked malloc for anything")
        found[0].path.replace(target)
    return Recording(target, found[0].info)


def cut_quick(layout: Layout, program: Program) -> Recording:
    """The part of a recording that the repository holds, without names."""
    whole, part = target_of(layout, program), quick_folder(layout) / f"{program.name}{SUFFIX}"
    if not whole.is_file():
        raise LabError(f"{whole} is missing: `ebb traces {program.name}` records it")
    first, last = program.quick
    with tempfile.TemporaryDirectory(prefix="ebb-") as scratch:
        piece = str(Path(scratch) / "piece")
        call_tool(layout, "cut", str(whole), piece, str(first), str(last))
        call_tool(layout, "anonymise", piece, str(part))
    return Recording(part, read_info(layout, part))


def as_scenario(layout: Layout, program: Program) -> Scenario:
    """The program itself, with what `run` costs around it, which is the same for every arm."""
    command = _run_command(layout, program)
    return Scenario(program.name, "command", command, cost="cpu", bundled_allocator=True)


def as_replay(layout: Layout, program: Program) -> Scenario:
    return row_of(target_of(layout, program), layout)


def _run_command(layout: Layout, program: Program) -> list[str]:
    command = ["/usr/bin/python3", str(_folder(layout) / "run"), program.name]
    return [*command, str(_input(layout)), str(layout.programs)]


def _folder(layout: Layout) -> Path:
    return layout.root / "bench" / "traces"


def _input(layout: Layout) -> Path:
    return folder_of(layout) / "input"


def _call(command: list[str], what: str) -> None:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise LabError(f"{what} failed: exit status {done.returncode}")
