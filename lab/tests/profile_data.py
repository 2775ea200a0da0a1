# SPDX-License-Identifier: MIT OR Apache-2.0
"""Heap profiles that tests make up."""

import gzip
from dataclasses import dataclass, field
from pathlib import Path

from ebbtide_lab.profile import profile_pb2 as pb

TYPES = (
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
)
Values = tuple[int, int, int, int]


@dataclass
class Maker:
    types: tuple[tuple[str, str], ...] = TYPES
    message: pb.Profile = field(default_factory=pb.Profile)

    def __post_init__(self) -> None:
        self.message.string_table.append(b"")
        for name, unit in self.types:
            self.message.sample_type.add(type=self.text(name), unit=self.text(unit))
        self._named: dict[str, int] = {}

    def text(self, text: str) -> int:
        known = list(self.message.string_table)
        if text.encode() not in known:
            self.message.string_table.append(text.encode())
            return len(known)
        return known.index(text.encode())

    def mapping(self, start: int, size: int, offset: int, file: str, build_id: str = "") -> int:
        number = len(self.message.mapping) + 1
        self.message.mapping.add(
            id=number,
            memory_start=start,
            memory_limit=start + size,
            file_offset=offset,
            filename=self.text(file),
            build_id=self.text(build_id),
        )
        return number

    def location(self, address: int, mapping: int = 0) -> int:
        number = len(self.message.location) + 1
        self.message.location.add(id=number, address=address, mapping_id=mapping)
        return number

    def named(self, *names: str, line: int = 7) -> int:
        """A location that the profile names itself; of inlined calls the innermost first."""
        number = self._named.get("\n".join(names))
        if number is None:
            number = self.location(len(self.message.location) + 1)
            self._named["\n".join(names)] = number
            for name in names:
                function = len(self.message.function) + 1
                self.message.function.add(
                    id=function, name=self.text(name), filename=self.text("src/code.c")
                )
                self.message.location[-1].line.add(function_id=function, line=line)
        return number

    def sample(self, locations: list[int], values: tuple[int, ...], **labels: str) -> None:
        made = self.message.sample.add(location_id=locations, value=values)
        for key, value in labels.items():
            made.label.add(key=self.text(key), str=self.text(value))

    def stack(self, calls: str, in_use: int, allocated: int | None = None, **labels: str) -> None:
        """`calls`: the outermost first."""
        many = in_use if allocated is None else allocated
        locations = [self.named(name) for name in reversed(calls.split())]
        self.sample(locations, (many // 8, many, in_use // 8, in_use), **labels)

    def write(self, path: Path, *, packed: bool = False) -> Path:
        content = self.message.SerializeToString()
        path.write_bytes(gzip.compress(content) if packed else content)
        return path
