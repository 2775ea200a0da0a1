# SPDX-License-Identifier: MIT OR Apache-2.0
"""Schemes of reclamation as arms: scheme/allocator, and the programs that they run."""

import os
import shutil
import subprocess
import tomllib
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from ebbtide_lab.arms import allocators, peers, ways
from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_WAYS, GLIBC, WITH, Allocator
from ebbtide_lab.base.errors import LabError, RunError
from ebbtide_lab.base.layout import Layout

BETWEEN = "/"
C, RUST = "c", "rust"
PROGRAMS = "reclaim"  # folder of the C programs: SCHEME/WORKLOAD
RUST_SOURCES = Path("bench/reclaim-rs")
RUST_BUILD = Path("reclaim-rs")  # below build/
RUST_PROGRAM = RUST_BUILD / "release" / "reclaim"
FIRST_WORKLOAD = "retire"  # that every scheme but those of Ebbtide has a program for


def find(name: str, layout: Layout) -> Allocator:
    """The arm of this name: an allocator, one with a way to group memory, a scheme over one,
    or one of Ebbtide's ways to reclaim. What it needs is built."""
    if name in EBBTIDE_WAYS:
        return replace(allocators.find(EBBTIDE, layout), name=name, scheme=name)
    if WITH in name:
        return ways.find(name, layout)
    scheme, between, allocator = name.partition(BETWEEN)
    if not between:
        return allocators.find(name, layout)
    entry = _entry(scheme, layout)
    found = allocators.find(allocator, layout)
    if allocator != GLIBC and not allocators.is_peer(allocator):
        raise LabError(f"{name}: a scheme runs over a peer, not over {allocator}")
    arm = replace(found, name=name, scheme=scheme)
    if arm.problem:
        return arm
    try:
        _build(entry, layout)
        told = (version(entry, layout), f"{found.name} {found.version}")
    except LabError as error:
        return replace(arm, problem=str(error))
    return replace(arm, version=", ".join(filter(None, told)))


def command(scheme: str, workload: str, layout: Layout) -> list[str]:
    """How a workload is started; the options come behind."""
    entry = allocators.load_schemes(layout).get(scheme, {})
    if entry.get("built") == RUST:
        return [str(layout.build / RUST_PROGRAM), scheme, workload]
    try:
        return [str(layout.program(f"{PROGRAMS}/{scheme}/{workload}"))]
    except LabError as error:
        raise RunError(str(error)) from error


def _entry(scheme: str, layout: Layout) -> dict[str, Any]:
    schemes = allocators.load_schemes(layout)
    if scheme not in schemes:
        known = ", ".join(schemes)
        raise LabError(f"no scheme of reclamation is called {scheme!r}; there are {known}")
    entry = schemes[scheme]
    if entry["built"] not in (C, RUST):
        raise LabError(f"lab/peers.toml: {scheme}: built is {C} or {RUST}, not {entry['built']!r}")
    return entry


# --- versions ---------------------------------------------------------------------


def version(entry: dict[str, Any], layout: Layout) -> str:
    """Of the scheme; empty where it is no project of its own."""
    if "crates" in entry:
        pins = _pins(layout)
        return ", ".join(f"{crate} {_pin(pins, crate)}" for crate in entry["crates"])
    return _installed(entry["package"]) if "package" in entry else ""


def _pins(layout: Layout) -> dict[str, Any]:
    path = layout.root / RUST_SOURCES / "Cargo.toml"
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8"))["dependencies"])
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise LabError(f"cannot read {path}: {error}") from error


def _pin(pins: dict[str, Any], crate: str) -> str:
    pin = pins.get(crate, "")
    text = pin if isinstance(pin, str) else str(pin.get("version", ""))
    if not text.startswith("="):
        raise LabError(f"{RUST_SOURCES}/Cargo.toml does not pin {crate} to one version")
    return text.removeprefix("=")


def _installed(package: str) -> str:
    if not shutil.which("pkg-config"):
        raise LabError("pkg-config is not installed")
    asked = ["pkg-config", "--modversion", package]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"pkg-config does not know {package}")
    return f"{package} {done.stdout.strip()}"


# --- building ---------------------------------------------------------------------


def _build(entry: dict[str, Any], layout: Layout) -> None:
    if entry["built"] == RUST:
        _build_rust(layout)
    else:
        layout.program(f"{PROGRAMS}/{entry['name']}/{FIRST_WORKLOAD}")


def _build_rust(layout: Layout) -> None:
    sources = layout.root / RUST_SOURCES
    lock = [str(layout.root / "tools/lock"), str(RUST_SOURCES)]
    peers.run(lock, layout.root, f"cannot lock the versions of {RUST_SOURCES}", dict(os.environ))
    problem = built_by_cargo(sources, layout.build / RUST_BUILD, _key(sources))
    if problem:
        raise LabError(problem)


def _key(sources: Path) -> str:
    """Changes with anything that the program is built from."""
    digest = sha256()
    for path in sorted([*sources.glob("Cargo.[tv]*"), *sources.glob("**/*.rs")]):
        digest.update(str(path.relative_to(sources)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def built_by_cargo(sources: Path, target: Path, key: str) -> str:
    """Builds once for each state of the sources. Why that failed, for all the arms that
    ask in this session; or nothing."""
    stamp = target / "built"
    try:
        whole = stamp.is_file() and (target / "release" / "reclaim").is_file()
        if whole and stamp.read_text(encoding="utf-8") == key:
            return ""
        click.echo("Building the reclamation schemes in Rust (a minute or two) ...", err=True)
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
        what = f"cannot build {RUST_SOURCES}"
        peers.run(
            ["cargo", "build", "--release", "--locked", "--quiet"], sources, what, environment
        )
        stamp.write_text(key, encoding="utf-8")
    except LabError as error:
        return str(error)
    except OSError as error:
        return f"cannot build {RUST_SOURCES}: {error}"
    return ""
