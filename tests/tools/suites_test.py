# SPDX-License-Identifier: MIT OR Apache-2.0
"""tests/suites/run: a fault of each kind, in programs that are lines of shell, ends it with 1; a library that finds nothing, too."""
import json
import pathlib
import signal
import subprocess
import time
import unittest

from planted import TOOLS, ToolTest

RUN = TOOLS.parent / "tests" / "suites" / "run"
# The report of a fault, and its end, as the library's; but not of `nothing`.
FOUND = """case $0 in nothing) exit 0;; double_free) kind='double free';; *) kind=written;; esac
echo '{"message":"'$kind'"}' >>"$EBB_CHECK_REPORT"; exit 134"""


class Suites(ToolTest, unittest.TestCase):
    tool = RUN  # an absolute path stays one

    def setUp(self):
        super().setUp()
        (self.root / "work/input").mkdir(parents=True)
        source = self.plant("library.c", "int a_library;\n")
        self.library = self.root / "library.so"
        subprocess.run(["cc", "-shared", "-o", self.library, source], check=True)

    def table(self, script, **keys):
        program = {"name": "shell", "kind": "work", "program": "/bin/sh", "process": "sh", "packages": ["dash"], "tests": ["one"],
                   "command": ["sh", "-c", script, "{test}"], **keys}
        lines = (f"{key} = {json.dumps(value)}" for key, value in program.items() if not isinstance(value, dict))
        tables = (f"[program.{key}]\n" + "".join(f"{json.dumps(name)} = {json.dumps(text)}\n" for name, text in value.items())
                  for key, value in program.items() if isinstance(value, dict))
        table = self.plant("table.toml", "[[program]]\n" + "\n".join([*lines, *tables]) + "\n")
        return self.library, self.root / "work", "--table", table

    def test_what_passes_three_times(self):
        text = self.assert_passes(*self.table("echo ok; echo ok", checks="^ok"))
        self.assertIn("1 programs, 1 tests with 2 checks: 0 pass plain", text)

    def test_a_new_failure(self):
        self.assert_fails("one, checked: status 3", *self.table('[ -z "$EBB_CHECK" ] || exit 3'))
        self.assert_fails("one, preloaded: status 3", *self.table('[ -z "$LD_PRELOAD" ] || exit 3'))

    def test_a_check_less(self):
        self.assert_fails("one, checked: 1 checks pass, plain 2", *self.table('echo ok; [ -n "$EBB_CHECK" ] || echo ok', checks="^ok"))

    def test_another_output(self):
        script = "echo $LD_PRELOAD"
        self.assert_passes(*self.table(script))
        self.assert_fails("one, preloaded: another output", *self.table(script, same=True))

    def test_a_report_though_the_test_passes(self):
        script = '[ -z "$EBB_CHECK" ] || echo \'{"message":"double free"}\' >"$EBB_CHECK_REPORT"'
        self.assert_fails("one, checked: double free", *self.table(script))
        self.assert_fails("one, preloaded: ebbtide: ", *self.table('[ -z "$LD_PRELOAD" ] || echo "ebbtide: sh[1]: double free"'))

    def test_known_and_stale(self):
        known = {"known": {"one": "a reason"}}
        self.assertIn("one: a reason", self.assert_passes(*self.table('[ -z "$EBB_CHECK" ] || exit 3', **known)))
        self.assert_fails("said to fail, and does not", *self.table("true", **known))

    def test_nothing_that_can_be_judged(self):
        self.assert_fails("1 fail without the library, too", *self.table("exit 1"))

    def test_a_program_without_the_library(self):
        self.assert_fails("the library is not loaded in /bin/sh", *self.table("true", process="another"))

    def test_a_program_that_is_not_there(self):
        self.assertIn("skipped: /nowhere/sh", self.assert_passes(*self.table("true", program="/nowhere/sh")))

    def test_its_end_is_that_of_its_tests(self):
        mark = self.root / "pid"
        command = [RUN, *self.table(f"echo $$ >{mark}; exec sleep 300")]
        for number in (signal.SIGTERM, signal.SIGINT):
            mark.unlink(missing_ok=True)
            runner = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            while not mark.exists() or not mark.read_text().endswith("\n"):
                self.assertIsNone(runner.poll())
                time.sleep(0.05)
            test = int(mark.read_text())
            runner.send_signal(number)
            self.assertEqual(128 + number, runner.wait(60))
            for _ in range(1000):
                status = pathlib.Path(f"/proc/{test}/status")
                if not status.exists() or "State:\tZ" in status.read_text():
                    break
                time.sleep(0.05)
            else:
                self.fail("the test goes on")

    def test_planted_faults(self):
        fault = ["sh", "-c", FOUND, "{fault}"]
        self.assertIn("3 planted faults found", self.assert_passes(*self.table("true", fault=fault)))
        self.assert_fails("planted double_free: reports ()", *self.table("true", fault=["sh", "-c", "exit 134"]))
        always = ["sh", "-c", FOUND.replace("nothing) exit 0;;", ""), "{fault}"]
        self.assert_fails("planted nothing", *self.table("true", fault=always))


if __name__ == "__main__":
    unittest.main()
