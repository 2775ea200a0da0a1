# SPDX-License-Identifier: MIT OR Apache-2.0
"""The static tracepoints: those of docs/tracing.md, with so many arguments, at a nop each; and what they tell is so.

Arguments: the shared library, the static one.
"""
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
# x86-64 and 64-bit Arm: the nop, and a register or a constant of 8 bytes without a sign.
NOPS = {62: (b"\x90", re.compile(r"8@(%r\w+|\$\d+)")), 183: (b"\x1f\x20\x03\xd5", re.compile(r"8@(x\d+|\d+)"))}


def documented():
    """name -> how many arguments"""
    text = (ROOT / "docs/tracing.md").read_text()
    return {name: len(arguments.split(", ")) for name, arguments in ROW.findall(text)}


def cstring(data):
    return data.split(b"\0")[0].decode()


class Elf:
    """As much of a 64-bit little-endian file as the notes take."""

    def __init__(self, data):
        self.data = data
        self.machine, = struct.unpack_from("<H", data, 18)
        at, = struct.unpack_from("<Q", data, 40)
        size, count, names = struct.unpack_from("<3H", data, 58)
        # name, type, flags, address, offset, size
        headers = [struct.unpack_from("<IIQQQQ", data, at + i * size) for i in range(count)]
        strings = headers[names][4]
        self.sections = {cstring(data[strings + header[0]:]): header for header in headers}

    def at(self, address, length):
        for _, kind, flags, start, offset, size in self.sections.values():
            if flags & 2 and kind != 8 and start <= address < start + size:  # loaded, and in the file
                return self.data[offset + address - start:][:length]
        raise AssertionError(f"{address:#x} is in no section")

    def notes(self):
        """(pc, base, semaphore, provider, name, places) of each note"""
        *_, offset, size = self.sections[".note.stapsdt"]
        end = offset + size
        while offset < end:
            owner, length, kind = struct.unpack_from("<3I", self.data, offset)
            assert (owner, kind) == (8, 3) and self.data[offset + 12:offset + 20] == b"stapsdt\0"
            body = self.data[offset + 20:offset + 20 + length]
            provider, name, places, rest = body[24:].split(b"\0")
            assert rest == b""
            yield *struct.unpack_from("<3Q", body), provider.decode(), name.decode(), places.decode()
            offset += 20 + (length + 3) // 4 * 4


class Notes(unittest.TestCase):
    library = archive = None

    def check_notes(self, path):
        elf = Elf(pathlib.Path(path).read_bytes())
        nop, place = NOPS[elf.machine]
        found, sites = {}, []
        for pc, base, semaphore, provider, name, places in elf.notes():
            self.assertEqual(provider, "ebbtide")
            self.assertEqual((base, semaphore), (elf.sections[".stapsdt.base"][3], 0), name)
            self.assertEqual(elf.at(pc, len(nop)), nop, name)
            for text in places.split():
                self.assertRegex(text, place)
            self.assertEqual(found.setdefault(name, len(places.split())), len(places.split()), name)
            sites.append(pc)
        self.assertEqual(found, documented())
        self.assertEqual(len(sites), len(set(sites)))

    def test_lines_of_the_page(self):
        named = re.findall(r"(?:ebbtide:|sdt_ebbtide:)(\w+)", (ROOT / "docs/tracing.md").read_text())
        self.assertGreater(len(named), 10)
        self.assertLessEqual(set(named), set(documented()))

    def test_shared(self):
        self.check_notes(self.library)

    def test_stripped(self):
        with tempfile.TemporaryDirectory() as folder:
            stripped = pathlib.Path(folder) / "library.so"
            subprocess.run(["strip", "--strip-unneeded", self.library, "-o", stripped], check=True)
            self.check_notes(stripped)

    def test_linked_in(self):
        """Each object has notes of its own, but a program one base, beside probes of its own by the same names."""
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder) / "program.c", pathlib.Path(folder) / "program"
            source.write_text('#include "base/probe.h"\nint main(void) { EBBI_PROBE2(refill, 1, 2); return 0; }\n')
            subprocess.run(["cc", "-O1", f"-I{ROOT}/src", source, "-Wl,--whole-archive", self.archive,
                            "-Wl,--no-whole-archive", "-lpthread", "-ldl", "-lstdc++", "-o", program], check=True)
            self.check_notes(program)


@unittest.skipIf(shutil.which("gdb") is None, "needs gdb")
class Told(unittest.TestCase):
    library = None

    def test_what_they_tell(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program"
            parent = pathlib.Path(self.library).parent
            subprocess.run(["cc", "-O1", "-g", "-fno-builtin", f"-I{ROOT}/include", HERE / "program.c", self.library,
                            f"-Wl,-rpath,{parent}", "-o", program], check=True)
            done = subprocess.run(["gdb", "-nx", "-batch", "-x", HERE / "listen.py", program], text=True,
                                  capture_output=True, check=False, timeout=300)
        lines = done.stdout.splitlines()
        told = [line.split(" ", 1)[1] for line in lines if line.startswith("told ")]
        expected = [line for line in lines if line.split(" ")[0] in documented()]
        self.assertEqual({line.split()[0] for line in expected}, set(documented()), done.stdout + done.stderr)
        for line in expected:
            pattern = re.sub(r" -(?= |$)", r" .+", re.escape(line).replace(r"\ ", " ").replace(r"\-", "-"))
            self.assertTrue(any(re.fullmatch(pattern, one, re.DOTALL) for one in told), (line, told, done.stderr))
        flushed = sum(int(one.split()[2]) for one in told if one.startswith("flush 48 "))
        refilled = sum(int(one.split()[2]) for one in told if one.startswith("refill 48 "))
        self.assertGreater(flushed, 2000)  # of 3,000 that were allocated and freed
        self.assertGreater(refilled, 3000)
        self.assertIn("message b'ebbtide: program[", "\n".join(told))
        self.assertIn("double free", told[-1])


if __name__ == "__main__":
    Notes.archive = sys.argv.pop()
    Notes.library = Told.library = sys.argv.pop()
    unittest.main()
