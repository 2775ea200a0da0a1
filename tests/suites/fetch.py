# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian's source packages, by an apt whose lists and sources are the runner's own."""

import re
import shutil
import subprocess
import threading
from pathlib import Path

SOURCES = Path("/etc/apt")


class Fault(Exception):
    pass


def as_sources(text: str, one_line: bool) -> str:
    """What names Debian's binary packages, so that it names their sources. The security archive is left out: it
    keeps no source that has been superseded, and the main one has all that is asked for here."""
    if one_line:
        kept = [line for line in text.splitlines() if line.startswith("deb ") and "security" not in line]
        return "".join(f"deb-src {line[4:]}\n" for line in kept if "/debian" in line)
    parts = [part for part in re.split(r"\n\s*\n", text) if "/debian" in part and "security" not in part]
    return "\n\n".join(re.sub(r"(?m)^Types:.*$", "Types: deb-src", part) for part in parts)


class Archive:
    """Downloads once: what lies in `folder` is taken as it is."""

    def __init__(self, folder: Path) -> None:
        self._files = folder / "archives"
        self._apt = folder / "apt"
        self._lock = threading.Lock()
        self._files.mkdir(parents=True, exist_ok=True)

    def unpack(self, package: str, files: list[str], into: Path) -> None:
        """Anew each time: a suite leaves things behind."""
        with self._lock:
            tarball = self._find(package) or self._download(package)
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        patterns = [f"*/{name}" for name in files]
        command = ["tar", "-C", str(into), "-xf", str(tarball), "--strip-components=1", "--wildcards",
                   "--no-wildcards-match-slash", "--no-same-owner", *patterns]
        if subprocess.run(command, check=False).returncode != 0:
            raise Fault(f"{tarball.name} lacks some of: {' '.join(files)}")

    def _find(self, package: str) -> Path | None:
        found = sorted(self._files.glob(f"{package}_*.orig.tar.?z*"))
        return next((path for path in found if path.suffix != ".asc"), None)

    def _download(self, package: str) -> Path:
        self._make_lists()
        self._run("source", "--download-only", "--tar-only", package)
        found = self._find(package)
        if found is None:
            raise Fault(f"apt-get source {package} brought no archive")
        return found

    def _make_lists(self) -> None:
        parts = self._apt / "parts"
        if (self._apt / "done").exists():
            return
        for folder in (parts, self._apt / "lists/partial", self._apt / "cache/archives/partial"):
            folder.mkdir(parents=True, exist_ok=True)
        for path in [SOURCES / "sources.list", *sorted((SOURCES / "sources.list.d").glob("*"))]:
            if path.suffix in (".list", ".sources") and path.exists():
                text = as_sources(path.read_text(), path.suffix == ".list")
                (parts / path.name).write_text(text)
        self._run("update")
        (self._apt / "done").touch()

    def _run(self, *words: str) -> None:
        options = [f"Dir::Etc::sourceparts={self._apt}/parts", "Dir::Etc::sourcelist=/dev/null",
                   f"Dir::State::lists={self._apt}/lists", f"Dir::Cache={self._apt}/cache",
                   "APT::Sandbox::User=root"]
        command = ["apt-get", "-qq", *(word for option in options for word in ("-o", option)), *words]
        if subprocess.run(command, cwd=self._files, check=False).returncode != 0:
            raise Fault(f"apt-get {' '.join(words)} failed")
