# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb profile: which functions allocated what a heap profile counts."""

import json
from pathlib import Path
from typing import TypedDict, Unpack

import click

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.cli.outputs import OutputFile
from ebbtide_lab.cli.pids import pid_of
from ebbtide_lab.cli.ranges import FloatRange
from ebbtide_lab.measure import pinning, profiling
from ebbtide_lab.profile import stacks, weights
from ebbtide_lab.profile.stacks import Profile
from ebbtide_lab.show import heap_page, heap_profile
from ebbtide_lab.show.console import open_console
from ebbtide_lab.show.heap_profile import Shown
from ebbtide_lab.show.status import human_bytes

TOP = 20
WATCH_S = 30
MEAN = 512 << 10
MEAN_PINNED = 32 << 10  # what pins is small, and little of it
PINNED = "pinned"
IN_USE = ("in-use", "in-use-objects", PINNED)
A_PATH = click.Path(path_type=Path)


class Asked(TypedDict):
    """The options, as click hands them over."""

    base: Path | None
    view: str
    by: str | None
    top: int
    focus: str | None
    as_tree: bool
    page: Path | None
    as_json: bool
    seconds: float | None
    mean: int | None


@click.command("profile")
@click.argument("file", type=A_PATH, metavar="FILE|PID")
@click.option("--base", "base", type=A_PATH, metavar="FILE2", help="Show what grew since.")
@click.option(
    "--view",
    type=click.Choice(list(weights.VIEWS)),
    default="in-use",
    show_default=True,
    help="What to count.",
)
@click.option(
    "--by",
    type=click.Choice(list(weights.GROUPS)),
    help="Tell apart what is in use by thread, label of a domain or age; what was allocated by"
    " lifetime.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    default=TOP,
    show_default=True,
    help="How many functions (with --base: stacks) to show.",
)
@click.option("--focus", metavar="REGEX", help="Only stacks with a function like this.")
@click.option("--tree", "as_tree", is_flag=True, help="Print who calls whom, down to 1 %.")
@click.option(
    "--html", "page", type=OutputFile(), metavar="OUT", help="Write a flame graph instead."
)
@click.option(
    "--seconds",
    type=FloatRange(0, 86400),
    help=f"Of a process: how long to watch it, or until Ctrl-C (default: {WATCH_S}).",
)
@click.option(
    "--mean",
    type=click.IntRange(1, 1 << 40),
    metavar="BYTES",
    help=f"Of a process that has no profile: from one sample to the next (default: {MEAN}; "
    f"for the view pinned {MEAN_PINNED}).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with all stacks.")
def profile_command(file: Path, **asked: Unpack[Asked]) -> None:
    """Show which functions allocated what a heap profile counts.

    FILE is in pprof's format, as EBB_PROFILE and ebb_profile_write make it; it may be packed
    by gzip. Or the profile is taken now, of the process PID that has Ebbtide loaded: what it
    allocates while it is watched. In use is what is left of all that a profile of it, also an
    earlier one, has seen. Names come from the programs' files.

    Short-lived is what was freed within a second of its allocation.

    The view pinned is the free memory that does not go back to the system because blocks in use
    lie on the same pages, shared out among these.
    """
    if sum((asked["as_tree"], asked["as_json"], asked["page"] is not None)) > 1:
        raise click.UsageError("--tree, --html and --json exclude each other")
    by, view = asked["by"] or "", asked["view"]
    _check_by(by, view)
    profile = _read(file, asked)
    base = stacks.read(asked["base"]) if asked["base"] else None
    found = weights.weigh(profile, base, view, by)
    if not found:
        raise _empty(profile, file, f"counts nothing for the view {view}")
    whole = weights.weigh(profile, base, weights.WHOLE[view]) if view in weights.WHOLE else []
    if asked["focus"]:
        found = weights.focus(found, asked["focus"])
        whole = weights.focus(whole, asked["focus"]) if whole else []
    warnings = list(dict.fromkeys([*profile.warnings, *(base.warnings if base else [])]))
    for each in warnings:
        click.echo(f"Warning: {each}", err=True)
    shown = Shown(profile, base, view, found, warnings, by, whole)
    if asked["as_json"]:
        click.echo(json.dumps(heap_profile.as_json(shown)))
    elif asked["page"]:
        _write(asked["page"], heap_page.render(shown))
    elif asked["as_tree"]:
        heap_profile.print_tree(shown, open_console())
    elif by:
        heap_profile.print_groups(shown, asked["top"], open_console())
    elif base is not None:
        heap_profile.print_growth(shown, asked["top"], open_console())
    else:
        heap_profile.print_functions(shown, asked["top"], open_console())


def _check_by(by: str, view: str) -> None:
    """Who allocated what was freed since is not kept, nor how long what is in use will be."""
    if by and (by == weights.LIFETIME) == (view in IN_USE):
        views = "what is allocated or short-lived" if view in IN_USE else "what is in use or pinned"
        raise click.UsageError(f"--by {by} is for views of {views}")


def _read(file: Path, asked: Asked) -> Profile:
    """One that is compared with may be empty, the one that is shown not."""
    pid = pid_of(file)
    if pid is not None:
        seconds = WATCH_S if asked["seconds"] is None else asked["seconds"]
        profile = _watch(pid, seconds, asked["mean"], asked["view"] == PINNED)
    elif asked["seconds"] is not None or asked["mean"] is not None:
        raise click.UsageError("--seconds and --mean are for a running process")
    else:
        profile = stacks.read(file)
    if not profile.stacks:
        what = "holds no sample: was anything allocated while the profile was on?"
        raise _empty(profile, file, what)
    return profile


def _empty(profile: Profile, file: Path, what: str) -> LabError:
    """A process may have allocated too little to have a sample."""
    mean = f"one sample is taken in {human_bytes(profile.period)} allocated"
    more = "" if profile.path == file else f" ({mean}; a smaller --mean takes more)"
    return LabError(f"{profile.path} {what}{more}")


def _watch(pid: int, seconds: float, mean: int | None, is_pinned: bool) -> Profile:
    if not is_pinned:
        return stacks.named(profiling.watch(pid, seconds, mean or MEAN))
    found = pinning.watch(pid, seconds, mean or MEAN_PINNED)
    profile = stacks.named(found.profile)
    if found.unseen:
        told = human_bytes(found.unseen)
        profile.warnings.append(
            f"{told} more is free and has not gone back: it was freed just now, or blocks keep it"
            " that no sample stands for"
        )
    return profile


def _write(page: Path, text: str) -> None:
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {page}: {error.strerror}") from error
