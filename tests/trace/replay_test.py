# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb-replay over allocators: a good one passes, and each fault of preload/bad_allocator.c is found."""
import json
import os

from support import BENCH, PROGRAMS, REPLAY, TraceTest, main, run


class Replayed(TraceTest):
    def make(self, *command):
        self.assertEqual(self.record(PROGRAMS / command[0], *command[1:]).returncode, 0)
        path = self.recordings()[-1]
        self.finish(path)
        return self.compile(path).rename(self.root / "_".join(map(str, command)))

    def replay_over(self, library, program, *options, **env):
        result = run(REPLAY, *options, program, env={**os.environ, "LD_PRELOAD": str(library), **env})
        return result.returncode, json.loads(result.stdout)

    def test_faults(self):
        library = PROGRAMS / "libtrace_bad_allocator.so"
        for program in (self.make("trace_truth_one"), self.make("trace_truth_threads", "array", 1, 2000)):
            self.assertEqual(self.replay_over(library, program)[0], 0)
            for fault in ("twice", "shifted", "dirty", "lost"):
                status, found = self.replay_over(library, program, BAD_ALLOCATOR=fault)
                self.assertEqual((status, found["refused"]), (1, 0), fault)
                self.assertGreater(found["damaged"], 0, fault)
            status, found = self.replay_over(library, program, BAD_ALLOCATOR="refuses")
            self.assertEqual((status, found["damaged"]), (1, 0))
            self.assertGreater(found["refused"], 0)
            self.assertGreater(found["first_refused_bytes"], 1900)

    def test_ebbtide(self):
        library = BENCH.parent / "libebbtide.so"
        for command in (("trace_truth_one",), ("trace_truth_threads", "array", 2, 3000),
                        ("trace_truth_threads", "queue", 3, 3000), ("trace_truth_short", 400)):
            program = self.make(*command)
            for options in ((), ("--serial",), ("--no-samples",)):
                status, found = self.replay_over(library, program, *options)
                self.assertEqual(status, 0)
                self.assertEqual(found["allocator"].rpartition("/")[2][:10], "libebbtide")

    def test_replay_of_the_replay(self):
        """Recorded itself, the replay makes the program's calls, and one more: the buffer of its own output."""
        program = self.make("trace_truth_threads", "array", 3, 50000)
        first = self.info(self.recordings()[-1])
        self.assertEqual(self.record(REPLAY, "--no-samples", program).returncode, 0)
        again = self.finish(self.recordings()[-1])
        self.assertEqual(again["mallocs"], first["mallocs"] + 1)
        for name in ("aligned", "reallocs"):
            self.assertEqual(again[name], first[name])
        self.assertLess(again["bytes_made"] - first["bytes_made"], 10000)

    def test_pace(self):
        """A paced replay takes as long as the program did, another does not wait."""
        program = self.make("trace_bad_day", "daemon")  # sleeps for a second
        for options, least, most in ((("--paced",), 0.9, 10), ((), 0, 0.9)):
            status, found = self.replay_over("", program, *options)
            self.assertEqual(status, 0)
            self.assertTrue(least <= found["wall_s"] <= most, found["wall_s"])

    def test_many_threads(self):
        """More that wait for a turn than there are words to sleep on."""
        program = self.make("trace_truth_parked", 1500)
        for options in ((), ("--serial",)):
            status, found = self.replay_over("", program, *options)
            self.assertEqual((status, found["threads"]), (0, 1501))

    def test_usage(self):
        for words in ((), ("--what",), ("--settle",), ("--settle", "x", "y"), ("a", "b")):
            result = run(REPLAY, *words)
            self.assertEqual((result.returncode, result.stderr.count(b"\n")), (2, 1), words)


if __name__ == "__main__":
    main()
