# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb options: what the options of a running process are set to, and to change one."""

import json
from dataclasses import asdict

import click

from ebbtide_lab.cli.pids import Pid
from ebbtide_lab.inspect import options
from ebbtide_lab.inspect.options import Option
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.options import print_options


@click.command("options")
@click.argument("pid", type=Pid())
@click.argument("assignment", metavar="[NAME=VALUE]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def options_command(pid: int, assignment: str | None, as_json: bool) -> None:
    """Show the options of the process PID, which has Ebbtide loaded, and where each came from.

    With NAME=VALUE that option is changed first, in the running process: EBB_PURGE_DELAY_MS=100.
    Most hold from the start of a process and cannot be.
    """
    if assignment is None:
        found = options.read(pid)
    else:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise click.UsageError(f"{assignment} is not NAME=VALUE")
        found = options.change(pid, name, text)
    if as_json:
        click.echo(json.dumps({"pid": pid, "options": [_facts(each) for each in found]}))
    else:
        print_options(found, open_console())


def _facts(option: Option) -> dict[str, object]:
    kept = {"name", "value", "source", "least", "most", "changes"}
    facts = {name: value for name, value in asdict(option).items() if name in kept}
    return facts | {"text": option.text, "unit": option.unit}
