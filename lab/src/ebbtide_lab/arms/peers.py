# SPDX-License-Identifier: MIT OR Apache-2.0
"""Builds a peer as a shared library from the C sources inside a registry crate."""

import json
import shutil
import subprocess
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ebbtide_lab.errors import LabError

COMPILER = "gcc"
FLAGS = (
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-builtin-malloc",
)
LIBRARIES = ("-lpthread", "-lrt", "-latomic")
TIMEOUT_S = 300


@dataclass(frozen=True)
class Recipe:
    name: str
    crate: str
    pin: str
    folder: str
    sources: tuple[str, ...]
    includes: tuple[str, ...]
    defines: tuple[str, ...]

    @classmethod
    def of(cls, entry: dict[str, Any]) -> "Recipe":
        return cls(
            entry["name"],
            entry["crate"],
            entry["pin"],
            entry["folder"],
            tuple(entry["sources"]),
            tuple(entry["includes"]),
            tuple(entry["defines"]),
        )

    @property
    def key(self) -> str:
        """Changes with anything that the library depends on."""
        text = json.dumps([asdict(self), FLAGS, LIBRARIES], sort_keys=True)
        return sha256(text.encode()).hexdigest()[:12]


def _run(command: list[str], folder: Path, what: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise LabError(f"{what}: {command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{what}: no answer in {TIMEOUT_S} s") from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise LabError(f"{what}: {lines[-1] if lines else 'failed'}")


def _fetch(recipe: Recipe, cache: Path) -> Path:
    """The unpacked crate; cargo verifies its checksum."""
    folder = cache / "crates" / f"{recipe.crate}-{recipe.pin}"
    unpacked = folder / "vendor" / recipe.crate
    if unpacked.is_dir():
        return unpacked
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "lib.rs").touch()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "peer"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[workspace]\n[dependencies]\n{recipe.crate} = "={recipe.pin}"\n',
        encoding="utf-8",
    )
    _run(["cargo", "vendor", "--quiet"], folder, f"cannot fetch {recipe.crate} {recipe.pin}")
    return unpacked


def _compile(recipe: Recipe, crate: Path, target: Path) -> None:
    sources = crate / recipe.folder
    draft = target.with_suffix(".draft")
    command = [COMPILER, *FLAGS, "-o", str(draft)]
    command += [f"-D{define}" for define in recipe.defines]
    command += [f"-I{sources / include}" for include in recipe.includes]
    command += [str(sources / source) for source in recipe.sources]
    _run([*command, *LIBRARIES], crate, f"cannot compile {recipe.name}")
    draft.replace(target)


def build(recipe: Recipe, cache: Path) -> Path:
    """The shared library of this recipe, from the cache when it is there."""
    target = cache / f"lib{recipe.name}-{recipe.key}.so"
    if target.is_file():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    crate = _fetch(recipe, cache)
    if not (crate / recipe.folder).is_dir():
        shutil.rmtree(crate.parent, ignore_errors=True)
        raise LabError(f"{recipe.crate} {recipe.pin} has no folder {recipe.folder}")
    _compile(recipe, crate, target)
    return target
