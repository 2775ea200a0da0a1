# SPDX-License-Identifier: MIT OR Apache-2.0
"""The arms: which shared object to preload for each, or why it cannot be."""

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ebbtide_lab.arms import peers
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout, is_wheel

EBBTIDE = "ebbtide"
EBBTIDE_AGAIN = "ebbtide-again"  # the A/A arm
GLIBC = "glibc"
FLOOR = "floor"
FLOOR_FILE = "libebb_floor.so"
NOT_BUILT = "not built"
# Ebbtide's other ways to reclaim; they run in rows of kind scheme alone.
EBBTIDE_WAYS = ("ebbtide-fenced", "ebbtide-call", "ebbtide-hazard")
OWN = (EBBTIDE, EBBTIDE_AGAIN, *EBBTIDE_WAYS)
NOT_PEERS = (*OWN, FLOOR)
UNSAFE = "free"  # the scheme that frees under its readers
WITH = "+"  # allocator+way: memory that is grouped by phase (arms/ways.py)
PROBE_TIMEOUT_S = 20
SCHEME = "scheme"  # the kind of an entry that is no allocator
# What an entry of lab/peers.toml must have, by its kind.
KEYS = {
    "installed": ("name", "file", "package", "version"),
    "crate": ("name", "crate", "pin", "folder", "build", "version"),
    SCHEME: ("name", "built"),
}
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
)


@dataclass(frozen=True)
class Allocator:
    """One arm. `problem` says why it is missing; then `path` may not be there. `scheme` is
    that of reclamation whose program it runs over this allocator, in rows of that kind;
    `way` how it groups memory, in rows that are scoped."""

    name: str
    path: Path | None
    version: str = ""
    problem: str = ""
    scheme: str = ""
    way: str = ""

    @property
    def linked(self) -> bool:
        """Whether the scheme's programs are linked to the allocator, and need no preload."""
        return self.name in OWN

    @property
    def expected(self) -> str:
        """Text that the path of malloc's object must contain."""
        return str(self.path) if self.path else "libc.so"


# What each library calls its version, asked in a process that preloads it.
VERSION_QUERIES = {
    "mallctl": (
        "import ctypes as c; l=c.CDLL(None); p=c.c_char_p(); n=c.c_size_t(c.sizeof(p));"
        "l.mallctl(b'version',c.byref(p),c.byref(n),None,0); print(p.value.decode())"
    ),
    # 2.x counts a.b.c as abc, 3.x as abbcc.
    "mi_version": (
        "import ctypes as c; v=c.CDLL(None).mi_version();"
        "print(*(divmod(v//10,10)+(v%10,) if v<1000 else"
        " (v//10000,v//100%100,v%100)),sep='.')"
    ),
    "tc_version": (
        "import ctypes as c; f=c.CDLL(None).tc_version; f.restype=c.c_char_p;"
        "a,b=c.c_int(),c.c_int(); p=c.c_char_p();"
        "print(f(c.byref(a),c.byref(b),c.byref(p)).decode())"
    ),
}


# How the dynamic linker reports, under LD_DEBUG, which object a use of malloc is bound to.
MALLOC_BINDING = re.compile(r"^.*binding file .* to (.+) \[\d+\]: normal symbol .malloc'", re.M)


def _run_under(path: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        env=dict(os.environ, LD_PRELOAD=str(path), LD_DEBUG="bindings"),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PROBE_TIMEOUT_S,
        check=False,
    )


def _find_flaw(path: Path, done: subprocess.CompletedProcess[str]) -> str:
    """What is wrong with this library as a preload, if anything is."""
    # A program at a fixed address may hold a stub of malloc, bound to the true one in turn.
    objects = set(MALLOC_BINDING.findall(done.stderr)) - {sys.executable}
    if objects != {str(path)}:
        return f"malloc resolves to {', '.join(sorted(objects)) or 'nothing'}, not to {path}"
    if done.returncode != 0:
        return f"python3 fails under {path}: exit status {done.returncode}"
    return ""


def examine(name: str, path: Path, query: str = "", stated: str = "") -> Allocator:
    """The library as an arm, after a run of python3 under it: malloc is the
    library's, and the version is what `query` gave, or else what is `stated`."""
    if query and query not in VERSION_QUERIES:
        known = " or ".join(VERSION_QUERIES)
        return Allocator(name, path, problem=f"lab/peers.toml: version is {known}, not {query!r}")
    try:
        done = _run_under(path, VERSION_QUERIES.get(query, ""))
    except (OSError, subprocess.TimeoutExpired) as error:
        return Allocator(name, path, problem=f"python3 does not run under {path}: {error}")
    version = stated or done.stdout.strip()
    problem = _find_flaw(path, done) or ("" if version else f"{path} tells no version")
    return Allocator(name, path, version, problem)


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()[:12]


def _find_installed(entry: dict[str, Any]) -> Allocator:
    for folder in LIBRARY_FOLDERS:
        path = Path(folder) / entry["file"]
        if path.is_file():
            return examine(entry["name"], path, entry["version"])
    return Allocator(entry["name"], None, problem=f"install the package {entry['package']}")


def _cache(layout: Layout) -> Path:
    return layout.build / "peers"


def _build_from_crate(entry: dict[str, Any], layout: Layout) -> Allocator:
    try:
        recipe = peers.Recipe.of(entry)
        built = peers.build(recipe, _cache(layout))
    except LabError as error:
        return Allocator(entry["name"], None, problem=str(error))
    if recipe.statement is None:
        return examine(entry["name"], built.path, query=entry["version"])
    stated = f"{built.stated} (crate {recipe.crate} {recipe.pin})"
    return examine(entry["name"], built.path, stated=stated)


def _own(name: str, path: Path, how: str) -> Allocator:
    if not path.is_file():
        return Allocator(name, None, problem=f"{path} is missing{how}")
    return Allocator(name, path.resolve(), f"build {digest(path)}")


def _glibc() -> Allocator:
    text = os.confstr("CS_GNU_LIBC_VERSION")
    if not text:
        return Allocator(GLIBC, None, problem="this libc is not glibc")
    return Allocator(GLIBC, None, text.removeprefix("glibc "))


def is_ours(arm: str) -> bool:
    """Ebbtide, in whichever way, or the harness's own floor."""
    return arm.partition(WITH)[0] in NOT_PEERS


def is_peer(arm: str) -> bool:
    return not is_ours(arm) and not arm.startswith(f"{UNSAFE}/")


def load_catalogue(layout: Layout) -> dict[str, dict[str, Any]]:
    """The peers of lab/peers.toml by name, each with its `kind`."""
    return {name: each for name, each in _load(layout).items() if each["kind"] != SCHEME}


def load_schemes(layout: Layout) -> dict[str, dict[str, Any]]:
    """The schemes of reclamation of lab/peers.toml by name."""
    return {name: each for name, each in _load(layout).items() if each["kind"] == SCHEME}


def _load(layout: Layout) -> dict[str, dict[str, Any]]:
    if is_wheel():
        return {}
    path = layout.root / "lab" / "peers.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}") from error
    catalogue: dict[str, dict[str, Any]] = {}
    for kind, entries in data.items():
        if kind not in KEYS:
            raise LabError(f"{path}: {kind!r} is no kind of peer; there are {', '.join(KEYS)}")
        for entry in entries:
            _check_entry(kind, entry, catalogue, path)
            catalogue[entry["name"]] = {"kind": kind, **entry}
    return catalogue


def _check_entry(
    kind: str, entry: dict[str, Any], earlier: dict[str, dict[str, Any]], path: Path
) -> None:
    for key in KEYS[kind]:
        if key not in entry:
            raise LabError(f"{path}: a peer of the kind {kind!r} has no {key}: {entry}")
    if entry["name"] in earlier:
        raise LabError(f"{path}: two peers are called {entry['name']!r}")


def names(layout: Layout) -> list[str]:
    return [EBBTIDE, GLIBC, *load_catalogue(layout), FLOOR]


def find(name: str, layout: Layout) -> Allocator:
    """The allocator of this name, built if need be; an unknown name is an error."""
    if name in (EBBTIDE, EBBTIDE_AGAIN):
        how = "" if layout.is_lib_given else "; `make lib` builds it"
        return replace(_own(name, layout.lib, how), scheme=EBBTIDE)
    if name == GLIBC:
        return _glibc()
    if name == FLOOR:
        return _own(name, layout.program(FLOOR_FILE), "; bench/ builds it")
    catalogue = load_catalogue(layout)
    if name not in catalogue:
        known = ", ".join(names(layout))
        raise LabError(f"no allocator is called {name!r}; there are {known}")
    entry = catalogue[name]
    if entry["kind"] == "installed":
        return _find_installed(entry)
    return _build_from_crate(entry, layout)


def look_up(name: str, layout: Layout) -> Allocator:
    """As `find`, but builds nothing: what would have to be is NOT_BUILT."""
    try:
        built = _is_built(name, layout)
    except LabError as error:
        return Allocator(name, None, problem=str(error))
    return find(name, layout) if built else Allocator(name, None, problem=NOT_BUILT)


def _is_built(name: str, layout: Layout) -> bool:
    if name == FLOOR:
        return (layout.programs / FLOOR_FILE).is_file()
    entry = load_catalogue(layout).get(name, {})
    if entry.get("kind") != "crate":
        return True
    return peers.is_built(peers.Recipe.of(entry), _cache(layout))


def at_hand(layout: Layout) -> list[Allocator]:
    """Ebbtide, there or not, glibc and the peers that are installed or built already."""
    found = [look_up(name, layout) for name in names(layout) if name != FLOOR]
    return [arm for arm in found if not arm.problem or arm.name == EBBTIDE]


def libc_path() -> Path:
    """The libc that this process runs on, to be preloaded over a bundled allocator."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = Path(line.split(maxsplit=5)[-1].strip())
            if path.name.startswith("libc.so"):
                return path
    raise LabError("cannot find libc in this process")


def over_bundled(allocator: Allocator) -> Allocator:
    """glibc for a program that is linked to another allocator: libc preloaded."""
    if allocator.name != GLIBC:
        return allocator
    return replace(allocator, path=libc_path())
