# SPDX-License-Identifier: MIT OR Apache-2.0
"""docs/operations.md shows what the tool prints for examples/leaky, but for the numbers."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from leaky import leaky

from ebbtide_lab.base.layout import find_root
from ebbtide_lab.cli.main import main

PAGE = find_root() / "docs" / "operations.md"
BLOCK = re.compile(r"^```text\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
PID = "4711"  # in the document
LEFT_OUT = re.compile(r"^\.\.\.$", re.MULTILINE)
MASKS = (
    (r"0x[0-9a-f]+", "N"),
    (r"\S*/libebbtide\S*", "LIBRARY"),
    (r"\S*before\.ebb\.json\.?", "FILE"),
    (r"[\w.]+\.(cc|h):\d+", "FILE"),
    (r"[+-]?\d[\d,.]*(e[+-]\d+)?( ?(B|KiB|MiB|GiB|ms|s|min)\b)?", "N"),
    (r"\bstacks?\b", "stacks"),
    (r"[\s\u2500-\u257f]+", " "),
)
LOOKS = 100  # until what is read is not the middle of a report
RATE = ("--rate", "4000")  # two reports where the document has one


def masked(text: str) -> str:
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text)
    return text.strip()


def lacks(shown: str, printed: str) -> str:
    """The first of the document's pieces that is not there, in its order; empty: all are."""
    rest = masked(printed)
    for piece in filter(None, map(masked, LEFT_OUT.split(shown))):
        _, found, behind = rest.partition(piece)
        if not found:
            return piece
        rest = behind
    return ""


def shown() -> list[tuple[str, str]]:
    """Commands, and what they print."""
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return [each for block in blocks for each in COMMAND.findall(block)]


def by_ebb(command: str, pid: int, folder: Path) -> str:
    words = command.replace(PID, str(pid)).replace("before.ebb.json", f"{folder}/before.ebb.json")
    words = re.sub(r"--seconds \d+", "--seconds 1.3", words)
    columns = {"NO_COLOR": "1", "COLUMNS": "200"}
    done = CliRunner(env=columns).invoke(main, words.split()[1:])
    # By chance so short a look sees nothing: then it lacks all, and there is another.
    assert done.exit_code == 0 or "counts nothing" in done.output, done.output
    return done.stdout


def by_curl(_: str, pid: int, folder: Path) -> str:
    """What is served is what is written to a file."""
    by_ebb(f"ebb export {pid} --textfile {folder}", pid, folder)
    return (folder / "ebbtide.prom").read_text(encoding="utf-8")


def by_kill(_: str, pid: int, folder: Path) -> str:
    os.kill(pid, signal.SIGUSR2)
    time.sleep(0.1)
    return (folder / "stderr").read_text(encoding="utf-8")


PLAYED: dict[str, Callable[[str, int, Path], str]] = {
    "ebb": by_ebb,
    "curl": by_curl,
    "kill": by_kill,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    folder = tmp_path_factory.mktemp("leaky")
    with leaky("C++", folder, *RATE) as pid:
        yield pid, folder


def test_every_screen_of_the_walks_is_what_is_printed(server: tuple[int, Path]) -> None:
    pid, folder = server
    for command, output in shown():
        if command.endswith("&"):
            continue
        play = PLAYED[command.split()[0]]
        looks = 0
        while missing := lacks(output, play(command, pid, folder)):
            looks += 1
            assert looks < LOOKS, (command, missing)
            time.sleep(0.1)


def test_the_walks_show_each_verb_that_they_are_about() -> None:
    verbs = {command.split()[1] for command, _ in shown() if command.startswith("ebb ")}
    assert verbs == {"ps", "snapshot", "diff", "profile", "status", "export"}
    assert {"in-use", "allocated", "short-lived", "pinned"} == {
        (re.findall(r"--view (\S+)", command) or ["in-use"])[0]
        for command, _ in shown()
        if command.startswith("ebb profile")
    }


def test_what_is_not_printed_is_seen() -> None:
    printed = "7 blocks in use 3.00 MiB 40.1%\n 8 others 2 KiB\n"
    assert lacks("9 blocks in use 1 B 3%\n...\n 1 others 5 KiB\n", printed) == ""
    assert lacks("9 blocks in\n...\n0 others 7 KiB", printed) == ""
    assert lacks("9 blocks of use", printed) == "N blocks of use"
    assert lacks("others\n...\nblocks", printed) == "blocks"
