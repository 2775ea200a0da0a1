# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs that count their own calls: the recording says the same, and its replays end whole."""
import json

from support import PROGRAMS, REPLAY, TraceTest, main, run

REPLAYS = 20
# glibc's own calls for a thread: its vector of thread-local storage, pthread keys, destructors.
OF_A_THREAD = {"callocs": 4, "frees": 4, "handed_over": 4, "mallocs": 0, "aligned": 0, "reallocs": 0,
               "bytes_made": 2048, "end_bytes": 2048}


class Truth(TraceTest):
    def compare(self, *command, extra=None):
        result = self.record(PROGRAMS / command[0], *command[1:])
        self.assertEqual(result.returncode, 0, result.stderr)
        truth = json.loads(result.stdout)
        path = self.recordings()[-1]
        info = self.finish(path)
        self.assertEqual((info["threads"], info["lost"]), (truth["threads"], 0))
        for name, each in OF_A_THREAD.items():
            most = truth[name] + (truth["threads"] - 1) * each + (extra or {}).get(name, 0)
            self.assertTrue(truth[name] <= info[name] <= most,
                            f"{name}: {info[name]} were recorded, {truth[name]} to {most} made")
        self.replay(path, REPLAYS)
        return truth, info

    def test_one_thread(self):
        truth, info = self.compare("trace_truth_one")
        for name in [*OF_A_THREAD, "peak_bytes"]:
            self.assertEqual(info[name], truth[name], name)

    def test_queue(self):
        self.compare("trace_truth_threads", "queue", 1, 5000)

    def test_ring(self):
        self.compare("trace_truth_threads", "ring", 1, 5000)

    def test_array(self):
        self.compare("trace_truth_threads", "array", 1, 5000)

    def test_thrice(self):
        """Who frees an object must not take the one that it was made of: the first forms of the replay hung in one of three."""
        for kind in ("queue", "ring", "array"):
            with self.subTest(kind):
                self.compare("trace_truth_threads", kind, 3, 3000)

    def test_short_threads(self):
        self.compare("trace_truth_short", 2000)

    def test_destructors(self):
        self.compare("trace_truth_keys", 300)

    def test_cxx(self):
        truth, info = self.compare("trace_truth_cxx", extra={"mallocs": 1, "bytes_made": 80000,
                                                             "end_bytes": 80000})
        self.assertGreater(truth["aligned"], 0)

    def test_touched(self):
        """Large blocks, partly touched: the replay's memory is the program's, within a quarter."""
        result = self.record(PROGRAMS / "trace_truth_large")
        self.assertEqual(result.returncode, 0, result.stderr)
        touched = json.loads(result.stdout)["touched_bytes"]
        path = self.recordings()[-1]
        self.assertGreater(self.finish(path)["peak_bytes"], 8 * touched)
        result = run(REPLAY, self.compile(path))
        self.assertEqual(result.returncode, 0, result.stderr)
        peak = json.loads(result.stdout)["peak_anonymous_bytes"]
        self.assertTrue(0.75 * touched <= peak <= 1.25 * touched, f"{peak} for {touched}")


if __name__ == "__main__":
    main()
