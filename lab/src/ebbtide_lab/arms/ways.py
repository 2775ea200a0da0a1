# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ways to group memory by phase as arms: allocator+way, and the options that choose it.

The programs of rows that are `scoped` take the options; the allocator is preloaded as
ever. A domain's policies are those of the published 002: per-request and batch-1 are one policy
by two names, so their difference is noise.
"""

import re
from dataclasses import dataclass, replace

from ebbtide_lab.arms import allocators
from ebbtide_lab.arms.allocators import EBBTIDE, WITH, Allocator
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout

BATCH = re.compile(r"batch-([1-9][0-9]{0,8})")
DOMAIN, REGION, HEAP, ARENA = "1", "2", "3", "4"  # --scope of bench/lifetimes
LEFT, FREED = "0", "1"  # --free


@dataclass(frozen=True)
class Way:
    """`family` is how the names of the allocators begin that have it."""

    family: str
    options: tuple[str, ...]


def _scope(kind: str, every: str = "1") -> tuple[str, ...]:
    return ("--scope", kind, "--every", every)


WAYS = {
    "per-request": Way(EBBTIDE, _scope(DOMAIN)),
    "never": Way(EBBTIDE, _scope(DOMAIN, "0")),
    "region": Way(EBBTIDE, (*_scope(REGION), "--free", LEFT)),
    "region-reset": Way(EBBTIDE, (*_scope(REGION), "--free", LEFT, "--reset", "1")),
    "region-free": Way(EBBTIDE, (*_scope(REGION), "--free", FREED)),
    "heap": Way("mimalloc", (*_scope(HEAP), "--free", LEFT)),
    "heap-free": Way("mimalloc", (*_scope(HEAP), "--free", FREED)),
    "arena": Way("jemalloc", (*_scope(ARENA), "--free", LEFT)),
}


def parts(name: str) -> tuple[str, str]:
    """Of allocator+way; a way that there is not, or not of this allocator, is an error."""
    allocator, _, way = name.partition(WITH)
    family = _way(name, way).family
    is_own = allocator.startswith(EBBTIDE)
    if not allocator.startswith(family) or (is_own and allocator != EBBTIDE):
        raise LabError(f"{name}: the way {way} is of {family}, not of {allocator}")
    return allocator, way


def find(name: str, layout: Layout) -> Allocator:
    """The arm allocator+way, built if need be."""
    allocator, way = parts(name)
    return replace(allocators.find(allocator, layout), name=name, scheme="", way=way)


def options(way: str) -> list[str]:
    """What a program is told; nothing for plain malloc."""
    return list(_way(way, way).options) if way else []


def _way(name: str, way: str) -> Way:
    batch = BATCH.fullmatch(way)
    if batch:
        return Way(EBBTIDE, _scope(DOMAIN, batch[1]))
    if way not in WAYS:
        raise LabError(f"{name}: no way is called {way!r}; there are {', '.join(WAYS)}, batch-K")
    return WAYS[way]
