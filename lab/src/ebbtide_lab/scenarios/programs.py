# SPDX-License-Identifier: MIT OR Apache-2.0
"""A set that a user asks for on the command line: one program of his own."""

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.scenarios.model import SIGTERM, Scenario, ScenarioSet

SET = "command"
# Asks once; the harness asks again until it is answered.
ASK_URL = "import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=2)"
ASK_PORT = "import sys, socket as s; s.create_connection((sys.argv[1], int(sys.argv[2])), 2)"
ASK_SOCKET = "import sys, socket as s; s.socket(s.AF_UNIX).connect(sys.argv[1])"


@dataclass(frozen=True)
class Server:
    """`ready`: a URL, HOST:PORT or a socket's path that answers when the load may start."""

    ready: str
    load: str


def of_command(command: list[str], server: Server | None, arms: list[str]) -> ScenarioSet:
    """The command runs where the user stands, with the environment that he has."""
    name = Path(command[0]).name
    literal, here = [_literal(part) for part in command], os.getcwd()
    if server is None:
        row = Scenario(name, "command", literal, cost="wall", folder=here, bundled_allocator=True)
    else:
        row = Scenario(
            name,
            "server",
            literal,
            ready=[_literal(part) for part in _ask(server.ready)],
            client=[_literal(part) for part in _split(server.load)],
            stop=[SIGTERM],
            folder=here,
            bundled_allocator=True,
        )
    row.check("the command line")
    return ScenarioSet(SET, shlex.join(command), arms, [row])


def as_given(command: list[str]) -> list[str]:
    """The words of a command in such a set, as the user wrote them."""
    return [part.format() for part in command]


def _literal(part: str) -> str:
    return part.replace("{", "{{").replace("}", "}}")


def _split(load: str) -> list[str]:
    try:
        parts = shlex.split(load)
    except ValueError as error:
        raise LabError(f"--load {load!r}: {error}") from error
    if not parts:
        raise LabError("--load wants a command")
    return parts


def _ask(ready: str) -> list[str]:
    python = [sys.executable, "-I", "-S", "-c"]
    if ready.startswith(("http://", "https://")):
        return [*python, ASK_URL, ready]
    if ready.startswith("/"):
        return [*python, ASK_SOCKET, ready]
    host, colon, port = ready.rpartition(":")
    if not colon or not port.isdigit():
        raise LabError(f"--ready wants a URL, HOST:PORT or a socket's path, not {ready!r}")
    return [*python, ASK_PORT, host or "localhost", port]
