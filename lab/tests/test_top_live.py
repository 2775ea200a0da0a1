# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb top on processes that run, end, or refuse; the pictures of the documentation."""

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_profile_live import LEAKS, mean, under_ebbtide
from test_stalls import WAITS, build, started
from textual.pilot import Pilot
from top_data import (
    NOBODY,
    PICTURES,
    picture,
)
from top_screen import play, rows, shows, until
from verbs import fault_of

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import find_root
from ebbtide_lab.cli import top as top_verb
from ebbtide_lab.cli.main import main
from ebbtide_lab.inspect import control
from ebbtide_lab.inspect.heap import Subject
from ebbtide_lab.show.top.app import Top

# --- real processes -------------------------------------------------------------------


def top_of(pid: int) -> Top:
    subject = Subject(pid)
    return Top(subject.look(), subject, lambda: top_verb._sampler(pid), 0.2)


def test_what_breaks_it_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_verb, "_has_terminal", lambda: True)
    monkeypatch.setattr(Top, "run", lambda app: app.exit(return_code=1))
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        assert CliRunner().invoke(main, ["top", str(pid)]).exit_code == 1


BECOMES = """
#include <signal.h>
#include <unistd.h>
static void become(int number) { (void)number; execlp("sleep", "sleep", "60", (char *)0); }
__attribute__((constructor)) static void begin(void) { signal(SIGUSR1, become); }
"""


def test_a_process_that_executes_another_program_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under_ebbtide(BECOMES + LEAKS, tmp_path, monkeypatch) as pid:

        async def steps(app: Top, pilot: Pilot[None]) -> None:
            os.kill(pid, signal.SIGUSR1)
            await until(pilot, lambda: shows(app, f"Process {pid} is another program now. Below"))

        play(top_of(pid), steps)


def test_a_running_process_is_watched_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        app = top_of(pid)

        async def steps(app: Top, pilot: Pilot[None]) -> None:
            await until(pilot, lambda: app._shown.earlier is not None)
            assert shows(app, f"program {pid}   Ebbtide 0.1.0")
            assert any(line.startswith("3.00 KiB") for line in rows(app))
            await pilot.press("3")
            await until(pilot, lambda: rows(app)[0].split()[:2] == [str(pid), "program"])
            await pilot.press("4")
            await until(pilot, lambda: shows(app, "1 thread takes part in reclamation"))
            os.kill(pid, signal.SIGKILL)
            await until(pilot, lambda: shows(app, f"Process {pid} has ended."))
            await pilot.press("q")
            assert not app.is_running

        play(app, steps)


def test_the_profile_is_on_from_its_tab_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        app = top_of(pid)

        async def steps(app: Top, pilot: Pilot[None]) -> None:
            assert mean(pid) == 0
            await pilot.press("5")
            await until(pilot, lambda: shows(app, "leak_a_session < main"))
            assert mean(pid) != 0

        play(app, steps)
        assert mean(pid) == 0


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_verb, "_has_terminal", lambda: True)
    monkeypatch.setattr(Top, "run", lambda app: pytest.fail("it began"))


def fault(*arguments: object) -> str:
    return fault_of(CliRunner().invoke(main, ["top", *map(str, arguments)]))


@pytest.mark.usefixtures("terminal")
def test_what_cannot_be_watched_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ANSWERS_WITHIN_S", 0.1)
    assert f"no process has the number {NOBODY}" in fault(NOBODY)
    with started(build(WAITS, tmp_path / "plain")) as pid:
        assert f"process {pid} has no Ebbtide in it" in fault(pid)
    with under_ebbtide(WAITS, tmp_path, monkeypatch) as pid:
        assert f"process {pid} does not answer" in fault(pid)

        def refuse(pid: int, _: int) -> None:
            raise LabError(f"not allowed to write the memory of process {pid}")

        monkeypatch.setattr(top_verb, "Subject", refuse)
        assert f"not allowed to write the memory of process {pid}" in fault(pid)


@pytest.mark.usefixtures("terminal")
def test_a_system_without_its_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ebbtide_lab.show.top.app", None)
    assert "ebb top needs the Python package textual" in fault(os.getpid())
    assert CliRunner().invoke(main, ["--help"]).exit_code == 0


@pytest.mark.usefixtures("terminal")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_process_of_another_user_is_told() -> None:
    assert "not allowed to read the memory of process 1" in fault(1)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("interval", ["0.1", "3601", "nan", "soon"])
def test_an_interval_has_its_bounds(interval: str) -> None:
    done = CliRunner().invoke(main, ["top", "1", "--interval", interval])
    assert done.exit_code == 2


def test_without_a_terminal_another_verb_is_named() -> None:
    assert "ebb top needs a terminal; ebb status --watch does without" in fault(os.getpid())


TOP_CODE = "from ebbtide_lab.cli.main import main; main()"


def on_a_terminal(pid: int, environment: dict[str, str]) -> Iterator[bytes]:
    """What `ebb top` writes there; it is told to leave when all of its screen is there."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(environment, TERM="xterm-256color")
        os.execv(sys.executable, [sys.executable, "-c", TOP_CODE, "top", str(pid)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    seen = b""
    try:
        while b"Help" not in seen:
            seen += os.read(terminal, 65536)
        yield seen
        os.write(terminal, b"\xff")  # of a terminal that speaks Latin-1
        while more := os.read(terminal, 65536):
            seen += more
            os.write(terminal, b"q")
    except OSError:  # it has closed the terminal
        pass
    finally:
        os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"Traceback" not in seen


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}])
def test_it_runs_on_a_terminal_in_colour_and_without(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        (seen,) = on_a_terminal(pid, environment)
    assert b"blocks in use" in seen
    colours = re.findall(rb"\x1b\[[\d;]*[34]8;[25];", seen)
    assert bool(colours) != bool(environment)


@pytest.mark.parametrize("ignored", [None, signal.SIGHUP])  # as below nohup
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_leaves_the_terminal_as_it_was(
    number: signal.Signals,
    ignored: signal.Signals | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler = "SIG_DFL" if ignored is None else "SIG_IGN"  # whatever this process does with them
    code = (
        "import signal; signal.signal(signal.SIGQUIT, signal.SIG_DFL); "
        f"signal.signal(signal.SIGHUP, signal.{handler}); {TOP_CODE}"
    )
    ends_by = number if number != ignored else signal.SIGTERM
    far, near = pty.openpty()  # `near` can be looked at behind the end
    before = termios.tcgetattr(near)
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        command = [sys.executable, "-c", code, "top", str(pid)]
        environment = {**os.environ, "TERM": "xterm-256color"}
        top = subprocess.Popen(command, stdin=near, stdout=near, stderr=near, env=environment)
        seen = b""
        while b"Help" not in seen:
            seen += os.read(far, 65536)
        assert termios.tcgetattr(near) != before
        top.send_signal(number)
        if ends_by != number:
            time.sleep(0.2)  # it would end by the first
            top.send_signal(ends_by)
        while top.poll() is None or select.select([far], [], [], 0)[0]:
            if select.select([far], [], [], 0.1)[0]:
                seen += os.read(far, 65536)
    assert top.returncode == -ends_by
    assert termios.tcgetattr(near) == before
    assert seen.rfind(b"\x1b[?1049l") > seen.rfind(b"\x1b[?1049h")
    os.close(far)
    os.close(near)


# --- the pictures of the documentation ------------------------------------------------


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_are_those_of_the_screen(name: str) -> None:
    """`python tests/top_data.py` writes them."""
    kept = find_root() / "docs" / "figures" / f"{name}.svg"
    assert kept.read_text(encoding="utf-8") == asyncio.run(picture(name))
