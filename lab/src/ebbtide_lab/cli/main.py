# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command `ebb`."""

import errno
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import click

from ebbtide_lab import VERSION
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout, is_wheel

# The module of each verb: it is imported when the verb is asked for, since drawing
# and judging take half a second that `ebb run` has no use for.
VERBS = {
    "run": "run",
    "bench": "bench",
    "demo": "demo",
    "peers": "catalogue",
    "list": "catalogue",
    "report": "report",
    "charts": "charts",
    "compare": "compare",
    "doctor": "doctor",
    "status": "status",
    "profile": "profile",
    "ps": "ps",
    "trim": "trim",
    "options": "options",
    "snapshot": "snapshot",
    "diff": "diff",
    "export": "export",
    "top": "top",
    "published": "published",
    "record": "record",
    "replay": "replay",
    "trace": "trace",
    "traces": "traces",
}

# What works without a checkout, by what a wheel brings (the contract is in pyproject.toml).
SLIM = (
    *("run", "ps", "status", "top", "profile", "trim", "options"),
    *("snapshot", "diff", "export", "doctor"),
)


class Main(click.Group):
    """Turns the errors that a user can put right into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SLIM if is_wheel() else VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        if is_wheel() and cmd_name not in SLIM:
            raise click.UsageError(
                f"ebb {cmd_name} needs a checkout of Ebbtide: `make run` there", ctx
            )
        try:
            module = import_module(f"ebbtide_lab.cli.{VERBS[cmd_name]}")
        except Exception as error:  # what a generated module raises where protobuf is too old
            return _lacking(cmd_name, error)
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        if sys.stdout is None:
            sys.stdout = _Closed()
        with _told():  # --help and --version print here
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        with _told():
            done = super().invoke(ctx)
            sys.stdout.flush()
        return done


class _Closed(io.TextIOBase):
    """Standard output, closed by who started us: what prints nothing does without."""

    def write(self, _text: str) -> int:
        raise LabError("standard output is closed")


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except LabError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise click.ClickException(f"cannot write: {error.strerror}") from error


def _lacking(name: str, error: Exception) -> click.Command:
    """In place of a verb where a system's own Python packages will not do; the others go on."""
    words = f"ebb {name} lacks a Python package, or a newer one: {error}"

    def say() -> None:
        raise LabError(words)

    takes_all = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=say, help=words, context_settings=takes_all)


@click.group(
    cls=Main,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Completion in bash: eval "$(_EBB_COMPLETE=bash_source ebb)"; zsh and fish likewise.',
)
@click.version_option(VERSION, prog_name="ebb")
@click.option("--lib", type=click.Path(path_type=Path), help="Ebbtide's shared library.")
@click.option("--programs", type=click.Path(path_type=Path), help="Folder of the built bench/.")
@click.pass_context
def main(context: click.Context, lib: Path | None, programs: Path | None) -> None:
    """Run and measure programs under Ebbtide and other allocators."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of processes are of any letters
        sys.stdout.reconfigure(errors="replace")
    context.obj = Layout.of(lib, programs)
