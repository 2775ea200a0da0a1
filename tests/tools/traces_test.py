# SPDX-License-Identifier: MIT OR Apache-2.0
"""bench/traces: the list of programs is whole, and make-input makes the same input each time."""
import collections
import filecmp
import pathlib
import re
import subprocess
import tempfile
import tomllib
import unittest

from planted import TOOLS

TRACES = TOOLS.parent / "bench" / "traces"
KINDS = {"compiler": 4, "interpreter": 6, "database": 3, "server": 4, "solver": 3, "converter": 5,
         "tool": 5, "editor": 2, "java": 1,
         "pattern": 5}
NEEDED = {"name", "kind", "packages", "command", "imitates"}
SERVERS = {"port", "load", "stop"}
OPTIONAL = {"prepare", "env", "stdin", "inputs", "record", "quick"}
PLACES = {"input", "scratch", "programs"}


def read_programs():
    return tomllib.loads((TRACES / "programs.toml").read_text())["program"]


def commands_of(program):
    return [program["command"], program.get("load", []), *program.get("prepare", [])]


def texts_of(program):
    """All strings in which a place may be named."""
    words = [word for command in commands_of(program) for word in command]
    return [*words, *program.get("env", {}).values(), program.get("stdin", "")]


def inputs_named(program):
    return {name for text in texts_of(program) for name in re.findall(r"\{input\}/([\w.-]+)", text)}


class Programs(unittest.TestCase):
    def setUp(self):
        self.programs = read_programs()

    def test_names_and_ports_are_unique(self):
        for key in ("name", "port"):
            values = [program[key] for program in self.programs if key in program]
            self.assertEqual(len(values), len(set(values)), key)

    def test_all_kinds_are_there(self):
        found = collections.Counter(program["kind"] for program in self.programs)
        self.assertEqual(set(found), set(KINDS))
        for kind, least in KINDS.items():
            self.assertGreaterEqual(found[kind], least, kind)

    def test_keys(self):
        for program in self.programs:
            given = set(program)
            self.assertLessEqual(NEEDED, given, program)
            self.assertLessEqual(given, NEEDED | SERVERS | OPTIONAL, program["name"])
            self.assertIn(len(given & SERVERS), (0, len(SERVERS)), program["name"])

    def test_programs_have_a_path(self):
        for program in self.programs:
            for command in filter(None, commands_of(program)):
                self.assertRegex(command[0], r"^(/usr|/bin|\{programs\})/", program["name"])
                self.assertTrue(all(isinstance(word, str) for word in command), program["name"])

    def test_places_are_known(self):
        for program in self.programs:
            for text in texts_of(program):
                named = set(re.findall(r"\{([a-z]+)\}", text))
                self.assertLessEqual(named, PLACES, program["name"])

    def test_addresses_are_of_the_loopback(self):
        for program in self.programs:
            for address in re.findall(r"\d+\.\d+\.\d+\.\d+", " ".join(texts_of(program))):
                self.assertEqual(address, "127.0.0.1", program["name"])

    def test_inputs_are_those_that_are_named(self):
        for program in self.programs:
            given = set(program.get("inputs", []))
            self.assertLessEqual(inputs_named(program), given, program["name"])

    def test_setup_installs_their_packages(self):
        wanted = {package for program in self.programs for package in program["packages"]}
        listed = subprocess.run([TOOLS / "setup", "--print", "traces"], capture_output=True,
                                text=True, check=True).stdout
        self.assertEqual(set(listed.split()), wanted)


class Inputs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.once, cls.again = (pathlib.Path(folder.name) / name for name in ("once", "again"))
        for made in (cls.once, cls.again):
            subprocess.run([TRACES / "make-input", made], check=True, capture_output=True)

    def test_all_are_made_and_read(self):
        read = {name for program in read_programs() for name in program.get("inputs", [])}
        self.assertEqual(read, {path.name for path in self.once.iterdir()})
        self.assertTrue(all(path.stat().st_size > 0 for path in self.once.iterdir()))

    def test_they_repeat(self):
        self.assert_same(filecmp.dircmp(self.once, self.again, ignore=[]))

    def assert_same(self, pair):
        names = [*pair.left_only, *pair.right_only]
        _, differing, unread = filecmp.cmpfiles(pair.left, pair.right, pair.common_files,
                                                shallow=False)
        self.assertEqual([*names, *differing, *unread], [])
        for folder in pair.subdirs.values():
            self.assert_same(folder)


if __name__ == "__main__":
    unittest.main()
