# SPDX-License-Identifier: MIT OR Apache-2.0
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ebbtide_lab.arms import allocators, peers
from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.cli import measuring
from ebbtide_lab.cli.main import main
from ebbtide_lab.scenarios.model import ScenarioSet

ENTRY: dict[str, Any] = {
    "name": "toy",
    "crate": "toy-sys",
    "pin": "1.0.0",
    "build": "compile",
    "language": "c",
    "folder": "src",
    "sources": ["toy.c"],
    "includes": ["."],
    "defines": [],
    "version": {"file": "VERSION", "pattern": "^toy (.+)$"},
}
# Hands out fresh memory from one arena: enough for python3 to start and to end.
TOY = """
#include <string.h>
#define EXPORT __attribute__((visibility("default")))
static _Alignas(16) char arena[1 << 26];
static unsigned long used;
EXPORT void *malloc(unsigned long size)
{
    unsigned long *block = (unsigned long *)(arena + __atomic_fetch_add(&used,
        (size + 31) & ~15ul, __ATOMIC_RELAXED));
    block[0] = size;
    return block + 2;
}
EXPORT void free(void *block) { (void)block; }
EXPORT void *calloc(unsigned long count, unsigned long size) { return malloc(count * size); }
EXPORT void *realloc(void *old, unsigned long size)
{
    void *block = malloc(size);
    if (old != NULL)
        memcpy(block, old, ((unsigned long *)old)[-2] < size ? ((unsigned long *)old)[-2] : size);
    return block;
}
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache that holds the toy's crate, as if cargo had been there."""
    source = tmp_path / "cache" / "sources" / "toy-sys-1.0.0" / "src"
    source.mkdir(parents=True)
    (source / "toy.c").write_text(TOY)
    (source.parent / "VERSION").write_text("a toy\ntoy 4.5\n")
    return tmp_path / "cache"


def source_of(cache: Path) -> Path:
    return cache / "sources" / "toy-sys-1.0.0" / "src" / "toy.c"


def of(**changes: object) -> peers.Recipe:
    return peers.Recipe.of({**ENTRY, **changes})


def checkout(tmp_path: Path, catalogue: str) -> Layout:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "peers.toml").write_text(catalogue)
    return Layout(tmp_path, tmp_path / "no-library.so", tmp_path)


def library(tmp_path: Path, source: str) -> Path:
    path = tmp_path / "lib.so"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    return path


# --- recipes and builds -----------------------------------------------------------


def test_the_key_changes_with_all_that_a_library_depends_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [
        of().key,
        of(pin="1.0.1").key,
        of(defines=["A"]).key,
        of(flags=["-g"]).key,
        replace(of(), way=peers.Configure("configure", (), "lib.so")).key,
    ]
    monkeypatch.setattr(peers, "FLAGS", (*peers.FLAGS, "-g"))
    keys.append(of().key)
    assert len(set(keys)) == len(keys)


def test_flags_of_another_machine_change_nothing() -> None:
    assert of(machine_flags={"vax": ["-mfloat"]}) == of()


def test_a_built_library_is_taken_from_the_cache(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = peers.build(of(), cache)
    assert built.stated == "4.5"
    assert "Building toy" in capsys.readouterr().err
    source_of(cache).write_text("#error built again\n")
    assert peers.build(of(), cache) == built
    assert capsys.readouterr().err == ""


def test_the_sources_own_configure_builds_outside_of_them(cache: Path) -> None:
    crate = cache / "sources" / "toy-sys-1.0.0"
    (crate / "configure").write_text(
        "srcdir=${1#--srcdir=}\n"
        'printf "out/toy.so:\\n\\tmkdir out && $2 -shared -fPIC %s -o \\$@\\n" "$srcdir/toy.c"'
        " | sed 's/CC=//' >Makefile\n"
    )
    before = sorted(crate.rglob("*"))
    way = peers.Configure("../configure", (), "out/toy.so")
    built = peers.build(replace(of(), way=way), cache)
    assert built.path.is_file()
    assert sorted(crate.rglob("*")) == before


def test_the_users_flags_do_not_reach_a_build(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPATH", str(cache / "mine"))
    (cache / "mine").mkdir()
    (cache / "mine" / "string.h").write_text("#error the user's own header\n")
    assert peers.build(of(), cache).path.is_file()


def test_a_failed_compile_names_the_first_error_and_leaves_nothing(cache: Path) -> None:
    source_of(cache).write_text("#include <nowhere.h>\nint x = ;\n")
    with pytest.raises(LabError, match=r"^cannot build toy: .*toy\.c:1.*nowhere\.h") as caught:
        peers.build(of(), cache)
    assert "\n" not in str(caught.value)
    assert [each.name for each in cache.iterdir()] == ["sources"]


def test_sources_that_state_no_version_are_an_error(cache: Path) -> None:
    with pytest.raises(LabError, match="VERSION states no version"):
        peers.build(of(version={"file": "VERSION", "pattern": "^none$"}), cache)


def test_a_peer_that_cannot_be_fetched_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match=r"cannot fetch toy-sys 1\.0\.0: cargo is not installed"):
        peers.build(of(), tmp_path / "cache")


def test_a_fetch_cut_short_leaves_no_crate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cargo = tmp_path / "cargo"
    cargo.write_text("#!/bin/sh\nmkdir -p vendor/toy-sys/src; echo error: cut >&2; exit 1\n")
    cargo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(LabError, match="error: cut"):
        peers.build(of(), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"build": "magic"}, "build is compile or configure, not 'magic'"),
        ({"language": "cobol"}, "language is c or c\\+\\+, not 'cobol'"),
        ({"build": "configure"}, "toy has no 'script'"),
        ({"version": {"file": "VERSION"}}, "toy has no 'pattern'"),
    ],
)
def test_a_wrong_entry_is_a_clear_error(changes: dict[str, object], message: str) -> None:
    with pytest.raises(LabError, match=message):
        of(**changes)


# --- what malloc resolves to ------------------------------------------------------


def test_a_library_that_python_runs_on_works(cache: Path) -> None:
    path = peers.build(of(), cache).path
    assert allocators.examine("toy", path, stated="4.5").problem == ""


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("int nothing;", "malloc resolves to .*libc.so"),
        (
            "#include <stdlib.h>\nvoid *malloc(size_t size) { (void)size; abort(); }",
            "python3 fails under .*: exit status -6",
        ),
    ],
)
def test_a_library_that_is_no_allocator_is_found_out(
    tmp_path: Path, source: str, problem: str
) -> None:
    found = allocators.examine("toy", library(tmp_path, source), stated="4.5")
    assert re.search(problem, found.problem)


def test_a_file_that_is_no_library_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_text("not ELF")
    assert "malloc resolves to" in allocators.examine("toy", path, stated="1").problem


def test_a_library_that_does_not_tell_its_version_is_a_problem(cache: Path) -> None:
    path = peers.build(of(), cache).path
    assert "python3 fails" in allocators.examine("toy", path, query="mallctl").problem
    assert "tells no version" in allocators.examine("toy", path).problem
    assert "not 'ask'" in allocators.examine("toy", path, query="ask").problem


# --- the catalogue ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("catalogue", "message"),
    [
        ("[[oracle]]\nname = 'x'\n", "'oracle' is no kind of peer; there are installed, crate"),
        ("oracle = 1\n", "'oracle' is no kind of peer"),
        ("[[installed]]\nname = 'x'\n", "a peer of the kind 'installed' has no file"),
        ("[[installed\n", "cannot read"),
    ],
)
def test_a_wrong_catalogue_is_a_clear_error(tmp_path: Path, catalogue: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        allocators.names(checkout(tmp_path, catalogue))


def test_two_peers_of_one_name_are_an_error(tmp_path: Path) -> None:
    entry = "[[installed]]\nname = 'x'\nfile = 'x.so'\npackage = 'x'\nversion = 'mallctl'\n"
    with pytest.raises(LabError, match="two peers are called 'x'"):
        allocators.names(checkout(tmp_path, entry + entry))


def test_a_peer_that_cannot_be_built_is_missing_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{key} = {value!r}\n" for key, value in ENTRY.items() if key != "version"]
    layout = checkout(tmp_path, "[[crate]]\nversion = 'mallctl'\n" + "".join(lines))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert allocators.find("toy", layout).problem == (
        "cannot fetch toy-sys 1.0.0: cargo is not installed"
    )


def test_listing_builds_nothing_and_says_what_is_not_built(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{key} = {value!r}\n" for key, value in ENTRY.items() if key != "version"]
    layout = checkout(tmp_path, "[[crate]]\nversion = 'mallctl'\n" + "".join(lines))
    monkeypatch.setattr(peers, "build", lambda *_: pytest.fail("a listing builds"))
    monkeypatch.setattr(Layout, "of", lambda *_: layout)
    done = CliRunner(env={"COLUMNS": "400"}).invoke(main, ["peers"])
    assert done.exit_code == 0, done.output
    shown = {
        name: line for line in done.output.splitlines() for name in ("toy", "floor") if name in line
    }
    assert set(shown) == {"toy", "floor"}
    assert all("not built" in line for line in shown.values()), done.output
    assert CliRunner().invoke(main, ["list"]).exit_code == 0


def test_what_is_built_is_listed_as_it_is_found(cache: Path, tmp_path: Path) -> None:
    lines = [f"{key} = {value!r}\n" for key, value in ENTRY.items() if key != "version"]
    version = "version = { file = 'VERSION', pattern = '^toy (.+)$' }\n"
    layout = checkout(tmp_path, "[[crate]]\n" + "".join(lines) + version)
    (tmp_path / "build").mkdir()
    cache.rename(layout.build / "peers")
    assert allocators.look_up("toy", layout).problem == allocators.NOT_BUILT
    built = allocators.find("toy", layout)
    assert (built.problem, built.version) == ("", "4.5 (crate toy-sys 1.0.0)")
    assert allocators.look_up("toy", layout) == built


def test_a_recipe_that_is_wrong_is_listed_with_its_problem(tmp_path: Path) -> None:
    lines = [
        f"{key} = {value!r}\n" for key, value in ENTRY.items() if key not in ("version", "language")
    ]
    layout = checkout(tmp_path, "[[crate]]\nversion = 'mallctl'\n" + "".join(lines))
    assert "toy has no 'language'" in allocators.look_up("toy", layout).problem


def test_every_recipe_of_the_lab_is_whole(layout: Layout) -> None:
    catalogue = allocators.load_catalogue(layout)
    recipes = [peers.Recipe.of(each) for each in catalogue.values() if each["kind"] == "crate"]
    assert {"mimalloc2", "mimalloc3", "snmalloc", "jemalloc531", "rpmalloc"} <= {
        recipe.name for recipe in recipes
    }
    for entry in catalogue.values():
        told = entry["version"]
        assert isinstance(told, dict) or told in allocators.VERSION_QUERIES


# --- an arm of a session ----------------------------------------------------------


def bench(layout: Layout, *arguments: str) -> Result:
    places = ["--lib", str(layout.lib), "--programs", str(layout.programs)]
    return CliRunner().invoke(main, [*places, "bench", *arguments])


def test_a_missing_arm_that_was_asked_for_stops_before_measuring(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str, layout: Layout) -> Allocator:
        problem = "cannot build snmalloc: no g++" if name == "snmalloc" else ""
        return Allocator(name, None, "1", problem)

    monkeypatch.setattr(allocators, "find", find)
    out = tmp_path / "out"
    result = bench(layout, "start", "--arms", "glibc,snmalloc", "--out", str(out))
    assert result.exit_code == 1
    assert "snmalloc: cannot build snmalloc: no g++" in result.output.replace("\n", " ")
    assert not out.exists()


def test_a_missing_peer_of_a_set_is_told_of_and_left_out(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str, layout: Layout) -> Allocator:
        return Allocator(name, None, "1", "" if name == "ebbtide" else "not there")

    monkeypatch.setattr(allocators, "find", find)
    group = ScenarioSet("set", "", ["ebbtide", "snmalloc"], [])
    (arms,) = measuring._find_arms(layout, [group], None).values()
    assert [(arm.name, arm.problem) for arm in arms] == [
        ("ebbtide", ""),
        ("snmalloc", "not there"),
    ]
