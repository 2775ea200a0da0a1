# SPDX-License-Identifier: MIT OR Apache-2.0
"""Children of the lab: started, awaited, never left behind."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypedDict, Unpack

from ebbtide_lab.base.errors import LabError, RunError

TIMEOUT_S = 600


class Options(TypedDict, total=False):
    """Those of subprocess that a run uses."""

    env: dict[str, str]
    cwd: Path
    stdin: int | IO[str]
    stdout: int | IO[str]
    stderr: int | IO[str]


class ExitError(RunError):
    """A program that ended with another exit status than 0."""

    def __init__(self, code: int, errors: str, output: str = "") -> None:
        super().__init__(why(code, errors))
        self.code = code
        self.output = output
        self.last_line = _last_line(errors)


@contextmanager
def running(command: list[str], **options: Unpack[Options]) -> Iterator[subprocess.Popen[str]]:
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


def finish(
    command: list[str], timeout_s: float | None = TIMEOUT_S, **options: Unpack[Options]
) -> str:
    """Runs to the end and gives standard output; a failure is a RunError."""
    pipes: Options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with running(command, **pipes) as child:
        try:
            output, errors = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise RunError(f"no end after {timeout_s} s") from error
        if child.returncode != 0:
            raise ExitError(child.returncode, errors, output)
        return output


def why(code: int, errors: str) -> str:
    last = _last_line(errors) or "nothing on standard error"
    number = -code if code < 0 else code - 128
    if number in {each.value for each in signal.Signals}:
        return f"ended by {signal.Signals(number).name}: {last}"
    return f"exit status {code}: {last}"


def _last_line(errors: str) -> str:
    return errors.strip().splitlines()[-1] if errors.strip() else ""


def need_program(name: str) -> None:
    """A clear error now rather than a failed run later."""
    folders = os.get_exec_path()
    if not any(os.access(Path(folder) / name, os.X_OK) for folder in folders):
        raise LabError(f"{name} is not installed; `tools/setup run` installs it")
