# SPDX-License-Identifier: MIT OR Apache-2.0
"""What tests of the verbs share."""

import subprocess
import sys

from click.testing import Result

from ebbtide_lab.base.layout import Layout


def fault_of(done: Result) -> str:
    """The one line of a verb that could not do it."""
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit)
    assert done.output.startswith("Error: ")
    assert done.output.count("\n") == 1
    return done.output


def user_command(layout: Layout, *arguments: str) -> list[str]:
    code = "from ebbtide_lab.cli.main import main; main()"
    places = ["--lib", str(layout.lib), "--programs", str(layout.programs)]
    return [sys.executable, "-c", code, *places, *arguments]


def run_as_user(layout: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = user_command(layout, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
