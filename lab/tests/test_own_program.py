# SPDX-License-Identifier: MIT OR Apache-2.0
"""`ebb bench -- COMMAND`: a program of the user's own under allocators."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from conftest import invoke, row, sample

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.scenarios import programs
from ebbtide_lab.show import own_program

ARMS = "glibc"  # there is no library in these tests
SERVER = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
while True:
    listening.accept()[0].close()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bench(layout: Layout, *arguments: str) -> tuple[int, str]:
    done = invoke(layout, "bench", "--arms", ARMS, "--runs", "1", "--out", "out", *arguments)
    return done.exit_code, " ".join(done.output.split())


def test_a_command_runs_where_the_user_stands_with_its_braces(layout: Layout, here: Path) -> None:
    code = "open('{made}.txt', 'a').write('x')"
    status, output = bench(
        layout,
        "--export-json",
        "a.json",
        "--export-markdown",
        "a.md",
        "--",
        sys.executable,
        "-c",
        code,
    )
    assert status == 0, output
    assert (here / "{made}.txt").read_text() == "x"
    data = json.loads((here / "a.json").read_text())
    assert data["command"] == [sys.executable, "-c", code]
    assert {arm["allocator"] for arm in data["arms"]} == {"glibc"}
    assert all(len(arm["runs"]["wall"]) == 1 for arm in data["arms"])
    text = (here / "a.md").read_text()
    assert shlex.join([sys.executable, "-c", code]) in text
    assert text.count("| glibc |") == 1


def test_a_command_that_fails_is_told_of(layout: Layout, here: Path) -> None:
    status, output = bench(layout, "--", "sh", "-c", "echo no luck >&2; exit 3")
    assert status == 1
    assert "failed under glibc: exit status 3: no luck" in output
    assert "Ebbtide has no run here" in output


def test_a_server_is_loaded_and_ended_by_a_signal(layout: Layout, here: Path) -> None:
    (here / "server.py").write_text(SERVER)
    socket = str(here / "s")
    command = f"import os, socket as s; s.socket(s.AF_UNIX).connect({socket!r})"
    load = shlex.join([sys.executable, "-c", f"{command}; os.unlink({socket!r})"])
    server = ["--", sys.executable, "server.py", socket]
    status, output = bench(layout, "--server", "--ready", socket, "--load", load, *server)
    assert status == 0, output
    assert "while it is loaded" in output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--"], "no command behind --"),
        (["quick", "--", "true"], "either names of sets"),
        (["--export-json", "x"], "for a command behind --"),
        (["--export-json", "/proc/x", "--", "true"], "cannot write /proc/x"),
        (["--ready", "x", "--", "true"], "belong together"),
        (["--server", "--ready", "1", "--load", "x"], "wants the server's command"),
        (["--", "./absent"], "cannot start ./absent"),
        (["--server", "--ready", "nowhere", "--load", "true", "--", "true"], "HOST:PORT"),
    ],
)
def test_what_cannot_be_is_one_line(
    layout: Layout, here: Path, arguments: list[str], complaint: str
) -> None:
    status, output = bench(layout, *arguments)
    assert status in (1, 2)
    assert complaint in output


def test_a_set_in_a_file(layout: Layout, here: Path) -> None:
    (here / "mine.toml").write_text(
        'arms = ["glibc"]\n[[scenario]]\nname = "nothing"\nkind = "command"\ncommand = ["true"]\n'
    )
    status, output = bench(layout, "mine.toml")
    assert status == 0, output
    assert "nothing" in output


def test_the_sentence_says_what_the_figures_do() -> None:
    runs = {"ebbtide": [sample(1.0, 900)] * 3, "glibc": [sample(2.0, 1000)] * 3}
    assert own_program.sentence(row(runs)) == (
        "row: Ebbtide is 50% faster than glibc, the fastest of the others; "
        "10% leaner than glibc, the leanest of the others."
    )
    noisy = {"ebbtide": [sample(cost) for cost in (1, 2, 3)], "glibc": [sample(2.1)] * 3}
    assert "not told apart from glibc" in own_program.sentence(row(noisy))


def test_a_load_without_a_command_is_refused() -> None:
    with pytest.raises(LabError, match="--load wants a command"):
        programs.of_command(["true"], programs.Server("h:1", " "), [])
