# SPDX-License-Identifier: MIT OR Apache-2.0
"""Python's allocations are counted by their domain. The library's path is in EBBTIDE; each test is a Python of its own."""
import json
import os
import subprocess
import sys
import textwrap
import unittest


def run(program, preload=True, **more):
    environment = {**os.environ, "PYTHONMALLOC": "malloc", **more}
    if preload:
        environment["LD_PRELOAD"] = os.environ["EBBTIDE"]
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True,
                          check=False, timeout=120)


class Allocator(unittest.TestCase):
    def answer(self, program, **more):
        done = run(program, **more)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return json.loads(done.stdout)

    def test_objects_are_counted_where_they_are_made(self):
        before, during, after = self.answer("""
            import ebbtide_allocator, gc, json
            ebbtide_allocator.install()
            before = ebbtide_allocator.stats()
            kept = [object() for _ in range(200_000)]
            during = ebbtide_allocator.stats()
            del kept
            gc.collect()
            print(json.dumps([before, during, ebbtide_allocator.stats()]))
        """)
        self.assertEqual({"python.raw", "python.mem", "python.obj"}, set(before))
        made = during["python.obj"]["live_blocks"] - before["python.obj"]["live_blocks"]
        self.assertTrue(190_000 <= made <= 210_000, made)
        self.assertGreaterEqual(during["python.obj"]["resident_bytes"], 200_000 * 16)
        self.assertLess(after["python.obj"]["live_blocks"], before["python.obj"]["live_blocks"] + 20_000)
        grown = during["python.mem"]["live_bytes"] - before["python.mem"]["live_bytes"]
        self.assertGreaterEqual(grown, 200_000 * 8)  # the list's array

    def test_blocks_of_before_and_after_meet(self):
        self.assertEqual([499_500, True], self.answer("""
            import json
            early = [[i] * 50 for i in range(1000)]
            import ebbtide_allocator
            ebbtide_allocator.install()
            ebbtide_allocator.install()
            for each in early:
                each.extend(range(500))
            late = {str(i): bytes(i) for i in range(3000)}
            ebbtide_allocator.remove()
            ebbtide_allocator.remove()
            total = sum(each.pop(0) for each in early)
            early.clear()
            late.clear()
            again = [object() for _ in range(10_000)]
            counted = ebbtide_allocator.stats()["python.obj"]["live_blocks"]
            ebbtide_allocator.install()
            print(json.dumps([total, counted < 10_000]))
        """))

    def test_threads_and_a_child(self):
        self.assertEqual([4000, 0], self.answer("""
            import ebbtide_allocator, json, os, threading
            ebbtide_allocator.install()
            made = []
            threads = [threading.Thread(target=lambda: made.extend(str(i) * 10 for i in range(1000))) for _ in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            child = os.fork()
            if child == 0:
                made.clear()
                os._exit(0 if ebbtide_allocator.stats() else 1)
            print(json.dumps([len(made), os.waitpid(child, 0)[1]]))
        """))

    def test_without_the_library(self):
        for more in ({}, {"PYTHONMALLOC": "default"}):
            done = run("import ebbtide_allocator; print(ebbtide_allocator.stats()); ebbtide_allocator.install()", preload=False, **more)
            self.assertEqual("{}\n", done.stdout)
            self.assertIn("RuntimeError: malloc is not Ebbtide's: preload libebbtide.so", done.stderr)

    def test_under_pythons_own_debug_hooks(self):
        self.assertEqual([100, 4950], self.answer("""
            import ebbtide_allocator, json
            ebbtide_allocator.install()
            kept = [list(range(i)) for i in range(100)]
            print(json.dumps([len(kept), sum(map(len, kept))]))
        """, PYTHONMALLOC="malloc_debug"))


if __name__ == "__main__":
    unittest.main()
