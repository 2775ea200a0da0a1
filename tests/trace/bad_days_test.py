# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whatever befalls a recorded process: it prints and ends as it does unrecorded, and its recordings can be replayed."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

from support import BENCH, PROGRAMS, TRACE, TraceTest, main, run, tool

BAD_DAY = PROGRAMS / "trace_bad_day"
STOPS = re.compile(rb"(ebb record: cannot [^\n]*; the recording stops here, the program goes on\n)*")


def limit_files(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class BadDays(TraceTest):
    def same(self, *command, program=BAD_DAY, env=None, files=None, may_stop=False, **more):
        """With the recorder and without it; how many recordings there are, if it is known."""
        alone = run(program, *command, **more)
        recorded = self.record(program, *command, env=env, **more)
        self.assertEqual((recorded.returncode, recorded.stdout), (alone.returncode, alone.stdout),
                         recorded.stderr)
        if may_stop:
            self.assertRegex(recorded.stderr, STOPS)
        else:
            self.assertEqual(recorded.stderr, alone.stderr)
        infos = self.check_all()
        if files is not None:
            self.assertEqual(len(infos), files)
        return infos

    def test_fork(self):
        """Children of children that free what they inherit, each with a recording of its own."""
        infos = self.same("fork", 1, files=13)
        self.assertEqual(sum(info["handed_over"] > 0 for info in infos), 12)

    def test_raw_fork(self):
        """A fork that runs no handlers: the child may not write into its parent's recording."""
        for how in (0, 1):
            self.same("raw_fork", how, files=2)

    def test_spawn(self):
        self.same("spawn")

    def test_exec(self):
        self.same("exec", 3, files=4)

    def test_ends(self):
        """Killed, crashed, aborted, gone by _exit: all events of before are there."""
        for how in (0, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
            with self.subTest(how):
                info, = self.same("end", int(how), files=1)
                self.assertGreater(info["events"], 100000)

    def test_killed_at_any_time(self):
        """Also while it writes a block: a part of it is no damage."""
        for i in range(12):
            path = f"{self.root}/killed{i}"
            process = subprocess.Popen([BAD_DAY, "fork", "0"], stdout=subprocess.DEVNULL, env={
                **os.environ, "EBB_RECORD": path, "LD_PRELOAD": str(BENCH / "libebbtide_record.so")})
            file = pathlib.Path(f"{path}.{process.pid}.0")
            while process.poll() is None and not (file.exists() and file.stat().st_size > 0):
                time.sleep(0.001)
            time.sleep(i * 0.01)
            process.kill()
            process.wait()
            self.finish(file)

    def test_finish_too_early(self):
        """While the process writes its recording nobody else may."""
        base, words = f"{self.root}/early", ["bash", "-c", "echo begun; read -r _; exit 0"]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={
            "EBB_RECORD": base, "LD_PRELOAD": str(BENCH / "libebbtide_record.so")})
        self.assertEqual(process.stdout.readline(), b"begun\n")
        file = f"{base}.{process.pid}.0"
        result = tool(TRACE, "finish", file)
        self.assertEqual((result.returncode, result.stderr.count(b"\n")), (1, 1))
        self.assertIn(b"still", result.stderr)
        process.communicate(b"\n")
        self.finish(file)

    def test_killed_at_any_instruction(self):
        """From the write of a block to where the slot is empty: its events are there, and once."""
        steps = 600
        result = self.record(PROGRAMS / "trace_bad_stepped", steps, f"{self.root}/base", PROGRAMS / "trace_truth_one")
        self.assertEqual(result.returncode, 0, result.stderr)
        events = []
        for step in range(steps):
            path = self.root / f"base.step.{step}"
            self.passes(TRACE, "finish", path)
            events.append(self.info(path)["events"])
        self.assertGreater(events[0], 10000)
        self.assertEqual(events, sorted(events))
        self.assertLess(events[-1] - events[0], 100)

    def test_part_of_a_block(self):
        result = self.record(BAD_DAY, "end", 9)
        self.assertEqual(result.returncode, -9)
        path = self.recordings()[-1]
        whole = path.read_bytes()
        copy = self.root / "copy"
        copy.write_bytes(whole)
        shutil.copy(f"{path}.spool", f"{copy}.spool")
        expected = self.finish(copy)
        first = whole.index(b"EBK1")
        path.write_bytes(whole + whole[first:first + 1000])
        self.assertEqual({**self.finish(path), "file_bytes": 0}, {**expected, "file_bytes": 0})

    def test_closed_descriptors(self):
        for how in (0, 1, 2):
            with self.subTest(how):
                info, = self.same("close", how, files=1)
                self.assertGreater(info["threads"], 20)

    def test_daemon(self):
        self.same("daemon", files=2)

    def test_folders_and_users(self):
        self.same("root", 0, files=2)
        if os.geteuid() == 0:
            self.same("root", 1, may_stop=True)
            self.same("root", 2, files=2)

    def test_limits(self):
        """Of a file's size (an error, no signal), of descriptors, of the address space."""
        for what in (0, 1, 2):
            with self.subTest(what):
                self.same("limit", what, may_stop=True)

    def test_full_disk(self):
        """Where the recording stops, no thread may tell of objects that another could not write down."""
        for size in (20000, 100000, 300000, 500000, 900000):
            with self.subTest(size):
                result = self.record(PROGRAMS / "trace_truth_threads", "array", 3, 20000,
                                     preexec_fn=limit_files(size))
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(b"the recording stops here", result.stderr)
                if size > 150000:  # below it has not begun
                    info, = self.check_all()
                    self.assertGreater(info["events"], 100)

    @unittest.skipUnless(os.geteuid() == 0, "needs a file system of its own")
    def test_full_file_system(self):
        script = ("mount -t tmpfs -o size=400k none $0 && EBB_RECORD=$0/base LD_PRELOAD=$1 "
                  "$2 array 3 20000 >$3/truth; status=$?; cp $0/* $3; exit $status")
        folder = self.root / "small"
        folder.mkdir()
        result = run("unshare", "-m", "bash", "-c", script, folder, BENCH / "libebbtide_record.so",
                     PROGRAMS / "trace_truth_threads", self.root)
        if b"unshare" in result.stderr or b"mount" in result.stderr:
            self.skipTest(result.stderr.decode())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"the recording stops here", result.stderr)
        self.assertEqual(len(self.check_all()), 1)

    def test_large_blocks_after_the_end(self):
        self.same("large_after_stop", may_stop=True)

    def test_no_folder(self):
        for base in ("/nonexistent/base", "/proc/base", f"{self.root}/{'x' * 250}", "/" + "x" * 5000):
            self.same("exec", 1, env={"EBB_RECORD": base}, may_stop=True)
        self.same("exec", 0, env={"EBB_RECORD": ""}, cwd=self.root, files=0)
        self.assertEqual(list(self.root.iterdir()), [])

    def test_handlers(self):
        """One that allocates within malloc is wrong in any program: it may crash, its recording is whole.
        One that forks is allowed where there is one thread, and hung in the lock of its own thread."""
        self.record(BAD_DAY, "handler")
        self.check_all()
        self.same("handler_forks", 1500, files=1)

    def test_cancelled_threads(self):
        """malloc is no cancellation point; in a write of the recorder threads ended with its lock."""
        self.same("cancel", 150, files=1)

    def test_small_stack(self):
        self.same("small_stack", files=1)

    def test_libraries(self):
        self.same("libraries", 20, files=1)

    def test_own_malloc(self):
        self.same(program=PROGRAMS / "trace_bad_own_malloc", files=0)

    def test_static(self):
        self.same(program=PROGRAMS / "trace_bad_static", files=0)

    def test_beside_ebbtide(self):
        for order in ("{0}:{1}", "{1}:{0}"):
            preload = order.format(BENCH / "libebbtide_record.so", BENCH.parent / "libebbtide.so")
            result = self.record(PROGRAMS / "trace_truth_one", env={"LD_PRELOAD": preload})
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(json.loads(result.stdout)["threads"], 1)
            self.check_all()

    def test_tells_the_path(self):
        """The negative control of `same`: a program that prints its environment is not the same."""
        with self.assertRaises(AssertionError):
            self.same(program="env")
        self.assertEqual(run(TRACE, "info", self.root / "nothing").returncode, 1)


if __name__ == "__main__":
    main()
