# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs one scenario once under one allocator and gives its sample.

Every sample of a timed run has wall, cpu (seconds for programs, nanoseconds per
operation for workloads) and peak_rss_kb, whatever the kind of the scenario.
"""

import errno
import tempfile
from pathlib import Path

from ebbtide_lab.arms.allocators import Allocator, over_bundled
from ebbtide_lab.base.errors import LabError, RunError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure.counting import run_counted, run_traced
from ebbtide_lab.measure.http import run_http
from ebbtide_lab.measure.program import run_command, run_server, run_start
from ebbtide_lab.measure.replaying import run_replay
from ebbtide_lab.measure.workload import run_scheme, run_workload
from ebbtide_lab.results.model import Sample
from ebbtide_lab.scenarios.model import Scenario

RUNNERS = {
    "workload": run_workload,
    "command": run_command,
    "server": run_server,
    "start": run_start,
    "instructions": run_counted,
    "syscalls": run_traced,
    "scheme": run_scheme,
    "http": run_http,
    "replay": run_replay,
}


def run(scenario: Scenario, allocator: Allocator, layout: Layout) -> Sample:
    """One run; raises RunError when it fails or when a check does not hold, and
    NotRunError when the arm cannot do this at all."""
    if scenario.bundled_allocator:
        allocator = over_bundled(allocator)
    try:
        with tempfile.TemporaryDirectory(prefix="ebb-") as scratch:
            return RUNNERS[scenario.kind](scenario, allocator, layout, Path(scratch))
    except OSError as error:
        raise _of_files(error) from error


def _of_files(error: OSError) -> LabError:
    """A full disk is no fault of the arm: it ends the session, not the run alone."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return LabError(f"cannot write to {tempfile.gettempdir()}: {error.strerror}")
    return RunError(f"a file of the run: {error}")
