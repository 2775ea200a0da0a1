# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb bench: measure sets of scenarios, or a program of the user's own."""

from pathlib import Path
from typing import TypedDict, Unpack

import click

from ebbtide_lab.arms import allocators
from ebbtide_lab.arms.allocators import FLOOR
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli import complete, safety
from ebbtide_lab.cli.measuring import Own, Request, measure, split_names
from ebbtide_lab.cli.outputs import OutputFile
from ebbtide_lab.scenarios import programs

COMMAND = "ebbtide_lab.command"  # in the context: what stands behind --


class Asked(TypedDict):
    """The options of ebb bench."""

    server: bool
    ready: str | None
    load: str | None
    export_json: Path | None
    export_markdown: Path | None
    runs: int | None
    arms: str | None
    out: Path | None
    resume: bool
    planted: int


class Bench(click.Command):
    """Keeps what stands behind `--`, a program of the user's own, apart from names of sets."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, dashes, command = args, [], []
        if "--" in args:
            at = args.index("--")
            own, dashes, command = args[:at], args[at : at + 1], args[at + 1 :]
        ctx.meta[COMMAND] = command
        if dashes and not command:
            raise click.UsageError("no command behind --", ctx)
        return super().parse_args(ctx, own)


@click.command("bench", cls=Bench)
@click.argument(
    "names", nargs=-1, metavar="[NAME|FILE.toml]... | -- COMMAND", shell_complete=complete.workloads
)
@click.option("--server", is_flag=True, help="COMMAND serves: --load is what is measured.")
@click.option(
    "--ready", metavar="URL", help="Answers when the server does; or HOST:PORT, or a path."
)
@click.option("--load", metavar="COMMAND", help="What loads the server, in quotes.")
@click.option("--export-json", type=OutputFile(), help="Every run of COMMAND.")
@click.option("--export-markdown", type=OutputFile(), help="The table of COMMAND.")
@click.option(
    "--runs", type=click.IntRange(1, 1000), help="Runs of each allocator (default: the set's)."
)
@click.option(
    "--arms",
    help="Comma-separated allocators (default: the set's).",
    shell_complete=complete.arms,
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the raw results.")
@click.option("--resume", is_flag=True, help="Go on with the runs that --out's folder holds.")
@click.option(
    "--plant-percent",
    "planted",
    type=click.IntRange(0, 100),
    default=0,
    help="Test of the lab itself: slow Ebbtide down by this much.",
)
@click.pass_obj
def bench_command(layout: Layout, names: tuple[str, ...], **asked: Unpack[Asked]) -> None:
    """Measure sets (default: quick), single scenarios, sets in files, or a program of your own.

    `ebb bench -- COMMAND` runs COMMAND under every allocator and tells its time, CPU time
    and peak memory; a server with `--server --ready URL --load 'wrk ...' -- COMMAND`.

    `ebb bench safety` runs the misuse of tests/security under each allocator that is at hand
    (or --arms), and tells who catches how much of it; `safety/REGEX` some cases.
    """
    if safety.is_asked(names):
        _refuse_others(asked)
        safety.bench_safety(layout, names, split_names(asked["arms"]))
        return
    if asked["resume"] and not asked["out"]:
        raise click.UsageError("--resume wants --out, the folder to go on with")
    own = _own_program(layout, names, asked)
    request = Request(
        names=list(names) or ([] if own else ["quick"]),
        own=own,
        arms=split_names(asked["arms"]),
        runs=asked["runs"],
        out=asked["out"],
        resume=asked["resume"],
        planted=asked["planted"],
    )
    measure(layout, request)


def _refuse_others(asked: Asked) -> None:
    given = [name for name, what in asked.items() if what and name != "arms"]
    if given or click.get_current_context().meta[COMMAND]:
        raise click.UsageError(f"of the options, {safety.NAME} takes --arms alone")


def _own_program(layout: Layout, names: tuple[str, ...], asked: Asked) -> Own | None:
    """The command behind `--`, as a set."""
    command: list[str] = click.get_current_context().meta[COMMAND]
    if names and command:
        raise click.UsageError("either names of sets, or -- and a command")
    if not command and (asked["export_json"] or asked["export_markdown"]):
        raise click.UsageError("the exports are for a command behind --; sets have --out")
    if len({asked["server"], bool(asked["ready"]), bool(asked["load"])}) > 1:
        raise click.UsageError("--server, --ready and --load belong together")
    if asked["server"] and not command:
        raise click.UsageError("--server wants the server's command behind --")
    if not command:
        return None
    ready, load = asked["ready"] or "", asked["load"] or ""
    server = programs.Server(ready, load) if asked["server"] else None
    options = ["--server", "--ready", ready, "--load", load] if server else []
    peers = [name for name in allocators.names(layout) if name != FLOOR]
    group = programs.of_command(command, server, peers)
    return Own(command, group, options, asked["export_json"], asked["export_markdown"])
