# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb traces, and bench/traces/run: programs of a list of our own are recorded."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import Result
from conftest import invoke
from test_cli import with_library
from test_record import ASKS, build
from test_replay import AS_EVER

from ebbtide_lab.base import layout as places
from ebbtide_lab.base.layout import Layout, find_root
from ebbtide_lab.cli import traces
from ebbtide_lab.measure.tracing import read_info

TRACES = find_root() / "bench" / "traces"
MAKES_INPUT = '#!/bin/sh\nmkdir -p "$1" && echo fork > "$1/word"\n'
# It writes `stopped` where it runs when it gets SIGTERM, and ends by itself, should it not.
LIVES_S = 20
SERVES = """
import pathlib, signal, socket, sys
signal.alarm(LIVES_S)
def stop(*_):
    pathlib.Path("stopped").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
if "deaf" not in sys.argv:
    listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    signal.pause()
"""


def table(name: str, command: list[str], **keys: object) -> str:
    """A program of programs.toml; JSON's strings and lists are TOML's."""
    told = {"name": name, "command": command, "packages": [], **keys}
    return "[[program]]\n" + "".join(f"{key} = {json.dumps(told[key])}\n" for key in told)


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the repository's `run`, and with programs of our own."""
    folder = tmp_path / "bench" / "traces"
    folder.mkdir(parents=True)
    shutil.copy(TRACES / "run", folder)
    (folder / "make-input").write_text(MAKES_INPUT, encoding="utf-8")
    (folder / "make-input").chmod(0o755)
    asks = str(build(tmp_path, "asks", ASKS))
    programs = [
        table("asks", [asks], quick=[0, 1000]),
        table("fails", ["/usr/bin/false"]),
        table("absent", ["/usr/bin/no-such-program"], packages=["one-package", "another"]),
        table("mute", [asks], record="another-file"),
        table("shell", ["/bin/sh", "-c", f"{asks} $(cat {{input}}/word)"], record="asks"),
    ]
    (folder / "programs.toml").write_text("\n".join(programs), encoding="utf-8")
    monkeypatch.setattr(places, "find_root", lambda: tmp_path)
    return tmp_path


def call(layout: Layout, *arguments: str) -> Result:
    return invoke(layout, "traces", *arguments)


def said(done: Result) -> str:
    return " ".join(done.output.split())


def test_a_program_is_recorded_once_and_again_if_asked(traced: Layout, listed: Path) -> None:
    done = call(traced, "asks")
    assert done.exit_code == 0, done.output
    path = listed / "build" / "traces" / "asks.ebt"
    info = read_info(traced, path)
    assert (info.name, info.mallocs) == ("asks", 2000)
    assert f"{info.events:,}" in done.output
    names = {each.name for each in path.parent.iterdir()}
    assert names == {"asks.ebt", "input"}
    path.write_bytes(b"")
    assert "1 of 1 are recorded already." in call(traced, "asks").output
    assert path.stat().st_size == 0
    assert call(traced, "asks", "--again").exit_code == 0
    assert read_info(traced, path).mallocs == 2000


def test_of_several_processes_the_largest_of_those_that_count_is_kept(
    traced: Layout, listed: Path
) -> None:
    done = call(traced, "shell")
    assert done.exit_code == 0, done.output
    info = read_info(traced, listed / "build" / "traces" / "shell.ebt")
    assert (info.name, info.mallocs) == ("asks", 4000)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("fails", "exit status 1"),
        ("absent", "/usr/bin/no-such-program is missing (one-package, another); `tools/setup"),
        ("mute", "no process that runs another-file asked malloc for anything"),
    ],
)
def test_a_program_that_fails_is_told_of_and_the_others_go_on(
    traced: Layout, listed: Path, name: str, why: str
) -> None:
    done = call(traced, name, "asks")
    assert done.exit_code == 1
    assert f"failed {name}: {why}" in said(done)
    names = {each.name for each in (listed / "build" / "traces").iterdir()}
    assert names == {"asks.ebt", "input"}


@pytest.mark.usefixtures("listed")
def test_an_unknown_name_is_an_error_with_those_that_there_are(traced: Layout) -> None:
    done = call(traced, "what")
    assert done.exit_code == 1
    assert "no program is called 'what'; there are asks, fails, " in said(done)


def test_the_part_for_the_repository_has_no_names(traced: Layout, listed: Path) -> None:
    missing = call(traced, "--quick")
    assert missing.exit_code == 1
    assert "asks.ebt is missing: `ebb traces asks` records it" in said(missing)
    assert call(traced, "asks").exit_code == 0
    done = call(traced, "--quick")
    assert done.exit_code == 0, done.output
    (part,) = (listed / "bench" / "traces" / "quick").iterdir()
    info = read_info(traced, part)
    assert (part.name, info.name, info.command) == ("asks.ebt", "unnamed", "")
    assert 0 < info.mallocs <= 1000


def test_programs_and_their_replays_are_compared(
    traced: Layout, listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "ARMS", ["ebbtide", "glibc", "ebbtide-again", "floor"])
    library = with_library(traced, listed, AS_EVER)
    assert call(library, "asks").exit_code == 0
    done = call(library, "asks", "--compare", "1")
    assert done.exit_code == 0, done.output
    for line in ("asks, CPU time, program", "asks, peak memory, replay"):
        (told,) = [each for each in done.output.splitlines() if each.startswith(line)]
        order = told.partition(": ")[2].split(", ")
        assert sorted(each.split()[0] for each in order) == ["ebbtide", "glibc"]
        assert order[0].endswith(" 1.00")


# --- bench/traces/run ------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, as a module."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader("traces_run", str(TRACES / "run"))
    spec = spec_from_loader("traces_run", loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def runner(run: ModuleType, folder: Path, **program: object) -> Any:  # noqa: ANN401
    taken = {"input": "/the/input", "programs": "/the/programs", "scratch": str(folder)}
    return run.Runner({"name": "it", **program}, taken)


def test_places_are_filled_and_other_braces_kept(run: ModuleType, tmp_path: Path) -> None:
    script = 'printf "%s\\n" "$@" "$PLACE" "$(pwd)" "$(cat)" >{scratch}/out'
    words = ["{input}/a", "{programs}/b", "{other}", "{}", "{ print $1 }", "map({name: .x})"]
    (tmp_path / "stdin").write_text("hello", encoding="utf-8")
    command = ["/bin/sh", "-c", script, "sh", *words]
    env = {"PLACE": "in {input}"}
    told = runner(run, tmp_path, command=command, env=env, stdin="{scratch}/stdin").run()
    assert told == 0
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines() == [
        *("/the/input/a", "/the/programs/b"),
        *words[2:],
        *("in /the/input", str(tmp_path), "hello"),
    ]


def test_the_program_alone_is_preloaded(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    tells = ["/bin/sh", "-c", 'echo "$0 ${LD_PRELOAD-without}" >>told']
    prepare, command = [[*tells, "before"]], [*tells, "program"]
    assert runner(run, tmp_path, prepare=prepare, command=command).run() == 0
    assert (tmp_path / "told").read_text(encoding="utf-8") == "before without\nprogram \n"


def test_the_exit_status_is_the_programs(run: ModuleType, tmp_path: Path) -> None:
    assert runner(run, tmp_path, command=["/bin/sh", "-c", "exit 5"]).run() == 5


def server(run: ModuleType, folder: Path, load: list[str], *words: str) -> Any:  # noqa: ANN401
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVES.replace("LIVES_S", str(LIVES_S)), str(port), *words]
    return runner(run, folder, command=command, port=port, load=load, stop="TERM")


def test_a_server_is_loaded_and_stopped(run: ModuleType, tmp_path: Path) -> None:
    assert server(run, tmp_path, ["/bin/touch", "{scratch}/loaded"]).run() == 0
    assert {each.name for each in tmp_path.iterdir()} == {"loaded", "stopped"}


def test_a_server_is_stopped_when_its_load_fails(run: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        server(run, tmp_path, ["/bin/false"]).run()
    assert (tmp_path / "stopped").is_file()


def test_a_server_that_does_not_accept_is_stopped_and_told_of(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "START_S", 0.2)
    started = time.monotonic()
    with pytest.raises(SystemExit, match="it does not accept at port"):
        server(run, tmp_path, ["/bin/true"], "deaf").run()
    assert time.monotonic() - started < LIVES_S / 2


def test_a_server_that_ends_is_not_waited_for(run: ModuleType, tmp_path: Path) -> None:
    ended = runner(run, tmp_path, command=["/bin/false"], port=1, load=["/bin/true"], stop="TERM")
    started = time.monotonic()
    with pytest.raises(SystemExit, match="does not accept at port 1"):
        ended.run()
    assert time.monotonic() - started < run.START_S / 2


def test_the_script_names_what_it_does_not_know(tmp_path: Path) -> None:
    for words, why in (
        (["what", str(tmp_path), str(tmp_path)], "programs.toml has no program 'what'"),
        (["what"], "usage: run NAME INPUT PROGRAMS"),
    ):
        command = [sys.executable, str(TRACES / "run"), *words]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 1
        assert why in done.stderr
    assert list(tmp_path.iterdir()) == []
