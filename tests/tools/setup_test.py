# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/setup asks for what is missing and for nothing else, on machines made of fakes."""
import os
import re
import shutil
import subprocess
import unittest

from planted import TOOLS, ToolTest


FAMILIES = ("debian", "fedora", "arch", "alpine")


def table():
    rows = (line.split() for line in (TOOLS / "packages.txt").read_text().splitlines() if not line.startswith("#"))
    return list(rows)


class Setup(ToolTest, unittest.TestCase):
    tool = "setup"

    def machine(self, user, absent=(), apt_exit=0, system="ID=debian\n"):
        """All that can be run is a shell, its usual tools, the commands and packages of the table but `absent`, and managers
        that note their arguments."""
        self.bin = self.root / "bin"
        self.bin.mkdir()
        for name in ("sh", "sed", "awk", "grep", "sort", "tr", "cut", "tail", "dirname", "mkdir", "sleep"):
            (self.bin / name).symlink_to(shutil.which(name))
        column = {"debian": 2, "fedora": 3, "arch": 4, "alpine": 5}.get(system.strip().split("=")[-1], 2)
        for _, shown, *names in table():
            if shown != "-" and "/" not in shown and names[column - 2] not in absent and shown not in ("sh", "sed"):
                self.fake(shown, "true")
        listed = " ".join(absent)
        asked = f'for name in "$@"; do :; done; case " {listed} " in *" $name "*) exit 1;; esac; '
        self.fake("dpkg-query", asked + 'printf "ii "')
        for manager in ("rpm", "apk", "pacman"):
            self.fake(manager, f'case "$1" in -q|-Q|info) {asked} exit 0;; esac; echo {manager} "$@" >>{self.root}/apt')
        self.fake("dnf", f'echo dnf "$@" >>{self.root}/apt')
        self.fake("apt-get", f'echo "$@" >>{self.root}/apt; exit {apt_exit}')
        self.fake("id", f"echo {user}")
        self.system = self.plant("os-release", system)

    def fake(self, name, body):
        self.plant(f"bin/{name}", f"#!/bin/sh\n{body}\n").chmod(0o755)

    def run_tool(self, *arguments):
        environment = {**os.environ}
        if hasattr(self, "bin"):
            environment |= {"PATH": str(self.bin), "SETUP_OS_RELEASE": str(self.system)}
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

    def test_what_is_only_tried_is_left_out_in_one_line(self):
        for machine in ({"user": 1000}, {"user": 0, "apt_exit": 100}, {"user": 0, "system": "ID=plan9\n"}):
            with self.subTest(machine):
                self.setUp()
                self.machine(absent=["redis-server", "ninja-build"], **machine)
                self.fake_away("redis-server")
                done = self.run_tool("--try", "run")
                self.assertEqual(done.returncode, 0, done.stderr)
                told = [line for line in done.stdout.splitlines() if "left out" in line]
                self.assertEqual(len(told), 1, done.stdout)
                self.assertIn("redis-server", told[0])
                self.assertLessEqual(len(done.stdout.splitlines()), 3)

    def test_every_row_of_the_table_names_each_distribution(self):
        for row in table():
            self.assertEqual(len(row), 2 + len(FAMILIES), row)
            self.assertIn(row[0], ("build", "test", "run", "release", "glibc", "suites"))

    def test_what_is_there_without_a_package_is_not_asked_for(self):
        self.machine(user=0, absent=["clang-package-of-nobody"])
        self.fake("dpkg-query", "exit 1")  # no package at all; the commands are there
        self.assertEqual(self.assert_passes("build"), "")
        self.assertEqual(self.apt_calls(), "")

    def test_each_distribution_by_its_own_names(self):
        for system, package, expected in (
                ("ID=fedora\n", "ninja-build", "dnf install -y ninja-build"), ("ID=arch\n", "ninja", "pacman -S --needed --noconfirm ninja"),
                ("ID=alpine\n", "ninja", "apk add ninja"), ('ID=mint\nID_LIKE="ubuntu debian"\n', "ninja-build", "apt-get install"),
                ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "ninja-build", "dnf install -y")):
            with self.subTest(system=system):
                self.setUp()
                self.machine(user=1000, absent=[package], system=system)
                self.fake_away("ninja")
                self.assert_fails(f"sudo {expected}", "build")
                self.assertEqual(len(self.run_tool("build").stderr.splitlines()), 1)

    def test_unknown_distribution(self):
        self.machine(user=0, system="ID=plan9\n")
        self.assertEqual(self.assert_passes("build"), "")
        self.fake_away("ninja")
        self.assert_fails("unknown distribution; install what Debian calls: ninja-build\n", "build")
        self.assertEqual(self.apt_calls(), "")

    def fake_away(self, name):
        (self.bin / name).unlink(missing_ok=True)

    def test_unknown_group(self):
        self.assertEqual(self.run_tool("everything").returncode, 2)


class SetupLab(ToolTest, unittest.TestCase):
    tool = "setup-lab"

    def copy(self, python):
        """The tool in a tree of its own, beside a python3 that is a fake."""
        self.plant("lab/pyproject.toml", "")
        self.plant("lab/constraints.txt", "")
        self.plant("bin/python3", f"#!/bin/sh\n{python}\n").chmod(0o755)
        (self.root / "tools").mkdir()
        shutil.copy(TOOLS / self.tool, self.root / "tools")

    def run_copy(self):
        environment = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        return subprocess.run([self.root / "tools" / self.tool], env=environment, capture_output=True, text=True, check=False)

    def test_without_python(self):
        self.copy("exit 1")
        done = self.run_copy()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Asetup-lab: needs Python 3.11 [^\n]*\n\Z")
        self.assertFalse((self.root / "build").exists())

    def test_without_network_nothing_is_left(self):
        self.copy('[ "$1" = -c ] && exit 0; mkdir -p build/venv/bin; ln -s /bin/false build/venv/bin/python')
        done = self.run_copy()
        self.assertEqual(done.returncode, 1)
        self.assertIn("is there a network?", done.stderr)
        self.assertFalse((self.root / "build/venv").exists())


class Told(ToolTest, unittest.TestCase):
    """A long command is told of while it runs, and its own words only when it fails."""

    def run_tool(self, *arguments, every="2"):
        environment = {**os.environ, "TOLD_EVERY": every}
        return subprocess.run([TOOLS / "told", *arguments], env=environment, capture_output=True, text=True, check=False)

    def test_a_quick_command_is_silent(self):
        done = self.run_tool("working", "echo", "chatter")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_long_one_has_lines_and_tells_how_far_it_is(self):
        done = self.run_tool("working", "sh", "-c", "for i in 1 2 3 4 5 6; do echo [$i/6] file; sleep 1; done")
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "working ...")
        self.assertRegex(lines[1], r"^working: 2 s \[\d/6\]$")
        self.assertLessEqual(len(lines), 4)
        self.assertEqual(done.stderr, "")

    def test_a_failure_shows_why(self):
        done = self.run_tool("working", "sh", "-c", "echo the reason; exit 3")
        self.assertEqual(done.returncode, 3)
        self.assertIn("the reason", done.stderr)
        self.assertIn("failed: working", done.stderr)

    def test_its_own_pace_is_below_ten_seconds(self):
        every = re.search(r"TOLD_EVERY-(\d+)", (TOOLS / "told").read_text())
        self.assertLess(int(every[1]), 10)


if __name__ == "__main__":
    unittest.main()
