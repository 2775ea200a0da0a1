# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/lock: a Cargo.lock comes and goes without a version changed; no committed file names a registry."""
import os
import unittest

from planted import ToolTest, TOOLS

VERSIONS = """version = 3

[[package]]
name = "fetched"
version = "1.2.3"
checksum = "abc"

[[package]]
name = "own"
version = "0.1.0"
"""
SOURCE = 'source = "registry+https://crates.example/index"\n'
LOCK = VERSIONS.replace("checksum", SOURCE + "checksum")


class Lock(ToolTest, unittest.TestCase):
    tool = "lock"

    def setUp(self):
        super().setUp()
        newest = LOCK.replace("1.2.3", "1.2.4").replace("abc", "def")
        cargo = self.plant("bin/cargo", f"#!/bin/sh\necho $1 >>called\ncat >Cargo.lock <<'E'\n{newest}E\n")
        cargo.chmod(0o755)
        self.plant("rust/Cargo.versions", VERSIONS)
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{cargo.parent}:{path}"
        self.addCleanup(os.environ.__setitem__, "PATH", path)

    def test_the_versions_are_those_that_are_committed(self):
        for _ in range(2):
            self.assert_passes("--root", self.root, "rust")
            self.assertEqual(LOCK, (self.root / "rust/Cargo.lock").read_text())
        self.assertEqual("generate-lockfile\n", (self.root / "rust/called").read_text())
        self.plant("rust/Cargo.lock", LOCK.replace("1.2.3", "1.3.0"))
        self.assert_passes("--root", self.root, "rust")
        self.assertEqual(LOCK, (self.root / "rust/Cargo.lock").read_text())

    def test_write_takes_what_was_resolved(self):
        for folder in ("rust", "bench/reclaim-rs"):
            self.plant(f"{folder}/Cargo.lock", LOCK.replace("1.2.3", "1.3.0"))
        self.plant("lab/pyproject.toml", "")
        self.plant("build/venv/bin/python", "#!/bin/sh\nprintf 'a==1.2\\nb @ file:///x\\n'\n").chmod(0o755)
        self.assert_passes("--root", self.root, "--write")
        self.assertEqual(VERSIONS.replace("1.2.3", "1.3.0"), (self.root / "rust/Cargo.versions").read_text())
        self.assertEqual(["a==1.2"], (self.root / "lab/constraints.txt").read_text().splitlines()[2:])

    def test_what_is_committed_names_no_registry(self):
        committed = [*TOOLS.parent.glob("rust/**/Cargo.versions"), *TOOLS.parent.glob("bench/**/Cargo.versions")]
        self.assertEqual(4, len(committed))
        for file in (*committed, TOOLS.parent / "lab/constraints.txt"):
            self.assertNotIn("://", file.read_text())


if __name__ == "__main__":
    unittest.main()
