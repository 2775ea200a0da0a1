# SPDX-License-Identifier: MIT OR Apache-2.0
"""The stacks of a profile by the names of their functions."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from ebbtide_lab.base.text import shown
from ebbtide_lab.profile.binary import Binary, NoBinaryError, demangled
from ebbtide_lab.profile.recorded import Labels, Location, Mapping, Recorded, Sample, load

NO_STACK = "(no stack)"


@dataclass(frozen=True)
class Frame:
    name: str  # of a function, or MODULE+0xOFFSET
    module: str
    is_group: bool = False  # no function: what the stacks below have in common


Frames = tuple[Frame, ...]  # the outermost first
Binaries = dict[tuple[str, str], Binary | None]  # by path and build ID; None: it has no use


@dataclass
class Stack:
    values: list[int]  # one for each type of the profile
    where: str = ""  # FILE:LINE of the innermost, if known
    parts: dict[Labels, list[int]] = field(default_factory=dict)  # that the values are sums of


@dataclass
class Profile:
    path: Path
    types: tuple[str, ...]
    units: tuple[str, ...]
    period: int  # 0: not told
    period_unit: str
    stacks: dict[Frames, Stack]
    warnings: list[str]


def read(path: Path) -> Profile:
    return named(load(path))


def named(recorded: Recorded, opened: Binaries | None = None) -> Profile:
    """`opened` keeps the binaries for who asks again."""
    names = _Names(recorded, {} if opened is None else opened)
    stacks = _merged(recorded, names)
    return Profile(
        recorded.path,
        recorded.types,
        recorded.units,
        recorded.period,
        recorded.period_unit,
        stacks,
        names.warnings,
    )


def _merged(recorded: Recorded, names: "_Names") -> dict[Frames, Stack]:
    """Samples whose stacks have the same names are one."""
    cut = [(each, names.pruned(each.locations)) for each in recorded.samples]
    lines = names.lines({kept[0] for _, kept in cut if kept})
    stacks: dict[Frames, Stack] = {}
    heaviest: dict[Frames, tuple[int, ...]] = {}
    for sample, kept in cut:
        frames = _outermost_first(names, kept)
        stack = stacks.setdefault(frames, Stack([0] * len(recorded.types)))
        _add(stack, sample)
        if kept and sample.values > heaviest.get(frames, ()):
            heaviest[frames] = sample.values
            stack.where = lines.get(kept[0], "")
    return stacks


def _outermost_first(names: "_Names", kept: tuple[Location, ...]) -> Frames:
    frames = [frame for each in kept for frame in names.frames(each)]
    return tuple(reversed(frames)) or (Frame(NO_STACK, ""),)


def _add(stack: Stack, sample: Sample) -> None:
    labels = tuple((name, shown(text)) for name, text in sample.labels)
    part = stack.parts.get(labels, [0] * len(stack.values))
    stack.parts[labels] = [a + b for a, b in zip(part, sample.values, strict=True)]
    stack.values = [a + b for a, b in zip(stack.values, sample.values, strict=True)]


@dataclass
class _Names:
    recorded: Recorded
    binaries: Binaries
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._frames: dict[Location, Frames] = {}
        self._drop = self._pattern(self.recorded.drop)
        self._keep = self._pattern(self.recorded.keep)

    def frames(self, location: Location) -> Frames:
        """The innermost first: several where calls were inlined."""
        if location not in self._frames:
            self._frames[location] = self._look(location)
        return self._frames[location]

    def pruned(self, locations: tuple[Location, ...]) -> tuple[Location, ...]:
        """Without the functions that the profile itself wants to be left out, and what these
        call; but a stack's outermost stay, so that none is left without a function."""
        if self._drop is None:
            return locations
        is_user = False
        for at in range(len(locations) - 1, -1, -1):
            drops = any(self._is_dropped(each.name) for each in self.frames(locations[at]))
            if drops and is_user:
                return locations[at + 1 :]
            is_user = is_user or not drops
        return locations

    def lines(self, locations: set[Location]) -> dict[Location, str]:
        """FILE:LINE."""
        found: dict[Location, str] = {}
        unknown: dict[Binary, dict[int, list[Location]]] = defaultdict(lambda: defaultdict(list))
        for each in locations:
            if each.lines:
                if each.lines[0].file:
                    file = shown(PurePath(each.lines[0].file).name)
                    found[each] = f"{file}:{each.lines[0].number}"
                continue
            binary, address = self._place(each)
            if binary is not None and address is not None:
                unknown[binary][address].append(each)
        for binary, places in unknown.items():
            for address, line in binary.lines(places).items():
                found.update(dict.fromkeys(places[address], line))
        return found

    def _look(self, location: Location) -> Frames:
        mapping = location.mapping
        module = shown(PurePath(mapping.file).name) if mapping else ""
        if location.lines:
            names = (shown(demangled(each.name)) for each in location.lines)
            return tuple(Frame(each or "?", module) for each in names)
        binary, address = self._place(location)
        name = binary.function(address) if binary is not None and address is not None else ""
        return (Frame(shown(name) or _unknown(location, module), module),)

    def _place(self, location: Location) -> tuple[Binary | None, int | None]:
        """The file, and the address as its symbols count."""
        mapping = location.mapping
        if mapping is None or not mapping.file:
            return None, None
        binary = self._binary(mapping)
        offset = location.address - mapping.start + mapping.offset
        return binary, binary.address_of(offset) if binary else None

    def _binary(self, mapping: Mapping) -> Binary | None:
        key = mapping.file, mapping.build_id
        if key not in self.binaries:
            self.binaries[key] = self._opened(mapping)
        return self.binaries[key]

    def _opened(self, mapping: Mapping) -> Binary | None:
        if not mapping.file.startswith("/"):
            return None  # as [vdso]: no file
        try:
            binary = Binary(mapping.file)
        except NoBinaryError as error:
            self.warnings.append(f"{mapping.file} {error}: its functions are shown as addresses")
            return None
        if mapping.build_id and binary.build_id != mapping.build_id.lower():
            self.warnings.append(
                f"{mapping.file} is not the file that was profiled (its build ID differs):"
                " names of its functions may be wrong"
            )
        return binary

    def _is_dropped(self, name: str) -> bool:
        plain = name.partition("(")[0] or name
        if self._drop is None or not self._drop.fullmatch(plain):
            return False
        return self._keep is None or not self._keep.fullmatch(plain)

    def _pattern(self, text: str) -> re.Pattern[str] | None:
        try:
            return re.compile(text) if text else None
        except re.error:
            self.warnings.append(f"{self.recorded.path} has a pattern of frames that is none")
            return None


def _unknown(location: Location, module: str) -> str:
    mapping = location.mapping
    if mapping is None or not module:
        return f"{location.address:#x}"
    return f"{module}+{location.address - mapping.start + mapping.offset:#x}"
