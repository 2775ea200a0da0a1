# SPDX-License-Identifier: MIT OR Apache-2.0
"""The interpreter's objects are Ebbtide's from its first one on. The program's path is in PROGRAM."""
import os
import subprocess
import textwrap
import unittest


def run(program, *arguments, **more):
    return subprocess.run([os.environ["PROGRAM"], "-c", textwrap.dedent(program), *arguments], env={**os.environ, **more},
                          capture_output=True, text=True, check=False, timeout=120)


class Embed(unittest.TestCase):
    def test_objects_come_from_ebbtide(self):
        done = run("""
            import ebbtide, sys
            start = ebbtide.live_bytes()
            kept = [object() for _ in range(200_000)]
            grown = ebbtide.live_bytes() - start
            del kept
            print(start > 1_000_000, grown >= 200_000 * (16 + 8), ebbtide.live_bytes() - start < 500_000, ebbtide.trim() > 0, *sys.argv[1:])
        """, "a", "b c")
        self.assertEqual(("True True True True a b c\n", "", 0), (done.stdout, done.stderr, done.returncode))

    def test_it_is_a_whole_python(self):
        done = run("""
            import json, os, re, threading
            made = []
            threads = [threading.Thread(target=lambda: made.append(json.loads(json.dumps(list(range(5000)))))) for _ in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            child = os.fork()
            if child == 0:
                os._exit(len(re.findall("a+", "aa b aaa")))
            print(sum(map(sum, made)), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), bytes(0) == b"", len(bytearray(0)))
        """)
        self.assertEqual((f"{4 * sum(range(5000))} 2 True 0\n", ""), (done.stdout, done.stderr))

    def test_errors_end_it_as_they_end_python(self):
        done = run("raise SystemExit(7)")
        self.assertEqual(7, done.returncode)
        done = run("x = [0] * (1 << 62)")
        self.assertEqual(1, done.returncode)
        self.assertIn("MemoryError", done.stderr)


if __name__ == "__main__":
    unittest.main()
