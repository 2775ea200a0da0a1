# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a shell offers at Tab. Only files of the checkout are read: nothing is built or loaded."""

import click
from click.shell_completion import CompletionItem

from ebbtide_lab.arms import allocators
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.scenarios import model as scenarios


def workloads(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Sets and scenarios; after a slash the scenarios of that set."""
    try:
        sets = scenarios.load_all()
    except LabError:
        return []
    names = [each.name for group in sets.values() for each in group.scenarios]
    if "/" in incomplete:
        names = [f"{group.name}/{each.name}" for group in sets.values() for each in group.scenarios]
        return _beginning(names, incomplete)
    return _beginning([scenarios.FULL, *sets, *names], incomplete)


def allocator(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        return _beginning(allocators.names(Layout.of(None, None)), incomplete)
    except LabError:
        return []


def arm(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Allocators, and what the sets run beside them: schemes and ways."""
    return _beginning(_arms(), incomplete)


def arms(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The last one of a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    left = [each for each in _arms() if each not in before.split(",")]
    return _beginning([f"{before}{comma}{each}" for each in left if each.startswith(last)])


def _arms() -> list[str]:
    try:
        of_sets = [each for group in scenarios.load_all().values() for each in group.arms]
        return [*allocators.names(Layout.of(None, None)), *allocators.OWN, *of_sets]
    except LabError:
        return []


def _beginning(names: list[str], incomplete: str = "") -> list[CompletionItem]:
    return [CompletionItem(each) for each in dict.fromkeys(names) if each.startswith(incomplete)]
