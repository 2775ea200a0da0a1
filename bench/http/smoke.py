#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Starts the server with one policy, sends good and bad requests, and ends it by SIGTERM.

    smoke.py PROGRAM POLICY [LIBRARY]     LIBRARY is preloaded
    smoke.py PROGRAM refusals             without Ebbtide: what must not start

Standard library alone. An answer must be right, not only there: the rows of an order follow from
its number, so each policy must give the very answer that a process with plain malloc gives.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import ClassVar

TIMEOUT_S = 30
KEPT_ALIVE = 300
GET = b"GET /order?id=7 HTTP/1.1\r\nHost: a\r\n"
TOTAL_OF_7 = 9719944


class Server:
    started: ClassVar[list["Server"]] = []

    def __init__(self, command: list[str], library: str) -> None:
        environment = dict(os.environ)
        if library:
            environment["LD_PRELOAD"] = library
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        Server.started.append(self)
        assert self.child.stdout
        line = self.child.stdout.readline()
        check(line.startswith("http: listening on port "), f"the server said {line!r}")
        self.port = int(line.split()[-1])
        self.answered = 0
        self.refused = 0

    def drain(self) -> dict[str, int]:
        self.child.send_signal(signal.SIGTERM)
        return self.finish()

    def finish(self) -> dict[str, int]:
        output, _ = self.child.communicate(timeout=TIMEOUT_S)
        check(self.child.returncode == 0, f"the server ended with {self.child.returncode}")
        check(output.count("\n") == 1, f"the report is not one line: {output!r}")
        return dict(json.loads(output))

    def count(self, status: int) -> None:
        self.answered += 1
        self.refused += status != 200


def check(holds: bool, message: str) -> None:
    if not holds:
        raise SystemExit(f"smoke: FAILED: {message}")


@contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as client:
        yield client


def read_all(client: socket.socket) -> bytes:
    pieces = []
    while piece := client.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def raw(server: Server, request: bytes) -> list[bytes]:
    """The status lines of all answers to these bytes, up to the server's close."""
    with connected(server) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        lines = [b"HTTP/1.1 " + each for each in read_all(client).split(b"HTTP/1.1 ")[1:]]
    for line in lines:
        if not line.startswith(b"HTTP/1.1 100"):
            server.count(int(line[9:12]))
    return lines


def ask(
    server: Server, client: HTTPConnection, method: str, path: str, body: str = ""
) -> tuple[int, bytes]:
    client.request(method, path, body or None)
    answer = client.getresponse()
    server.count(answer.status)
    return answer.status, answer.read()


def order(server: Server, client: HTTPConnection, number: int) -> bytes:
    status, body = ask(server, client, "GET", f"/order?id={number}")
    check(status == 200, f"order {number}: status {status}")
    found = json.loads(body)
    sizes = [found["lines"], found["products"], found["notes"]]
    check(found["id"] == number and sizes == [66, 72, 87], f"order {number} is {found}")
    return body


# ---- good requests ----------------------------------------------------------------


def send_good(server: Server) -> bytes:
    client = HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    bodies = [order(server, client, number) for number in range(KEPT_ALIVE)]
    check(len(set(bodies)) == KEPT_ALIVE, "two orders are the same")
    check(json.loads(bodies[7])["total_cents"] == TOTAL_OF_7, f"order 7 is {bodies[7]!r}")
    check(order(server, client, 7) == bodies[7], "order 7 has changed")
    for request in (
        ("GET", "/order?x=%20&id=%37"),
        ("POST", "/order", '{"id": 7}'),
    ):
        check(ask(server, client, *request) == (200, bodies[7]), f"{request}: not order 7")
    check(ask(server, client, "HEAD", "/order?id=7") == (200, b""), "HEAD has a body")
    client.close()
    return b"".join(bodies)


def send_odd_but_good(server: Server) -> None:
    pipelined = raw(server, (GET + b"\r\n") * 20 + GET + b"Connection: close\r\n\r\n" + GET)
    check(len(pipelined) == 21, f"{len(pipelined)} answers to 21 requests in one piece")
    empty_field = raw(server, b"GET /order?id=7 HTTP/1.1\r\nX-None:\r\nHost: a\r\n\r\n")
    check(empty_field[0].startswith(b"HTTP/1.1 200"), "a header without a value")
    check(raw(server, b"GET /order?id=7 HTTP/1.0\r\n\r\n")[0][9:12] == b"200", "HTTP/1.0")
    chunked = b"POST /order HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    check(
        raw(server, chunked + b'4\r\n{"id\r\n5\r\n": 7}\r\n0\r\n\r\n')[0][9:12] == b"200", "chunks"
    )
    expecting = (
        b"POST /order HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n"
    )
    answers = raw(server, expecting + b'{"id":7}')
    check([each[9:12] for each in answers] == [b"100", b"200"], "Expect: 100-continue")


def send_slowly(server: Server) -> None:
    """One byte at a time; others are answered in between, on every worker."""
    request = GET + b"Connection: close\r\n\r\n"
    client = HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    other = HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    with connected(server) as slow:
        for byte in request:
            slow.sendall(bytes([byte]))
            order(server, client, 1)
            order(server, other, 2)
        check(b"200 OK" in read_all(slow), "the slow client was not answered")
        server.count(200)
    client.close()
    other.close()


# ---- bad requests -----------------------------------------------------------------

BAD = [
    (400, b"junk\r\n\r\n"),
    (400, b"GET /order?id=7\r\n\r\n"),
    (400, b"GET /order?id=7 HTTP/1.1\r\n\r\n"),  # no Host
    (400, b"GET /order?id=7 HTTP/2.0\r\nHost: a\r\n\r\n"),
    (400, GET + b"Content-Length: x\r\n\r\n"),
    (400, GET + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (400, GET + b"bad name: 1\r\n\r\n"),
    (400, b"GET /order HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /order?id=seven HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /order?id=%zz HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /order?id=%00 HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /order?id=9999999999999999 HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b'POST /order HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n{"id":}'),
    (400, b'POST /order HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"id":-1}'),
    (404, b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"),
    (405, b"DELETE /order?id=7 HTTP/1.1\r\nHost: a\r\n\r\n"),
    (405, b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"),
    (413, GET + b"Content-Length: 65537\r\n\r\n"),
    (413, GET + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n" + bytes(0xFFFFF)),
    (414, b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
    (431, GET + b"X: " + b"a" * 100000 + b"\r\n\r\n"),
    (431, GET + b"X: 1\r\n" * 64 + b"\r\n"),
]


def send_bad(server: Server) -> None:
    for status, request in BAD:
        answers = [each[9:12] for each in raw(server, request)]
        check(answers == [b"%d" % status], f"{request[:60]!r}: {answers}, wanted {status}")


def send_and_vanish(server: Server) -> None:
    """Closes with a reset: in the middle of a request, of a header, of answers not read."""
    for request in (b"", b"GET /or", GET, GET + b"Content-Length: 9\r\n\r\n1"):
        with connected(server) as client:
            client.sendall(request)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with connected(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        try:
            while True:
                client.send((GET + b"\r\n") * 100)
        except BlockingIOError:
            pass  # the server does not read from a client that does not read
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def stay_silent(program: str, policy: str, library: str) -> None:
    """Half a request holds its connection no longer than --idle-s."""
    server = Server([program, "--policy", policy, "--idle-s", "1"], library)
    with connected(server) as half, connected(server) as none:
        half.sendall(GET)
        check(read_all(half) + read_all(none) == b"", "a silent client was answered")
    report = server.drain()
    check(report["aborted"] == 1 and report["connections"] == 2, f"silence: {report}")


# ---- the end ----------------------------------------------------------------------


def drain_in_the_middle(server: Server) -> dict[str, int]:
    """What has begun is answered, what is idle is closed, nobody new is accepted."""
    with connected(server) as idle, connected(server) as begun:
        begun.sendall(GET)
        server.child.send_signal(signal.SIGTERM)
        check(read_all(idle) == b"", "an idle connection was not closed")
        begun.sendall(b"\r\n")
        answer = read_all(begun)
        server.count(200)
        check(b"200 OK" in answer and b"Connection: close" in answer, f"drained with {answer!r}")
        return server.finish()


def check_policy(program: str, policy: str, library: str) -> None:
    server = Server([program, "--policy", policy], library)
    bodies = send_good(server)
    send_odd_but_good(server)
    send_slowly(server)
    send_bad(server)
    report = drain_in_the_middle(server)
    wanted: dict[str, object] = {"requests": server.answered, "refused": server.refused}
    wanted |= {"aborted": 0, "failed_allocations": 0, "policy": policy}
    wrong = {name: report[name] for name, value in wanted.items() if report[name] != value}
    check(not wrong, f"the report has {wrong}, wanted {wanted}")
    served = report["requests"] - report["refused"]
    check(report["allocations"] > 225 * served, f"too few allocations: {report}")
    check(report["allocated_bytes"] > 51768 * served, f"too few bytes: {report}")

    plain = Server([program, "--policy", "malloc"], "")
    check(send_good(plain) == bodies, "the policy changes the answers")
    plain.drain()

    stay_silent(program, policy, library)
    harassed = Server([program, "--policy", policy, "--drain-s", "0"], library)
    send_and_vanish(harassed)
    check(send_good(harassed) == bodies, "clients that vanish change the answers")
    report = harassed.drain()
    check(report["aborted"] >= 3, f"aborted connections were not counted: {report}")


def check_refusals(program: str) -> None:
    for arguments, message in (
        (["--policy", "region"], "wants Ebbtide"),
        (["--policy", "domain"], "wants Ebbtide"),
        (["--policy", "domain-0"], "--policy wants"),
        (["--policy", "none"], "--policy wants"),
        (["--port", "65536"], "from 0 to 65535"),
        (["--workers", "0"], "from 1 to 64"),
        (["--workers"], "a value is missing"),
        (["--what", "1"], "no such option"),
    ):
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        check(done.returncode == 2, f"{arguments}: exit status {done.returncode}")
        check(message in done.stderr and not done.stdout, f"{arguments}: {done.stderr!r}")


def main() -> None:
    program, policy, *library = sys.argv[1:]
    try:
        if policy == "refusals":
            check_refusals(program)
        else:
            check_policy(program, policy, "".join(library))
    finally:
        for server in Server.started:
            server.child.kill()


main()
