# SPDX-License-Identifier: MIT OR Apache-2.0
"""A profile's file as it is: samples, where they were taken, what was mapped there."""

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.profile import profile_pb2 as pb

GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Mapping:
    start: int
    limit: int
    offset: int
    file: str
    build_id: str


@dataclass(frozen=True)
class Line:
    """A function as the profile itself names it."""

    name: str
    file: str
    number: int


@dataclass(frozen=True, eq=False)  # one object for each: compared and hashed as such
class Location:
    address: int
    mapping: Mapping | None
    lines: tuple[Line, ...]  # the innermost of inlined calls first; empty where nobody knew


Labels = tuple[tuple[str, str], ...]  # names and texts


@dataclass(frozen=True)
class Sample:
    locations: tuple[Location, ...]  # the innermost first
    values: tuple[int, ...]  # one for each type
    labels: Labels = ()


@dataclass(frozen=True)
class Recorded:
    path: Path
    types: tuple[str, ...]
    units: tuple[str, ...]
    samples: tuple[Sample, ...]
    drop: str  # pattern of functions that are left out with all that they call
    keep: str
    period: int
    period_unit: str


def load(path: Path) -> Recorded:
    """Raises LabError with the reason when the file holds no profile, or a part of one."""
    content = _unpacked(path)
    message = pb.Profile()
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        raise LabError(f"{path} is no profile in pprof's format, or is cut off") from error
    if not message.sample_type:
        raise LabError(f"{path} is no profile in pprof's format: it names no type of samples")
    try:
        return _Reader(path, message).read()
    except LookupError as error:
        raise LabError(
            f"{path} is cut off or damaged: what its parts refer to is missing"
        ) from error


def _unpacked(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    if not content:
        raise LabError(f"{path} is empty")
    if not content.startswith(GZIP):
        return content
    try:
        return gzip.decompress(content)
    except EOFError as error:
        raise LabError(f"{path} is cut off: its gzip stream has no end") from error
    except (OSError, zlib.error) as error:
        raise LabError(f"{path} is damaged: its gzip stream cannot be unpacked") from error


class _Reader:
    """What is referred to and not there is a LookupError."""

    def __init__(self, path: Path, message: pb.Profile) -> None:
        self._path, self._message = path, message
        self._texts = [each.decode(errors="replace") for each in message.string_table]
        self._mappings = {each.id: self._mapping(each) for each in message.mapping}
        self._functions = {each.id: each for each in message.function}
        self._locations = {each.id: self._location(each) for each in message.location}

    def read(self) -> Recorded:
        message = self._message
        types = message.sample_type
        return Recorded(
            self._path,
            tuple(self._text(each.type) for each in types),
            tuple(self._text(each.unit) for each in types),
            tuple(self._sample(each, len(types)) for each in message.sample),
            self._text(message.drop_frames),
            self._text(message.keep_frames),
            message.period,
            self._text(message.period_type.unit),
        )

    def _text(self, at: int) -> str:
        if at < 0:
            raise IndexError(at)
        return self._texts[at] if at else ""

    def _mapping(self, found: pb.Mapping) -> Mapping:
        file, build_id = self._text(found.filename), self._text(found.build_id)
        return Mapping(found.memory_start, found.memory_limit, found.file_offset, file, build_id)

    def _location(self, found: pb.Location) -> Location:
        if found.mapping_id:
            mapping: Mapping | None = self._mappings[found.mapping_id]
        else:
            mapping = _around(found.address, self._mappings.values())
        return Location(found.address, mapping, tuple(self._line(each) for each in found.line))

    def _line(self, found: pb.Line) -> Line:
        function = self._functions[found.function_id]
        name = self._text(function.name) or self._text(function.system_name)
        return Line(name, self._text(function.filename), found.line)

    def _sample(self, found: pb.Sample, types: int) -> Sample:
        if len(found.value) != types:
            raise IndexError(len(found.value))
        locations = tuple(self._locations[each] for each in found.location_id)
        labels = ((self._text(each.key), self._text(each.str)) for each in found.label if each.str)
        return Sample(locations, tuple(found.value), tuple(labels))


def _around(address: int, mappings: Iterable[Mapping]) -> Mapping | None:
    return next((each for each in mappings if each.start <= address < each.limit), None)
