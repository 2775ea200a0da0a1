# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the tests of trace/ share: to record a program, and what ebb-trace and ebb-replay say of it.

Called as TEST.py FOLDER_OF_THE_TOOLS FOLDER_OF_THE_PROGRAMS [unittest's arguments]. Every wait is bounded.
"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(sys.argv[1]).resolve()
PROGRAMS = pathlib.Path(sys.argv[2]).resolve()
RECORDER = BENCH / "libebbtide_record.so"
TRACE = BENCH / "ebb-trace"
REPLAY = BENCH / "ebb-replay"
SECONDS = 60


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(*command, seconds=SECONDS, **more):
    """A run that ends in time; its own group, so that nothing of it is left. Negative status: a signal."""
    return subprocess.run([str(word) for word in command], capture_output=True, timeout=seconds,
                          check=False, stdin=subprocess.DEVNULL, **more)


def tool(*command, seconds=10, **more):
    return run(*command, seconds=seconds, preexec_fn=limit_memory, **more)


class TraceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.root.chmod(0o777)

    def record(self, *command, env=None, **more):
        """The run of a recorded program; earlier recordings are gone."""
        for path in self.root.glob("base.*"):
            path.unlink()
        recorded = {**os.environ, "EBB_RECORD": f"{self.root}/base", "LD_PRELOAD": str(RECORDER)}
        return run(*command, env={**recorded, **(env or {})}, **more)

    def recordings(self):
        """The recordings that were made, by size: the last is the largest."""
        files = [path for path in self.root.glob("base.*") if path.suffix not in (".spool", ".bin")]
        return sorted(files, key=lambda path: path.stat().st_size)

    def passes(self, *command, **more):
        result = tool(*command, **more)
        self.assertEqual((result.returncode, result.stderr), (0, b""), command)
        return result.stdout

    def finish(self, path):
        self.passes(TRACE, "finish", path)
        self.assertFalse(pathlib.Path(f"{path}.spool").exists())
        return self.info(path)

    def info(self, path):
        return json.loads(self.passes(TRACE, "info", path, seconds=SECONDS))

    def compile(self, path):
        program = pathlib.Path(f"{path}.bin")
        self.passes(TRACE, "compile", path, program, seconds=SECONDS)
        return program

    def replay(self, path, times=2, serial=True):
        """Status 1 is damage, sums that differ, or refusals; a hang is a timeout."""
        program = self.compile(path)
        for _ in range(times):
            result = run(REPLAY, "--no-samples", program)
            self.assertEqual(result.returncode, 0, result.stdout[-300:] + result.stderr)
        if serial:
            result = run(REPLAY, "--serial", program)
            self.assertEqual(result.returncode, 0, result.stdout[-300:] + result.stderr)
        return json.loads(result.stdout)

    def check_all(self, times=2):
        """Each recording can be finished, read and replayed; what info says of each."""
        infos = []
        for path in self.recordings():
            infos.append(self.finish(path))
            if infos[-1]["events"] > 0:
                self.replay(path, times)
        return infos


def main():
    del sys.argv[1:3]
    unittest.main()
