# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the server of bench/http under an allocator, with the policy of the arm's way, and loads it.

The load is wrk's closed loop, each connection asking again when it has its answer, or the
open loop of http_load, whose arrivals wait for nobody. Either runs under glibc on
the processors that the server has too: its own share is the same for every arm.
"""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from ebbtide_lab.arms import ways
from ebbtide_lab.arms.allocators import GLIBC, Allocator
from ebbtide_lab.base.errors import LabError, NotRunError, RunError
from ebbtide_lab.base.layout import WORKLOADS, Layout
from ebbtide_lab.measure.preload import WITNESS, check_testimony, environment, preload_settings
from ebbtide_lab.measure.process import Options, finish, running, why
from ebbtide_lab.measure.workload import read_workload
from ebbtide_lab.results.model import Figures, Sample
from ebbtide_lab.scenarios.model import Scenario

LISTENING = "http: listening on port "
WRK = "wrk"
# The server's --policy by the way of the arm; batch-K is domain-K.
POLICIES = {
    "": "malloc",
    "per-request": "domain",
    "never": "domain-never",
    "region": "region",
    "region-reset": "region-reset",
}
# Of the client's figures, those that are about the server.
TOLD = ("request", "late_", "waited", "rate")
DRAIN_TIMEOUT_S = 30


def policy_of(way: str) -> str:
    batch = ways.BATCH.fullmatch(way)
    if batch:
        return f"domain-{batch[1]}"
    if way not in POLICIES:
        raise NotRunError(f"the server has no policy for the way {way}")
    return POLICIES[way]


def run_http(scenario: Scenario, allocator: Allocator, layout: Layout, scratch: Path) -> Sample:
    policy = policy_of(allocator.way)
    _need(scenario.command[0], layout)
    testimony, log = scratch / "witness", scratch / "server.log"
    settings = preload_settings(allocator, layout.program(WITNESS), testimony)
    command = _fill([*scenario.command, "--policy", policy], layout)
    with log.open("w", encoding="utf-8") as errors:
        options: Options = {"stdout": subprocess.PIPE, "stderr": errors, "cwd": scratch}
        options["env"] = {**environment(scenario), **settings}
        with running(command, **options) as server:
            port = _await_port(server, log)
            client = _load(scenario, layout, scratch, port)
            report = _drain(server, log)
    check_testimony(testimony, allocator)
    return _sample(client, report, policy)


def _need(program: str, layout: Layout) -> None:
    """Builds the programs of bench/ when the server is missing. One that cannot be built
    for want of a library fails this row alone."""
    try:
        layout.program(Path(program).name)
    except LabError as error:
        raise RunError(f"{error} It wants llhttp and Jansson: `tools/setup run`") from error


def _fill(command: list[str], layout: Layout, port: int = 0) -> list[str]:
    places = {"programs": layout.programs, "workloads": WORKLOADS, "port": port}
    return [part.format_map(places) for part in command]


# --- the server -------------------------------------------------------------------


def _await_port(server: subprocess.Popen[str], log: Path) -> int:
    assert server.stdout
    line = server.stdout.readline()
    port = line.removeprefix(LISTENING).strip()
    if line == port or not port.isdigit():
        raise RunError(f"the server does not listen: {_reason(server, log)}")
    return int(port)


def _drain(server: subprocess.Popen[str], log: Path) -> dict[str, Any]:
    """Asks the server to end, and gives what it counted."""
    server.send_signal(signal.SIGTERM)
    try:
        output, _ = server.communicate(timeout=DRAIN_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise RunError("the server did not stop when asked") from error
    if server.returncode != 0:
        raise RunError(_reason(server, log))
    try:
        return dict(json.loads(output))
    except (json.JSONDecodeError, TypeError, ValueError) as error:
        raise RunError("the server did not print its counts") from error


def _reason(server: subprocess.Popen[str], log: Path) -> str:
    return why(server.wait(timeout=DRAIN_TIMEOUT_S), log.read_text(encoding="utf-8"))


# --- the client -------------------------------------------------------------------


def _load(scenario: Scenario, layout: Layout, scratch: Path, port: int) -> Sample:
    client = _fill(scenario.client, layout, port)
    glibc = Allocator(GLIBC, None)
    settings = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    output = finish(client, env={**settings, "LAB_EXPECT": glibc.expected}, cwd=scratch)
    return read_wrk(output) if client[0] == WRK else read_workload(output, glibc)


def read_wrk(output: str) -> Sample:
    """What workloads/orders.lua prints behind wrk's own words."""
    try:
        told = json.loads(output.strip().splitlines()[-1])
        errors = {name: count for name, count in told["errors"].items() if count}
        if errors or told["requests"] <= 0:
            raise RunError(f"wrk met errors: {errors}" if errors else "wrk had no answer")
        latencies = {f"request_{name}_ns": 1e3 * us for name, us in told["us"].items()}
        return Sample({"requests_per_s": told["requests"] / told["s"], **latencies})
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise RunError("wrk did not print its figures") from error


# --- both -------------------------------------------------------------------------


def _sample(client: Sample, report: dict[str, Any], policy: str) -> Sample:
    """The client's latencies and rate, the server's time and memory."""
    try:
        told = {name: value for name, value in client.figures.items() if name.startswith(TOLD)}
        told["wall"] = 1e9 / told["requests_per_s"]
        told |= _server_figures(report, policy)
    except (KeyError, TypeError) as error:
        raise RunError(f"the server's counts are not as they should be: {error!r}") from error
    return Sample(told, histograms=client.histograms)


def _server_figures(report: dict[str, Any], policy: str) -> Figures:
    if report["policy"] != policy:
        raise RunError(f"the server's policy was {report['policy']}, wanted {policy}")
    if report["failed_allocations"] or report["refused"]:
        refused, failed = report["refused"], report["failed_allocations"]
        raise RunError(f"the server refused {refused} requests, {failed} allocations failed")
    requests = report["requests"]
    if requests <= 0:
        raise RunError("the server answered no request")
    cpu_s = report["user_s"] + report["system_s"]
    return {
        "cpu": 1e9 * cpu_s / requests,
        "user_ns_per_request": 1e9 * report["user_s"] / requests,
        "cpu_s": cpu_s,
        "requests": requests,
        "allocations_per_request": report["allocations"] / requests,
        "bytes_per_request": report["allocated_bytes"] / requests,
        "rss_kb": report["rss_kb"],
        "peak_rss_kb": report["peak_rss_kb"],
    }
