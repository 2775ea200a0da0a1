# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scenarios are data: this reads and checks the TOML files that hold them."""

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from string import Formatter
from typing import Any

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import SCENARIO_SETS

REPLAY = "replay"
KINDS = (
    *("workload", "command", "server", "start", "instructions", "syscalls", "scheme", "http"),
    REPLAY,
)
# Kinds that run under a counting tool: the count repeats, and time means nothing.
COUNTED = {"instructions": "instructions_per_op", "syscalls": "memory_calls_per_mop"}
# The kinds whose commands hold places, as in {scratch}, and which; {{ and }} are braces.
OF_PROGRAMS = ("scratch", "workloads", "python")
PLACES = {
    "command": OF_PROGRAMS,
    "server": OF_PROGRAMS,
    "http": ("programs", "workloads", "port"),
}
FULL = "full"
TOML = ".toml"
BAR_KINDS = (
    *("speed", "own_cost", "rss", "figure", "glibc_time", "glibc_rss", "rss_of_all"),
    *("against", "unchanged"),
)
TURNED = ("speed", "against")  # whose at_least is shown as a cost of at most one over it
OWN_ARM = "ebbtide"
SIGTERM = "SIGTERM"  # as a server's `stop`: the signal, instead of a command
BRACES = "{{ and }} are braces"


@dataclass(frozen=True)
class Bar:
    """One claim that a row must meet; which limit applies depends on the kind.

    speed: Ebbtide's over its best peer's, shown as the ratio of their costs, which is at
    most 1 over the limit. figure: an arm's `figure`. against: an arm's figure (the row's
    cost, unless it says otherwise) over that of the best of `peers`, which is the least of
    them under at_most and the most under at_least, where more is better. unchanged: an arm's
    cost over its cost in another row, `row`, is at most as far above 1 as Ebbtide strays
    from itself in either; there is no limit.
    """

    kind: str
    at_least: float | None = None
    at_most: float | None = None
    figure: str = ""
    arm: str = OWN_ARM
    peers: list[str] = field(default_factory=list)
    row: str = ""

    def check(self, where: str) -> None:
        if self.kind not in BAR_KINDS:
            raise LabError(f"{where}: no bar is of kind {self.kind!r}")
        limits = [each for each in (self.at_least, self.at_most) if each is not None]
        if len(limits) != (0 if self.kind == "unchanged" else 1):
            raise LabError(f"{where}: a bar wants either at_least or at_most; unchanged, neither")
        if self.kind in TURNED and self.at_least is not None and self.at_least <= 0:
            raise LabError(f"{where}: at_least of a bar of kind {self.kind} is above 0")
        if (self.kind == "figure") != bool(self.figure) and self.kind != "against":
            raise LabError(f"{where}: `figure` belongs to bars of kind figure or against")
        if (self.kind == "against") != bool(self.peers):
            raise LabError(f"{where}: `peers` belongs to bars of kind against, and only there")
        if (self.kind == "unchanged") != bool(self.row):
            raise LabError(f"{where}: `row` belongs to bars of kind unchanged, and only there")
        if self.arm != OWN_ARM and self.kind not in ("figure", "against", "unchanged"):
            raise LabError(f"{where}: a bar of kind {self.kind} is on {OWN_ARM} alone")


@dataclass(frozen=True)
class Scenario:
    """One row: what is run, by which figure it is judged (`cost`: less is better), its bars.

    workload: a program of bench/, `command` holds its name and arguments.
    command: any program. server: `command` is measured while `client` runs, `ready`
    tells when it may start and `stop` ends it (SIGTERM: by that signal). start: as workload,
    started many times.
    instructions: as workload, under callgrind, once more with `doubled` twice as large;
    the difference is what an operation costs. syscalls: as workload, under strace.
    scheme: a workload of reclamation and its options, run by each scheme's own program.

    replay: `command` is a recording, which is replayed; its memory is what the allocator has.

    http: `command` is the server of bench/http, which is measured while `client` loads it; its own
    word, not a `ready`, tells when that may start.

    scoped: a workload or server whose program takes the options of an arm's way to group memory by
    phase; arms with a way run in such rows alone.
    """

    name: str
    kind: str
    command: list[str]
    cost: str = "cpu"
    runs: int = 5
    estimate_s: float = 1.0
    floor: bool = False
    bimodal: bool = False
    batch: int = 1
    env: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
    folder: str = ""  # where a command or server runs; empty: in one of its own, soon gone
    ready: list[str] = field(default_factory=list)
    client: list[str] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    output: str = ""
    made: str = ""
    made_mb: float = 0
    bundled_allocator: bool = False
    doubled: str = "--iters"  # the option that makes a run of kind instructions longer
    scoped: bool = False
    micro: bool = False  # of the micro set, whose geometric mean is a claim of its own
    arms: list[str] = field(default_factory=list)  # of the set's, those asked; none: all
    without: dict[str, str] = field(default_factory=dict)  # arms that cannot run it, and why
    bars: list[Bar] = field(default_factory=list)

    def check(self, where: str) -> None:
        if self.kind not in KINDS:
            raise LabError(f"{where}: kind is one of {KINDS}")
        if self.kind in COUNTED and self.cost != COUNTED[self.kind]:
            raise LabError(f"{where}: a row of kind {self.kind} has cost = {COUNTED[self.kind]!r}")
        if not self.command or self.runs < 1 or self.batch < 1:
            raise LabError(f"{where}: a command is missing, or runs or batch is below 1")
        if (self.kind == "server") != bool(self.ready and self.client and self.stop):
            raise LabError(f"{where}: ready, client and stop belong to a server, all three")
        if self.kind == "http" and not self.client:
            raise LabError(f"{where}: a row of kind http wants a client")
        if self.scoped and self.kind not in ("workload", "http"):
            raise LabError(f"{where}: only a row of kind workload or http is scoped")
        for text in (*self.command, *self.ready, *self.client, *self.stop, self.stdin):
            check_places(text, PLACES.get(self.kind), where)
        for bar in self.bars:
            bar.check(where)
            if bar.kind == "own_cost" and not self.floor:
                raise LabError(f"{where}: a bar on own cost wants floor = true")


def check_places(text: str, known: tuple[str, ...] | None, where: str) -> None:
    """Whether `str.format` can fill them in; a kind that has none takes braces as they are."""
    if known is None:
        return
    try:
        fields_of = [part[1:] for part in Formatter().parse(text) if part[1] is not None]
    except ValueError as error:
        raise LabError(f"{where}: {text!r}: {error}; {BRACES}") from error
    for name, form, conversion in fields_of:
        if name not in known or form or conversion:
            places = ", ".join(f"{{{each}}}" for each in known)
            raise LabError(f"{where}: {text!r}: no place {name!r}; there are {places}; {BRACES}")


@dataclass(frozen=True)
class ScenarioSet:
    name: str
    purpose: str
    arms: list[str]
    scenarios: list[Scenario]
    apart: bool = False  # run by its own name alone, and not with `full`


def _bar(data: dict[str, Any], where: str) -> Bar:
    try:
        return Bar(**data)
    except TypeError as error:
        raise LabError(f"{where}: {error}") from error


def scenario_of(data: dict[str, Any], where: str) -> Scenario:
    """The scenario that a table of TOML or a line of a journal holds, checked."""
    where = f"{where}, scenario {data.get('name', '(no name)')}"
    unknown = set(data) - {each.name for each in fields(Scenario)}
    if unknown:
        raise LabError(f"{where}: unknown key {', '.join(sorted(unknown))}")
    bars = [_bar(each, where) for each in data.get("bars", [])]
    try:
        scenario = Scenario(**{**data, "bars": bars})
    except TypeError as error:
        raise LabError(f"{where}: {error}") from error
    scenario.check(where)
    return scenario


def load(path: Path) -> ScenarioSet:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}") from error
    found = [scenario_of(each, path.name) for each in data.get("scenario", [])]
    names = [each.name for each in found]
    if not found or len(set(names)) != len(names):
        raise LabError(f"{path.name}: no scenario, or two of one name")
    purpose, arms = data.get("purpose", ""), data.get("arms", [])
    return ScenarioSet(path.stem, purpose, arms, found, data.get("apart", False))


def load_all() -> dict[str, ScenarioSet]:
    return {path.stem: load(path) for path in sorted(SCENARIO_SETS.glob("*.toml"))}


def select(wanted: list[str]) -> list[ScenarioSet]:
    """Sets by name, `full` for all but those apart, files of sets, or single scenarios
    (`bars/larson`, `larson`)."""
    sets = load_all()
    chosen: list[ScenarioSet] = []
    for name in wanted:
        if name == FULL:
            chosen += [each for each in sets.values() if not each.apart]
        elif name.endswith(TOML):
            chosen.append(load(Path(name)))
        else:
            chosen.append(sets[name] if name in sets else _single(name, sets))
    return chosen


def only(group: ScenarioSet, name: str) -> ScenarioSet:
    """The set with the one row."""
    for scenario in group.scenarios:
        if name == scenario.name:
            return ScenarioSet(group.name, group.purpose, group.arms, [scenario])
    known = ", ".join(each.name for each in group.scenarios)
    raise LabError(f"{group.name} has no row {name!r}; there are {known}")


def _single(name: str, sets: dict[str, ScenarioSet]) -> ScenarioSet:
    for group in sets.values():
        for scenario in group.scenarios:
            if name in (scenario.name, f"{group.name}/{scenario.name}"):
                return only(group, scenario.name)
    known = ", ".join(sets)
    raise LabError(f"no scenario or set is called {name!r}; sets: {known}; see `ebb list`")
