# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs unmodified programs: to their end, as a server, or started many times."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import IO

from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import RunError
from ebbtide_lab.base.layout import WORKLOADS, Layout
from ebbtide_lab.measure.preload import WITNESS, check_testimony, environment, preload_settings
from ebbtide_lab.measure.process import Options, finish, running, why
from ebbtide_lab.results.model import Figures, Sample
from ebbtide_lab.scenarios.model import SIGTERM, Scenario

READY_TIMEOUT_S = 15
READY_POLL_S = 0.02
SIGNALLED = 128  # an exit status above is that of a signal


def run_command(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Sample:
    report, testimony = scratch / "report.json", scratch / "witness"
    settings = preload_settings(allocator, layout.program(WITNESS), testimony)
    command = _launch(scenario, settings, layout, report) + _fill(scenario.command, scratch)
    with _standard_input(scenario, scratch) as stdin:
        output = finish(
            command, stdin=stdin, env=environment(scenario), cwd=_folder(scenario, scratch)
        )
    check_testimony(testimony, allocator)
    _check_made(scenario, scratch, output)
    return Sample(_program_figures(_read_report(report)))


def run_server(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Sample:
    report, testimony = scratch / "report.json", scratch / "witness"
    settings = preload_settings(allocator, layout.program(WITNESS), testimony)
    command = _launch(scenario, settings, layout, report) + _fill(scenario.command, scratch)
    log = scratch / "server.log"
    _check_silence(scenario, scratch)
    with log.open("w", encoding="utf-8") as server_log:
        folder = _folder(scenario, scratch)
        options: Options = {"stdout": server_log, "stderr": server_log, "cwd": folder}
        options["env"] = environment(scenario)
        with running(command, **options) as server:
            _await_ready(_fill(scenario.ready, scratch), server, log)
            started = time.monotonic()
            output = finish(_fill(scenario.client, scratch), cwd=folder)
            client_s = time.monotonic() - started
            _stop(scenario, server, scratch)
            _await_end(server, log)
    check_testimony(testimony, allocator)
    _check_made(scenario, scratch, output)
    return Sample({**_program_figures(_read_report(report)), "wall": client_s})


def _folder(scenario: Scenario, scratch: Path) -> Path:
    return Path(scenario.folder) if scenario.folder else scratch


def _stop(scenario: Scenario, server: subprocess.Popen[str], scratch: Path) -> None:
    """A signal goes to the server's group; `launch`, which leads it, waits for the server."""
    if scenario.stop == [SIGTERM]:
        os.killpg(server.pid, signal.SIGTERM)
    else:
        finish(_fill(scenario.stop, scratch), cwd=_folder(scenario, scratch))


def run_start(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Sample:
    """A batch of starts without the witness, which would add to the time.

    What it proves, it proves on a start of its own before.
    """
    program = str(layout.program(scenario.command[0]))
    testimony, report = scratch / "witness", scratch / "report.json"
    proof = preload_settings(allocator, layout.program(WITNESS), testimony)
    finish([program], env={**environment(scenario), **proof})
    check_testimony(testimony, allocator)
    settings = {"LD_PRELOAD": str(allocator.path)} if allocator.path else {}
    command = [*_launch(scenario, settings, layout, report), program]
    finish(command, env=environment(scenario))
    return Sample(_program_figures(_read_report(report)))


def _launch(
    scenario: Scenario, settings: dict[str, str], layout: Layout, report: Path
) -> list[str]:
    command = [str(layout.program("launch")), "--count", str(scenario.batch)]
    command += ["--report", str(report)]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return [*command, "--"]


def _read_report(report: Path) -> list[dict[str, float]]:
    try:
        runs: list[dict[str, float]] = json.loads(report.read_text(encoding="utf-8"))["runs"]
    except (json.JSONDecodeError, KeyError) as error:
        raise RunError("launch did not write its report") from error
    return runs


def _fill(command: list[str], scratch: Path) -> list[str]:
    places = {"scratch": str(scratch), "workloads": str(WORKLOADS), "python": _python()}
    return [part.format_map(places) for part in command]


def _python() -> str:
    """The distribution's interpreter: that of a build from source may differ."""
    system = Path("/usr/bin/python3")
    return str(system) if system.is_file() else sys.executable


@contextmanager
def _standard_input(scenario: Scenario, scratch: Path) -> Iterator[int | IO[str]]:
    if not scenario.stdin:
        yield subprocess.DEVNULL
        return
    (path,) = _fill([scenario.stdin], scratch)
    with open(path, encoding="utf-8") as stdin:
        yield stdin


def _check_made(scenario: Scenario, scratch: Path, output: str) -> None:
    """A run that did less than it should is no run."""
    if scenario.output not in output:
        raise RunError(f"the output lacks {scenario.output!r}")
    if not scenario.made:
        return
    made = scratch / scenario.made
    size_mb = made.stat().st_size / 1e6 if made.is_file() else 0
    if size_mb < scenario.made_mb:
        raise RunError(f"{scenario.made} has {size_mb:.0f} MB, wanted {scenario.made_mb:.0f}")


def _program_figures(runs: list[dict[str, float]]) -> Figures:
    """Medians over the runs of a batch."""
    middle = {name: median(each[name] for each in runs) for name in runs[0]}
    cpu_s = median(each["user_s"] + each["system_s"] for each in runs)
    return {**middle, "cpu_s": cpu_s, "wall": middle["wall_s"], "cpu": cpu_s}


def _check_silence(scenario: Scenario, scratch: Path) -> None:
    """Another's server would be measured for this one."""
    try:
        finish(_fill(scenario.ready, scratch), cwd=_folder(scenario, scratch))
    except RunError:
        return
    raise RunError("another server answers already")


def _await_ready(command: list[str], server: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RunError(why(server.returncode, log.read_text(encoding="utf-8")))
        try:
            finish(command)
            return
        except RunError:
            time.sleep(READY_POLL_S)
    raise RunError(f"the server did not answer in {READY_TIMEOUT_S} s")


def _await_end(server: subprocess.Popen[str], log: Path) -> None:
    try:
        code = server.wait(timeout=READY_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise RunError("the server did not stop when asked") from error
    if code not in (0, SIGNALLED + signal.SIGTERM):
        raise RunError(why(code, log.read_text(encoding="utf-8")))
