# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whether a library can be preloaded into a program: what its file says."""

import os
import shutil
import stat
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from ebbtide_lab.base.errors import LabError

CAPABILITIES = "security.capability"
DEEPEST = 4  # scripts whose interpreter is a script; the kernel's limit, too


class NotPreloadableError(LabError):
    """A program that a library cannot be preloaded into; the message says why."""


def check_preloadable(name: str, library: Path) -> None:
    """Raises NotPreloadableError; of a script its interpreter is looked at."""
    path = _find(name)
    interpreter = _interpreter(path)
    for _ in range(DEEPEST):
        if interpreter is None:
            break
        path = _find(interpreter)
        interpreter = _interpreter(path)
    _check_file(path)
    _check_elf(path, library)


def _find(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise NotPreloadableError(f"there is no program {name}")
    return Path(found)


def _interpreter(path: Path) -> str | None:
    """What the first line of a script names."""
    try:
        with path.open("rb") as file:
            line = file.readline(4096)
    except OSError as error:
        raise NotPreloadableError(f"cannot read {path}: {error.strerror}") from error
    words = line.removeprefix(b"#!").split()
    return os.fsdecode(words[0]) if line.startswith(b"#!") and words else None


def _check_file(path: Path) -> None:
    """The dynamic linker ignores LD_PRELOAD where a program gets rights from its file."""
    mode = path.stat().st_mode
    for bit, word in ((stat.S_ISUID, "set-uid"), (stat.S_ISGID, "set-gid")):
        if mode & bit:
            raise NotPreloadableError(f"{path} is {word}: nothing is preloaded into it")
    if CAPABILITIES in os.listxattr(path):
        raise NotPreloadableError(f"{path} has file capabilities: nothing is preloaded into it")


def _check_elf(path: Path, library: Path) -> None:
    with path.open("rb") as file, library.open("rb") as wanted:
        try:
            elf = ELFFile(file)
        except ELFError as error:
            raise NotPreloadableError(f"{path} is no ELF program and no script") from error
        if elf.get_machine_arch() != ELFFile(wanted).get_machine_arch():
            raise NotPreloadableError(f"{path} is built for {elf.get_machine_arch()}")
        if not any(elf.iter_segments("PT_INTERP")):
            raise NotPreloadableError(f"{path} is static: nothing is preloaded into it")
