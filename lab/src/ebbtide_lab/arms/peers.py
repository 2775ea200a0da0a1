# SPDX-License-Identifier: MIT OR Apache-2.0
"""Builds a peer as a shared library from the sources inside a registry crate."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from ebbtide_lab.base.errors import LabError

COMPILERS = {"c": "gcc", "c++": "g++"}
FLAGS = (
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-builtin-malloc",
)
LIBRARIES = ("-lpthread", "-lrt", "-latomic")
TIMEOUT_S = 900
# What compilers, linkers, configure and cargo say before they go on to say that they gave up.
CAUSE = re.compile(r"\d: (fatal )?error: |cannot find |configure: error: |^error(\[\w+\])?: ")


# --- recipes ----------------------------------------------------------------------


@dataclass(frozen=True)
class Compile:
    """One call of the compiler, with the flags that all peers share."""

    language: str
    sources: tuple[str, ...]
    includes: tuple[str, ...]
    defines: tuple[str, ...]
    flags: tuple[str, ...]

    @classmethod
    def of(cls, entry: dict[str, Any]) -> "Compile":
        _check_choice(entry, "language", COMPILERS)
        of_machine = entry.get("machine_flags", {}).get(os.uname().machine, [])
        return cls(
            entry["language"],
            tuple(entry["sources"]),
            tuple(entry["includes"]),
            tuple(entry["defines"]),
            (*entry.get("flags", []), *of_machine),
        )

    def make(self, sources: Path, scratch: Path, what: str) -> Path:
        library = scratch / "library.so"
        command = [COMPILERS[self.language], *FLAGS, *self.flags, "-o", str(library)]
        command += [f"-D{define}" for define in self.defines]
        command += [f"-I{sources / include}" for include in self.includes]
        command += [str(sources / source) for source in self.sources]
        run([*command, *LIBRARIES], scratch, what, _build_environment())
        return library


@dataclass(frozen=True)
class Configure:
    """The sources' own configure and make, outside of the folder of the sources."""

    script: str
    arguments: tuple[str, ...]
    product: str

    @classmethod
    def of(cls, entry: dict[str, Any]) -> "Configure":
        return cls(entry["script"], tuple(entry["arguments"]), entry["product"])

    def make(self, sources: Path, scratch: Path, what: str) -> Path:
        script = ["sh", str(sources / self.script), f"--srcdir={sources}"]
        tools = [f"CC={COMPILERS['c']}", f"CXX={COMPILERS['c++']}"]
        environment = _build_environment()
        run([*script, *self.arguments, *tools], scratch, what, environment)
        jobs = len(os.sched_getaffinity(0))
        run(["make", f"-j{jobs}", self.product], scratch, what, environment)
        return scratch / self.product


WAYS: dict[str, type[Compile] | type[Configure]] = {"compile": Compile, "configure": Configure}


@dataclass(frozen=True)
class Statement:
    """Where the sources state their version: the pattern's group in a file of the crate."""

    file: str
    pattern: str

    @classmethod
    def of(cls, version: dict[str, str]) -> "Statement":
        return cls(version["file"], version["pattern"])

    def read(self, crate: Path) -> str:
        text = (crate / self.file).read_text(encoding="utf-8")
        match = re.search(self.pattern, text, re.MULTILINE)
        if match is None:
            raise LabError(f"{crate.name}: {self.file} states no version")
        return match[1]


@dataclass(frozen=True)
class Recipe:
    """What to fetch and how to build it; all of it comes from lab/peers.toml."""

    name: str
    crate: str
    pin: str
    folder: str
    way: Compile | Configure
    statement: Statement | None = None

    @classmethod
    def of(cls, entry: dict[str, Any]) -> "Recipe":
        """The recipe of an entry of the crate kind."""
        try:
            _check_choice(entry, "build", WAYS)
            version = entry["version"]
            return cls(
                entry["name"],
                entry["crate"],
                entry["pin"],
                entry["folder"],
                WAYS[entry["build"]].of(entry),
                None if isinstance(version, str) else Statement.of(version),
            )
        except KeyError as error:
            raise LabError(f"lab/peers.toml: {entry['name']} has no {error}") from error

    @property
    def key(self) -> str:
        """Changes with anything that the library depends on."""
        text = json.dumps([asdict(self), COMPILERS, FLAGS, LIBRARIES], sort_keys=True)
        return sha256(text.encode()).hexdigest()[:12]


def _check_choice(entry: dict[str, Any], key: str, choices: Mapping[str, object]) -> None:
    if entry[key] not in choices:
        known = " or ".join(choices)
        raise LabError(f"lab/peers.toml: {entry['name']}: {key} is {known}, not {entry[key]!r}")


# --- commands ---------------------------------------------------------------------


def _build_environment() -> dict[str, str]:
    """Without the user's CFLAGS, CPATH, MAKEFLAGS and the like: they would change the build."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C"}


def _cause(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next(filter(CAUSE.search, lines), lines[-1] if lines else "failed")


def run(command: list[str], folder: Path, what: str, environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise LabError(f"{what}: {command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{what}: {command[0]} gave no answer in {TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise LabError(f"{what}: {_cause(done.stderr or done.stdout)}")


# --- the cache --------------------------------------------------------------------


@contextmanager
def _draft(cache: Path) -> Iterator[Path]:
    """A folder beside the finished things: what is left in it never counts as one."""
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache, prefix="draft-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _vendor(recipe: Recipe, folder: Path) -> Path:
    """The crate as cargo unpacks it, its checksum verified."""
    (folder / "src").mkdir()
    (folder / "src" / "lib.rs").touch()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "peer"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[workspace]\n[dependencies]\n{recipe.crate} = "={recipe.pin}"\n',
        encoding="utf-8",
    )
    what = f"cannot fetch {recipe.crate} {recipe.pin}"
    run(["cargo", "vendor", "--quiet"], folder, what, dict(os.environ))
    return folder / "vendor" / recipe.crate


def _fetch(recipe: Recipe, cache: Path) -> Path:
    crate = cache / "sources" / f"{recipe.crate}-{recipe.pin}"
    if crate.is_dir():
        return crate
    click.echo(f"Fetching {recipe.crate} {recipe.pin} ...", err=True)
    with _draft(cache) as folder:
        unpacked = _vendor(recipe, folder)
        crate.parent.mkdir(exist_ok=True)
        with suppress(OSError):  # another process may have been the first
            unpacked.rename(crate)
    if not crate.is_dir():
        raise LabError(f"cannot fetch {recipe.crate} {recipe.pin}: cannot write {crate}")
    return crate


def _make(recipe: Recipe, crate: Path, target: Path) -> None:
    """The library is renamed into place last, so that it is there whole or not at all."""
    sources = crate / recipe.folder
    if not sources.is_dir():
        raise LabError(f"{recipe.crate} {recipe.pin} has no folder {recipe.folder}")
    stated = recipe.statement.read(crate) if recipe.statement else ""
    click.echo(f"Building {recipe.name}, once (up to a minute) ...", err=True)
    with _draft(target.parent) as scratch:
        library = recipe.way.make(sources, scratch, f"cannot build {recipe.name}")
        draft = scratch / "version"
        draft.write_text(stated, encoding="utf-8")
        draft.replace(target.with_suffix(".version"))
        library.replace(target)


@dataclass(frozen=True)
class Built:
    path: Path
    stated: str  # the version according to the sources, where the recipe says where


def _target(recipe: Recipe, cache: Path) -> Path:
    return cache.resolve() / f"lib{recipe.name}-{recipe.key}.so"


def is_built(recipe: Recipe, cache: Path) -> bool:
    return _target(recipe, cache).is_file()


def build(recipe: Recipe, cache: Path) -> Built:
    """The shared library of this recipe, from the cache when it is there."""
    target = _target(recipe, cache)
    try:
        if not target.is_file():
            _make(recipe, _fetch(recipe, target.parent), target)
        return Built(target, target.with_suffix(".version").read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(f"cannot build {recipe.name}: {error}") from error
