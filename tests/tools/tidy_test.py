# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/tidy judges each form of a file, and equal ones once."""
import json
import shutil
import unittest

from planted import ToolTest

FAULT = "if (n) return 1;"


@unittest.skipUnless(shutil.which("clang-tidy") and shutil.which("clang"), "no clang-tidy here")
class Tidy(ToolTest, unittest.TestCase):
    tool = "tidy"

    def setUp(self):
        super().setUp()
        self.plant(".clang-tidy", "Checks: '-*,readability-braces-around-statements'\nWarningsAsErrors: '*'\n")
        self.forms("", "-DEBB_STATIC=1")

    def forms(self, *options):
        """The options of each library that has the file."""
        commands = [{"directory": str(self.root), "file": str(self.root / "src/heap/a.c"),
                     "command": f"clang {words} -o {number}.o -c {self.root}/src/heap/a.c"} for number, words in enumerate(options)]
        self.plant("build/compile_commands.json", json.dumps(commands))

    def arguments(self, before, body=""):
        self.plant("src/heap/a.c", f"{before}\nint f(int n);\nint f(int n) {{ {body}\nreturn n; }}\n")
        return ["--root", self.root, self.root / "build"]

    def test_sound_file(self):
        self.assertEqual(self.assert_passes(*self.arguments("")), "")

    def test_equal_forms_are_judged_once(self):
        result = self.run_tool(*self.arguments("", FAULT))
        self.assertEqual((result.returncode, result.stdout.count("error:")), (1, 1), result.stdout)

    def test_fault_in_either_form(self):
        for condition in ("ifdef", "ifndef"):
            with self.subTest(condition):
                self.assert_fails("readability-braces", *self.arguments("", f"\n#{condition} EBB_STATIC\n{FAULT}\n#endif"))

    def test_macros_tell_forms_apart(self):
        guarded = "#ifdef EBB_STATIC\n#define LATE 1\n#endif"
        result = self.run_tool(*self.arguments(guarded, FAULT))
        self.assertEqual(result.stdout.count("error:"), 2, result.stdout)

    def test_options_tell_forms_apart(self):
        self.forms("-O1", "-O3")
        result = self.run_tool(*self.arguments("", FAULT))
        self.assertEqual(result.stdout.count("error:"), 2, result.stdout)

    def test_file_of_no_library(self):
        self.plant("compat/lost.c", "int lost;\n")
        self.assert_fails("lost.c: no library has it", *self.arguments(""))

    def test_only_the_one_file_build_is_left_out(self):
        self.plant("src/one.c", "int one;\n")
        self.assert_passes(*self.arguments(""))


if __name__ == "__main__":
    unittest.main()
