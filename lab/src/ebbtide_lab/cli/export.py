# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb export: the accounts of running processes as metrics, for Prometheus and its like."""

import re
import socket
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast
from wsgiref.simple_server import WSGIRequestHandler, make_server

import click
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.files import replace_text
from ebbtide_lab.cli.pids import Pid
from ebbtide_lab.cli.ranges import FloatRange
from ebbtide_lab.inspect.scraping import Watch
from ebbtide_lab.measure import interrupts
from ebbtide_lab.show.metrics import registry_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ANY = "0.0.0.0"
PATH = "/metrics"
METHODS = ("GET", "HEAD")
MOST_PORT = 65535
ADDRESS = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{1,5})")
CLIENT_S = 30
FILE_NAME = "ebbtide.prom"


@click.command("export")
@click.argument("pid", type=Pid(), required=False)
@click.option(
    "--all", "is_all", is_flag=True, help="All processes that have Ebbtide, at each time."
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    help="Serve HTTP at HOST:PORT, :PORT (every address of the machine) or [IPV6]:PORT.",
)
@click.option(
    "--textfile",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Write DIR/{FILE_NAME} for node_exporter instead.",
)
@click.option(
    "--every",
    "every_s",
    type=FloatRange(0.1, 86400),
    metavar="SECONDS",
    help="With --textfile: write it again and again.",
)
def export_command(
    pid: int | None,
    is_all: bool,
    listen: str | None,
    folder: Path | None,
    every_s: float | None,
) -> None:
    """Tell of the heap of the process PID, which has Ebbtide loaded, as metrics.

    In the text format of Prometheus, or in OpenMetrics, by what the scraper asks for. A process
    that has ended or does not answer is left out and counted. Ends by Ctrl-C or SIGTERM.
    """
    if is_all == (pid is not None):
        raise click.UsageError("give a PID or --all")
    if (listen is None) == (folder is None):
        raise click.UsageError("give --listen or --textfile")
    if every_s is not None and folder is None:
        raise click.UsageError("--every is for --textfile")
    address = _address(listen) if listen is not None else None
    with closing(Watch(pid)) as watch, interrupts.kept():
        registry = registry_of(watch.round)
        if address is not None:
            _serve(registry, *address)
        elif folder is not None:
            _write(registry, folder)
            while every_s is not None:
                time.sleep(every_s)
                _write_again(registry, folder)


def _address(given: str) -> tuple[str, int]:
    found = ADDRESS.fullmatch(given)
    if found is None or int(found["port"]) > MOST_PORT:
        raise LabError(f"{given!r} is no address: give HOST:PORT, :PORT or [IPV6]:PORT")
    return found["six"] or found["host"] or ANY, int(found["port"])


def _app(registry: CollectorRegistry) -> "WSGIApplication":
    """At one path, so that a mistaken one is seen. HEAD is GET without the text."""
    metrics: WSGIApplication = make_wsgi_app(registry)

    def answer(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            start("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"The metrics are at {PATH}.\n".encode()]
        method = environ["REQUEST_METHOD"]
        if method not in METHODS:
            start("405 Method Not Allowed", [("Allow", ", ".join(METHODS))])
            return []
        if method != "HEAD":
            return metrics(environ, start)
        heads: list[tuple[str, list[tuple[str, str]]]] = []
        take = cast("StartResponse", lambda *head: heads.append(head))
        found = metrics({**environ, "REQUEST_METHOD": "GET"}, take)
        [(status, headers)] = heads
        start(status, [*headers, ("Content-Length", str(sum(map(len, found))))])
        return []

    return answer


class _Handler(WSGIRequestHandler):
    """Says nothing, and lets nobody who asks nothing keep a thread for long."""

    timeout = CLIENT_S

    def handle(self) -> None:
        with suppress(OSError):  # a client that goes away is no news
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server6(ThreadingWSGIServer):
    address_family = socket.AF_INET6


def _serve(registry: CollectorRegistry, host: str, port: int) -> None:
    where = f"[{host}]" if ":" in host else host
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        kind = _Server6 if family == socket.AF_INET6 else ThreadingWSGIServer
        server = make_server(host, port, _app(registry), kind, _Handler)
    except (OSError, UnicodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise LabError(f"cannot listen at {where}:{port}: {reason}") from error
    with server:
        click.echo(f"Metrics are at http://{where}:{server.server_port}{PATH}")
        server.serve_forever()


def _write(registry: CollectorRegistry, folder: Path) -> None:
    replace_text(folder / FILE_NAME, generate_latest(registry).decode())


def _write_again(registry: CollectorRegistry, folder: Path) -> None:
    """A full disk is no reason to end: it may not be full the next time."""
    try:
        _write(registry, folder)
    except LabError as error:
        click.echo(f"Warning: {error}", err=True)
