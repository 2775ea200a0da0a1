# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs one scenario once under one allocator and gives its figures.

Every figure set has wall_cost, cpu_cost (seconds for programs, nanoseconds per
operation for workloads) and peak_rss_kb, whatever the kind of the scenario.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from ebbtide_lab import SCHEMA
from ebbtide_lab.allocators import Allocator, over_bundled
from ebbtide_lab.errors import LabError, RunError
from ebbtide_lab.layout import WORKLOADS, Layout
from ebbtide_lab.scenarios import Scenario

TIMEOUT_S = 600
READY_TIMEOUT_S = 15
READY_POLL_S = 0.02
WITNESS = "libebb_witness.so"
Figures = dict[str, float]


def run(scenario: Scenario, allocator: Allocator, layout: Layout) -> Figures:
    """One run; raises RunError when it fails or when a check does not hold."""
    runners = {
        "workload": _run_workload,
        "command": _run_command,
        "server": _run_server,
        "start": _run_start,
    }
    if scenario.bundled_allocator:
        allocator = over_bundled(allocator)
    with tempfile.TemporaryDirectory(prefix="ebb-") as scratch:
        return runners[scenario.kind](scenario, allocator, layout, Path(scratch))


# --- processes -------------------------------------------------------------------


@contextmanager
def _process(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:  # noqa: ANN401
    """A child in a group of its own, which is gone when the block is left."""
    try:
        child = subprocess.Popen(command, text=True, start_new_session=True, **options)
    except OSError as error:
        raise RunError(f"cannot start {command[0]}: {error.strerror}") from error
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream:
                stream.close()


def _finish(command: list[str], **options: Any) -> str:  # noqa: ANN401
    """Runs to the end and gives standard output; a failure is a RunError."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with _process(command, **pipes) as child:
        try:
            output, errors = child.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise RunError(f"no end after {TIMEOUT_S} s") from error
        if child.returncode != 0:
            raise RunError(_why(child.returncode, errors))
        return output


def _why(code: int, errors: str) -> str:
    last = errors.strip().splitlines()[-1] if errors.strip() else "nothing on standard error"
    number = -code if code < 0 else code - 128
    if number in {each.value for each in signal.Signals}:
        return f"ended by {signal.Signals(number).name}: {last}"
    return f"exit status {code}: {last}"


# --- preloading and its proof -----------------------------------------------------


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


def _launch(
    scenario: Scenario, settings: dict[str, str], layout: Layout, report: Path
) -> list[str]:
    command = [str(layout.program("launch")), "--count", str(scenario.batch)]
    command += ["--report", str(report)]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return [*command, "--"]


def _read_report(report: Path) -> list[dict[str, float]]:
    data = json.loads(report.read_text(encoding="utf-8"))
    runs: list[dict[str, float]] = data["runs"]
    return runs


# --- the kinds --------------------------------------------------------------------


def _run_workload(
    scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path
) -> Figures:
    program, *arguments = scenario.command
    environment = dict(os.environ, LAB_EXPECT=allocator.expected)
    environment.pop("LD_PRELOAD", None)
    if allocator.path:
        environment["LD_PRELOAD"] = str(allocator.path)
    output = _finish([str(layout.program(program)), *arguments], env=environment, cwd=scratch)
    return read_workload(output, allocator)


def read_workload(output: str, allocator: Allocator) -> Figures:
    """The figures in a workload's JSON, after checking what it says of itself."""
    try:
        data = json.loads(output)
    except json.JSONDecodeError as error:
        raise RunError("the workload did not print JSON") from error
    if data["schema"] != SCHEMA:
        raise RunError(f"the workload prints schema {data['schema']}, this lab reads {SCHEMA}")
    if allocator.expected not in data["allocator"]:
        raise RunError(f"malloc came from {data['allocator']}, expected {allocator.expected}")
    failed = [name for name, holds in data["verified"].items() if not holds]
    if failed:
        raise RunError(f"the workload's check failed: {', '.join(failed)}")
    figures: Figures = data["figures"]
    costs = {"wall_cost": figures["wall_ns_per_op"], "cpu_cost": figures["cpu_ns_per_op"]}
    return {**figures, **costs}


def _run_command(
    scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path
) -> Figures:
    report, testimony = scratch / "report.json", scratch / "witness"
    settings = preload_settings(allocator, layout.program(WITNESS), testimony)
    command = _launch(scenario, settings, layout, report) + _fill(scenario.command, scratch)
    with _standard_input(scenario, scratch) as stdin:
        output = _finish(command, stdin=stdin, env=_environment(scenario), cwd=scratch)
    check_testimony(testimony, allocator)
    _check_made(scenario, scratch, output)
    return _program_figures(_read_report(report))


def _run_server(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Figures:
    report, testimony = scratch / "report.json", scratch / "witness"
    settings = preload_settings(allocator, layout.program(WITNESS), testimony)
    command = _launch(scenario, settings, layout, report) + _fill(scenario.command, scratch)
    log = scratch / "server.log"
    with log.open("w", encoding="utf-8") as server_log:
        options: dict[str, Any] = {"stdout": server_log, "stderr": server_log, "cwd": scratch}
        with _process(command, env=_environment(scenario), **options) as server:
            _await_ready(_fill(scenario.ready, scratch), server, log)
            started = time.monotonic()
            output = _finish(_fill(scenario.client, scratch), cwd=scratch)
            client_s = time.monotonic() - started
            _finish(_fill(scenario.stop, scratch), cwd=scratch)
            _await_end(server, log)
    check_testimony(testimony, allocator)
    _check_made(scenario, scratch, output)
    return {**_program_figures(_read_report(report)), "wall_cost": client_s}


def _run_start(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Figures:
    """A batch of starts without the witness, which would add to the time.

    What it proves, it proves on a start of its own before.
    """
    program = str(layout.program(scenario.command[0]))
    testimony, report = scratch / "witness", scratch / "report.json"
    proof = preload_settings(allocator, layout.program(WITNESS), testimony)
    _finish([program], env={**_environment(scenario), **proof})
    check_testimony(testimony, allocator)
    settings = {"LD_PRELOAD": str(allocator.path)} if allocator.path else {}
    command = [*_launch(scenario, settings, layout, report), program]
    _finish(command, env=_environment(scenario))
    return _program_figures(_read_report(report))


# --- small parts ------------------------------------------------------------------


def _fill(command: list[str], scratch: Path) -> list[str]:
    places = {"scratch": str(scratch), "workloads": str(WORKLOADS), "python": _python()}
    return [part.format_map(places) for part in command]


def _python() -> str:
    """The distribution's interpreter: that of a build from source may differ."""
    system = Path("/usr/bin/python3")
    return str(system) if system.is_file() else sys.executable


def _environment(scenario: Scenario) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    return {**clean, **scenario.env}


@contextmanager
def _standard_input(scenario: Scenario, scratch: Path) -> Iterator[Any]:
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
    return {**middle, "cpu_s": cpu_s, "wall_cost": middle["wall_s"], "cpu_cost": cpu_s}


def _await_ready(command: list[str], server: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RunError(_why(server.returncode, log.read_text(encoding="utf-8")))
        try:
            _finish(command)
            return
        except RunError:
            time.sleep(READY_POLL_S)
    raise RunError(f"the server did not answer in {READY_TIMEOUT_S} s")


def _await_end(server: subprocess.Popen[str], log: Path) -> None:
    try:
        code = server.wait(timeout=READY_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise RunError("the server did not stop when asked") from error
    if code != 0:
        raise RunError(_why(code, log.read_text(encoding="utf-8")))


def need_program(name: str) -> None:
    """A clear error now rather than a failed run later."""
    folders = os.get_exec_path()
    if not any(os.access(Path(folder) / name, os.X_OK) for folder in folders):
        raise LabError(f"{name} is not installed; `tools/setup run` installs it")
