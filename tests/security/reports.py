#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reports as lines of JSON in the file of EBB_CHECK_REPORT: `reports.py PROGRAM LIBRARY WITH_IT`.

PROGRAM is reports/misuse.c, and WITH_IT the same with the library in it. Exit status: 0; 1 when a test failed; 2 for bad usage."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from dataclasses import dataclass
from pathlib import Path

SMALL, LARGE = 100, 50_005  # no multiple of 16: there are bytes behind it on its page
LONG = 150_005  # with EBB_CHECK all of them are guarded, and their last 512 are held
CHECKS = {"EBB_CHECK": "1", "EBB_GUARD": "0"}  # no small block is guarded by chance
GUARDS = {"EBB_GUARD": "1000"}
SAMPLE = {"EBB_CHECK": "sample"}
OWN_STATUS = 7
LIMIT_S = 60
ALL = ("found", "allocated", "freed")
NOT_FREED = ("found", "allocated")
HARMLESS = {
    "double_free": "double free",
    "invalid_free": "invalid free",
    "foreign_free": "invalid free",
    "mismatch": "mismatched free",
    "overflow": "overflow",
    "underflow": "underflow",
    "write_after_free": "use after free",
    "realloc_freed": "use after free",
    "realloc_foreign": "invalid pointer",
    "size_of_freed": "use after free",
}

Report = dict[str, object]
program, library, with_it = "", "", ""


@dataclass(frozen=True)
class Run:
    """What a run left: `threads` are those that allocated, freed (0: none) and misused."""

    code: int
    stderr: str
    threads: tuple[int, int, int]
    block: str
    reports: list[Report]


def start(
    command: list[str], settings: dict[str, str], path: str
) -> subprocess.CompletedProcess[bytes]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("EBB_")}
    environment |= settings | {"EBB_CHECK_REPORT": path}
    environment["LD_PRELOAD"] = "" if command[0] == with_it else library
    return subprocess.run(
        command, env=environment, capture_output=True, check=False, timeout=LIMIT_S
    )


def read(path: str) -> list[Report]:
    text = Path(path).read_bytes() if os.path.isfile(path) else b""
    text.decode("ascii")
    assert text == b"" or text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines()]


def run(kind: str, size: int, settings: dict[str, str], path: str, command: str = "") -> Run:
    done = start([command or program, kind, str(size)], settings, path)
    made, freed, found, block = done.stdout.split()
    reports = read(path)
    threads = (int(made), int(freed), int(found))
    return Run(
        done.returncode, done.stderr.decode(errors="replace"), threads, block.decode(), reports
    )


class Files(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ebbtide-reports-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.file = str(self.folder / "reports.jsonl")


class Reports(Files):
    def one(self, kind: str, size: int, settings: dict[str, str]) -> tuple[Run, Report]:
        Path(self.file).unlink(missing_ok=True)
        done = run(kind, size, settings, self.file)
        self.assertEqual(1, len(done.reports), done)
        report = done.reports[0]
        self.assertEqual(1, report["version"])
        self.assertEqual(done.threads[0], report["pid"])
        self.assertEqual(Path(program).name, report["program"])
        self.assertGreater(float(str(report["time"])), 1.7e9)
        self.assertIn(str(report["message"]), done.stderr)
        self.assertTrue(str(report["message"]).startswith(f"{report['kind']}: "))
        return done, report

    def check_block(self, done: Run, report: Report, size: int, events: tuple[str, ...]) -> None:
        self.assertEqual({"address": done.block, "bytes": size}, report["block"], report)
        for event, thread in zip(ALL, (done.threads[2], done.threads[0], done.threads[1])):
            self.assertEqual(event in events, event in report, report)
            if event in events:
                self.check_event(report[event], thread)

    def check_event(self, event: object, thread: int) -> None:
        assert isinstance(event, dict)
        self.assertEqual(thread, event["thread"])
        call = event["stack"][0]
        self.assertEqual(program, call["module"])
        self.assertGreater(int(call["offset"], 16), 0)
        self.assertGreater(int(call["address"], 16), int(call["offset"], 16))

    def test_what_is_never_freed_is_looked_at_at_the_exit(self) -> None:
        for kind, size, settings in (
            ("overflow", SMALL, CHECKS),
            ("underflow", SMALL, CHECKS),
            ("overflow", LARGE, CHECKS),
            ("underflow", LARGE, CHECKS),
            ("overflow", LONG, {"EBB_CHECK": "1"}),
        ):
            with self.subTest(kind=kind, size=size):
                done, report = self.one(f"{kind}_kept", size, settings)
                self.assertEqual((-signal.SIGABRT, kind), (done.code, report["kind"]))
                self.assertEqual({"address": done.block, "bytes": size}, report["block"])
                self.check_event(report["allocated"], done.threads[0])

    def test_a_thread_on_its_last_steps_is_waited_for(self) -> None:
        _, report = self.one("overflow_beside_last_steps", SMALL, CHECKS)
        self.assertEqual("overflow", report["kind"])

    def test_whoever_ends_the_process(self) -> None:
        for how, times in (("last", 3), ("child", 50)):
            for _ in range(times):
                Path(self.file).unlink(missing_ok=True)
                done = start([program, "overflow_kept", str(SMALL), how], CHECKS, self.file)
                kinds = [report["kind"] for report in read(self.file)]
                self.assertEqual(["overflow"], kinds, (how, done))

    def test_with_the_library_in_the_program(self) -> None:
        for kind in ("overflow", "underflow"):
            done = run(f"{kind}_kept", SMALL, CHECKS, self.file, command=with_it)
            self.assertEqual([kind], [report["kind"] for report in done.reports], done)
            Path(self.file).unlink()

    def test_but_not_beside_other_threads(self) -> None:
        done = run("overflow_beside_thread", SMALL, CHECKS, self.file)
        self.assertEqual((OWN_STATUS, []), (done.code, done.reports))

    def test_each_kind_with_every_block_checked(self) -> None:
        for kind, name, events in (
            ("double_free", "double free", ALL),
            ("invalid_free", "invalid free", NOT_FREED),
            ("mismatch", "mismatched free", NOT_FREED),
            ("overflow", "overflow", NOT_FREED),
            ("underflow", "underflow", NOT_FREED),
            ("realloc_freed", "use after free", ALL),
        ):
            for size in (SMALL, LARGE):
                with self.subTest(kind=kind, size=size):
                    done, report = self.one(kind, size, CHECKS)
                    self.assertEqual(-signal.SIGABRT, done.code)
                    self.assertEqual(name, report["kind"])
                    self.check_block(done, report, size, events)

    def test_a_write_after_the_free(self) -> None:
        done, report = self.one("write_after_free", SMALL, CHECKS)  # found at the exit
        self.assertEqual((-signal.SIGABRT, "use after free"), (done.code, report["kind"]))
        self.check_event(report["freed"], done.threads[1])
        done, report = self.one("write_after_free", LARGE, CHECKS)  # at the access
        self.assertEqual((-signal.SIGSEGV, "use after free"), (done.code, report["kind"]))
        self.check_block(done, report, LARGE, ALL)
        self.assertEqual(hex(int(done.block, 16) + LARGE // 2), report["address"])

    def test_guarded_by_time_alone(self) -> None:
        unheeded = {"EBB_CHECK_BYTES": "0", "EBB_CHECK_FAMILY": "0"}
        for settings in (GUARDS, SAMPLE, SAMPLE | GUARDS, SAMPLE | unheeded):
            for kind, code, name, events in (
                ("double_free", signal.SIGABRT, "double free", ALL),
                ("overflow", signal.SIGABRT, "overflow", NOT_FREED),
                ("write_after_free", signal.SIGSEGV, "use after free", ALL),
            ):
                with self.subTest(settings=settings, kind=kind):
                    done, report = self.one(kind, LARGE, settings)
                    self.assertEqual((-code, name), (done.code, report["kind"]))
                    self.check_block(done, report, LARGE, events)

    def test_of_a_sample_other_blocks_are_as_by_default(self) -> None:
        none = SAMPLE | {"EBB_GUARD": "0"}
        for kind in ("overflow", "write_after_free"):
            for settings in (none, none | {"EBB_CHECK_BYTES": "64m"}):
                with self.subTest(kind=kind, settings=settings):
                    done = run(kind, SMALL, settings, self.file)
                    self.assertEqual((OWN_STATUS, []), (done.code, done.reports))
        done, report = self.one("mismatch", SMALL, none)
        self.assertEqual((-signal.SIGABRT, "mismatched free"), (done.code, report["kind"]))
        self.assertNotIn("allocated", report)
        Path(self.file).unlink()
        done = run("mismatch", SMALL, none | {"EBB_CHECK_FAMILY": "0"}, self.file)
        self.assertEqual((OWN_STATUS, []), (done.code, done.reports))

    def test_what_is_found_by_default(self) -> None:
        for kind, name in (
            ("invalid_free", "invalid free"),
            ("foreign_free", "invalid free"),
            ("realloc_foreign", "invalid pointer"),
            ("mismatch", "mismatched free"),
        ):
            with self.subTest(kind=kind):
                done, report = self.one(kind, SMALL, {})
                self.assertEqual((-signal.SIGABRT, name), (done.code, report["kind"]))
                self.check_event(report["found"], done.threads[2])

    def test_a_name_of_any_bytes(self) -> None:
        name = b'm "\\\n\x7f\x01\xff\xc3\xa4'
        copy = os.fsencode(self.folder) + b"/" + name
        shutil.copy(program, copy)
        done = run("double_free", SMALL, CHECKS, self.file, os.fsdecode(copy))
        stack = done.reports[0]["found"]
        assert isinstance(stack, dict)
        self.assertEqual(copy, stack["stack"][0]["module"].encode("latin-1"))

    def test_several_processes_share_a_file(self) -> None:
        for _ in range(3):
            done = run("double_free", SMALL, CHECKS, self.file)
        self.assertEqual(3, len({report["pid"] for report in done.reports}))
        own = run("double_free", SMALL, CHECKS, str(self.folder / "%p.%p"))
        self.assertTrue((self.folder / f"{own.threads[0]}.{own.threads[0]}").is_file())

    def test_bad_days_leave_the_text(self) -> None:
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for path in (
            str(self.folder / "none" / "file"),
            str(self.folder),
            "/dev/full",
            str(fifo),  # nobody reads
            str(self.folder / ("x" * 300)),
            str(self.folder / ("y/" * 1900)),
        ):
            with self.subTest(path=path[:60]):
                done = run("double_free", SMALL, CHECKS, path)
                self.assertEqual(-signal.SIGABRT, done.code)
                self.assertIn("double free: 0x", done.stderr)
                self.assertIn("freed by thread", done.stderr)
                self.assertRegex(
                    done.stderr, r"no report in the file of EBB_CHECK_REPORT: [a-z ]+ \(errno \d+\): .*\n"
                )
        refused = run("double_free", SMALL, CHECKS, "z" * 5000)
        self.assertIn("is not a file's name: ignored", refused.stderr)
        self.assertIn("double free: 0x", refused.stderr)


class Logs(Files):
    """EBB_CHECK=log: thousands of one misuse, and the heap is sound."""

    def loop(self, kind: str, size: int, how: str) -> tuple[str, list[Report]]:
        Path(self.file).unlink(missing_ok=True)
        settings = {"EBB_CHECK": "log", "EBB_GUARD": "0"}
        done = start([program, kind, str(size), how], settings, self.file)
        stderr = done.stderr.decode()
        self.assertEqual(OWN_STATUS, done.returncode, stderr)
        return stderr, read(self.file)

    def test_the_process_goes_on(self) -> None:
        for kind, name in HARMLESS.items():
            for size, how in (
                (SMALL, "alone"),
                (SMALL, "threads"),
                (SMALL, "fork"),
                (LONG, "fork"),
            ):
                if (kind, size) == ("write_after_free", LONG):
                    continue  # on pages of its own: it ends the process
                with self.subTest(kind=kind, size=size, how=how):
                    stderr, reports = self.loop(kind, size, how)
                    self.assertIn(name, {report["kind"] for report in reports})
                    self.assertRegex(stderr, r"EBB_CHECK=log: \d+ more were left out")

    def test_a_place_is_reported_three_times(self) -> None:
        stderr, reports = self.loop("invalid_free", SMALL, "threads")
        self.assertEqual(3, len(reports))
        self.assertIn("EBB_CHECK=log: 14997 more were left out", stderr)

    def test_children_of_busy_threads_are_not_reported(self) -> None:
        _, reports = self.loop("fork_beside_threads", SMALL, "alone")
        self.assertEqual([], reports)

    def test_two_threads_may_resize_one_block(self) -> None:
        for _ in range(5):  # what one of them reads may have gone by then
            settings = {"EBB_CHECK": "log", "EBB_GUARD": "0"}
            done = run("resize_beside_thread", LARGE, settings, self.file)
            self.assertIn(done.code, (OWN_STATUS, -signal.SIGSEGV), done.stderr)

    def test_an_access_that_is_refused_ends_the_process(self) -> None:
        settings = {"EBB_CHECK": "log", "EBB_GUARD": "0"}
        done = run("write_after_free", LARGE, settings, self.file)
        self.assertEqual((-signal.SIGSEGV, 1), (done.code, len(done.reports)))

    def test_without_it_each_ends_the_process(self) -> None:
        for kind in HARMLESS:
            for word in ("1", "on"):
                with self.subTest(kind=kind, word=word):
                    settings = {"EBB_CHECK": word, "EBB_GUARD": "0"}
                    done = start([program, kind, str(SMALL), "alone"], settings, self.file)
                    self.assertEqual(-signal.SIGABRT, done.returncode)


def main() -> int:
    global program, library, with_it
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    program, library, with_it = sys.argv[1:]
    tests = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    return 0 if unittest.TextTestRunner().run(tests).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
