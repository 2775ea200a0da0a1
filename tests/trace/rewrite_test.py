# SPDX-License-Identifier: MIT OR Apache-2.0
"""Recordings made of recordings: cut, anonymise, scale. Each result is read, compiled and replayed."""
import os

from support import PROGRAMS, TRACE, TraceTest, main, tool


class Rewritten(TraceTest):
    def make(self, *command, forked=False):
        """A recording of a program; the smallest of a child's, if forked."""
        self.assertEqual(self.record(PROGRAMS / command[0], *command[1:]).returncode, 0)
        files = self.recordings()
        for path in files:
            self.finish(path)
        children = [path for path in files if self.info(path)["handed_over"] > 0]
        return children[0] if forked else files[-1]

    def rewrite(self, verb, path, *arguments):
        new = self.root / "new"
        self.passes(TRACE, verb, path, new, *arguments, seconds=60)
        info = self.info(new)
        self.replay(new)
        return new, info

    def originals(self):
        yield self.make("trace_truth_one")
        yield self.make("trace_truth_threads", "array", 2, 1500)
        yield self.make("trace_truth_threads", "queue", 3, 1500)
        yield self.make("trace_bad_day", "fork", 1, forked=True)
        yield self.make("trace_truth_large")

    def test_anonymise(self):
        for path in self.originals():
            old = self.info(path)
            self.assertIn(b"trace_", path.read_bytes()[:4096])
            new, info = self.rewrite("anonymise", path)
            for word in (b"trace_", b"truth", b"bad_day", b"array", b"/tmp"):
                self.assertNotIn(word, new.read_bytes())
            self.assertEqual([info[name] for name in ("program", "command", "pid")], [""] * 3)
            self.compare_whole(old, info, 1)

    def test_scale(self):
        for path in self.originals():
            for copies in (1, 3):
                _, info = self.rewrite("scale", path, copies)
                self.compare_whole(self.info(path), info, copies)

    def compare_whole(self, old, info, copies):
        """What a process inherited is made by a thread of its own: mallocs that `old` does not count."""
        inherited = info["mallocs"] - copies * old["mallocs"]
        self.assertEqual(inherited > 0, "bad_day" in old["program"])
        self.assertEqual(info["events"], copies * old["events"] + inherited)
        for name in ("callocs", "aligned", "frees", "reallocs", "handed_over", "end_bytes"):
            self.assertEqual(info[name], copies * old[name], name)
        if not inherited:
            self.assertEqual(info["bytes_made"], copies * old["bytes_made"])
        # copies take turns by chunks: not all are at their peak at once
        self.assertTrue(old["peak_bytes"] + (copies - 1) * old["end_bytes"] <= info["peak_bytes"]
                        <= copies * old["peak_bytes"])
        self.assertLess(abs(info["microseconds"] - old["microseconds"]), 1000)

    def test_cut(self):
        for path in self.originals():
            old = self.info(path)
            total = old["events"]
            for first, last in ((0, total), (0, 1), (total // 3, total // 2), (total - 1, total),
                                (total // 2, total + 1000), (total // 2, 2**64 - 1)):
                with self.subTest(path=path, part=(first, last)):
                    self.cut(path, first, min(last, total), last)

    def cut(self, path, first, last, asked):
        _, part = self.rewrite("cut", path, first, asked)
        alive, _ = self.up_to(path, first)
        _, at_last = self.up_to(path, last)
        self.assertEqual(part["events"], last - first + alive)
        self.assertEqual(part["end_bytes"], at_last)

    def up_to(self, path, events):
        """Objects and bytes that are alive after so many events: of the part from the beginning."""
        new = self.root / "beginning"
        self.passes(TRACE, "cut", path, new, 0, max(events, 1), seconds=60)
        info = self.info(new)
        made = sum(info[name] for name in ("mallocs", "callocs", "aligned"))
        alive = made - info["frees"] if events > 0 else info["events"] - 1
        return alive, info["end_bytes"]

    def test_pages(self):
        """What was touched of a large block comes along: the compiled words are those of the original."""
        path = self.make("trace_truth_large")
        new, _ = self.rewrite("anonymise", path)
        self.assertEqual(self.compile(path).read_bytes(), self.compile(new).read_bytes())

    def test_refusals(self):
        path = self.make("trace_truth_one")
        for words in (("cut", path, self.root / "new", 5, 5), ("cut", path, self.root / "new", 10**9, 10**10),
                      ("cut", path, path, 0, 5), ("scale", path, self.root / "new", 0),
                      ("cut", path, "/nonexistent/new", 0, 5), ("compile", path, "/nonexistent/new")):
            self.refuses(1, *words)
        for words in (("cut", path, "new", "x", 5), ("scale", path, "new", 1025), ("scale", path, "new", -1),
                      ("cut", path, "new", 1), (), ("nothing", path)):
            self.refuses(2, *words)
        self.assertEqual(self.info(path)["threads"], 1)

    def test_what_was_there_stays(self):
        """A file is made under another name: one that cannot be made takes nothing away."""
        path = self.make("trace_truth_one")
        old, damaged = self.root / "old", self.root / "damaged"
        old.write_bytes(b"precious")
        whole = bytearray(path.read_bytes())
        whole[len(whole) // 2] ^= 4
        damaged.write_bytes(whole)
        for verb, words in (("cut", (0, 10**6)), ("anonymise", ()), ("scale", (2,)), ("compile", ())):
            self.refuses(1, verb, damaged, old, *words)
            self.assertEqual(old.read_bytes(), b"precious", verb)
        pipe = self.root / "pipe"
        os.mkfifo(pipe)
        self.refuses(1, "anonymise", path, pipe)
        self.assertTrue(pipe.is_fifo())
        self.assertEqual(list(self.root.glob("*.part")), [])

    def refuses(self, status, *words):
        result = tool(TRACE, *words)
        self.assertEqual(result.returncode, status, words)
        self.assertTrue(result.stderr.startswith(b"ebb-trace: " if status == 1 else (b"usage: ", b"ebb-trace: ")))


if __name__ == "__main__":
    main()
