# SPDX-License-Identifier: MIT OR Apache-2.0
"""Starts examples/leaky, in each of its languages, under Ebbtide."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from conftest import await_ready

from ebbtide_lab.base.layout import find_root

ROOT = find_root()
LIBRARY = ROOT / "build" / "release" / "libebbtide.so"
SOURCE = ROOT / "examples" / "leaky"
FAULTS = ("leak", "pin", "churn")
# In Python the functions are those of the interpreter: which kind of object it is.
NAMES = {
    "C++": ("remember_session", "note_slow_query", "render_page"),
    "Rust": ("remember_session", "note_slow_query", "render_page"),
    "Python": ("PyUnicode_New", "PyByteArray_Resize", "PyByteArray_FromStringAndSize"),
}


def in_cxx(folder: Path) -> list[str]:
    program = folder / "leaky"
    command = ["g++", "-std=c++17", "-O2", "-g", "-pthread", str(SOURCE / "leaky.cc")]
    subprocess.run([*command, "-o", str(program)], check=True, timeout=300)
    return [str(program)]


@cache
def rust_program() -> str:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed: the Rust program is not checked")
    subprocess.run([str(ROOT / "tools" / "lock"), "rust"], cwd=ROOT, check=True)
    command = ["cargo", "build", "--locked", "-q", "-j", "2", "--release"]
    subprocess.run([*command, "-p", "ebbtide", "--example", "leaky"], cwd=ROOT / "rust", check=True)
    return str(ROOT / "build" / "rust" / "release" / "examples" / "leaky")


PROGRAMS: dict[str, Callable[[Path], list[str]]] = {
    "C++": in_cxx,
    "Rust": lambda _: [rust_program()],
    "Python": lambda _: [sys.executable, str(SOURCE / "leaky.py")],
}


@contextmanager
def leaky(language: str, folder: Path, *options: str) -> Iterator[int]:
    """Its process number. Faults that are not named in `options` are off, if one is. What it
    writes on standard error, such as its statistics on SIGUSR2, is in a file of the folder."""
    if not LIBRARY.is_file():
        pytest.skip("`make lib` has not built a library")
    command = PROGRAMS[language](folder)
    environment = dict(os.environ) | {"EBB_STATS": "signal"}
    if language != "Rust":  # which has it inside
        environment |= {"LD_PRELOAD": str(LIBRARY), "PYTHONMALLOC": "malloc"}
    with (
        open(folder / "stderr", "wb") as stderr,
        subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
        ) as child,
    ):
        try:
            yield await_ready(child)
        finally:
            child.kill()
