# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/setup asks for what is missing and for nothing else, on machines made of fakes."""
import os
import subprocess
import unittest

from planted import TOOLS, ToolTest


class Setup(ToolTest, unittest.TestCase):
    tool = "setup"

    def machine(self, user, absent=(), apt_exit=0):
        """A PATH whose dpkg-query lacks `absent` and whose apt-get only notes its arguments."""
        self.fake("dpkg-query", 'for name in "$@"; do case " %s " in *" $name "*) ;; *) '
                  'echo "ii $name";; esac; done' % " ".join(absent))
        self.fake("apt-get", f'echo "$@" >>{self.root}/apt; exit {apt_exit}')
        self.fake("id", f"echo {user}")
        self.fake("node", "true")

    def fake(self, name, body):
        self.plant(name, f"#!/bin/sh\n{body}\n").chmod(0o755)

    def run_tool(self, *arguments):
        environment = {**os.environ, "PATH": f"{self.root}:{os.environ['PATH']}"}
        return subprocess.run([TOOLS / self.tool, *arguments], env=environment,
                              capture_output=True, text=True, check=False)

    def apt_calls(self):
        notes = self.root / "apt"
        return notes.read_text() if notes.exists() else ""

    def test_silent_when_all_is_there(self):
        self.machine(user=1000)
        self.assertEqual(self.assert_passes("build", "test", "run"), "")
        self.assertEqual(self.apt_calls(), "")

    def test_root_installs_what_is_missing(self):
        self.machine(user=0, absent=["ninja-build", "valgrind"])
        self.assert_passes("build", "test")
        self.assertIn("install -y --no-install-recommends ninja-build valgrind\n", self.apt_calls())

    def test_a_group_brings_no_other(self):
        self.machine(user=0, absent=["ninja-build", "valgrind"])
        self.assert_passes("build")
        self.assertNotIn("valgrind", self.apt_calls())

    def test_others_are_told_the_command(self):
        self.machine(user=1000, absent=["ninja-build"])
        self.assert_fails("sudo apt-get install -y --no-install-recommends ninja-build", "build")
        self.assertEqual(self.apt_calls(), "")

    def test_failed_installation(self):
        self.machine(user=0, absent=["ninja-build"], apt_exit=100)
        self.assert_fails("apt-get failed", "build")

    def test_unknown_group(self):
        self.assertEqual(self.run_tool("everything").returncode, 2)


if __name__ == "__main__":
    unittest.main()
