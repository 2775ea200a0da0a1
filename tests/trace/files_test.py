# SPDX-License-Identifier: MIT OR Apache-2.0
"""Hostile files: cut off, changed, foreign. Each verb ends with status 0, 1 or 2, a line where it is not 0, and
within the memory and the time that support.tool allows; a signal has a negative status."""
import os
import random
import struct

from support import PROGRAMS, REPLAY, TRACE, TraceTest, main, tool

SEED = 7
FLIPS = 150
START_BYTES, BLOCK_BYTES, STORED_AT = 16, 32, 20  # of struct trace_start and trace_block


class Files(TraceTest):
    def setUp(self):
        super().setUp()
        self.assertEqual(self.record(PROGRAMS / "trace_bad_day", "libraries", 1).returncode, 0)
        path = self.recordings()[-1]
        self.spool = (path.parent / f"{path.name}.spool").read_bytes()
        self.unfinished = path.read_bytes()
        self.finish(path)
        self.whole = path.read_bytes()
        self.program = self.compile(path).read_bytes()
        self.bad = self.root / "bad"

    def tell(self, *command, statuses=(0, 1, 2), what=None):
        result = tool(*command)
        self.assertIn(result.returncode, statuses, (what, command, result.stderr))
        if result.returncode != 0 and result.stdout == b"":
            self.assertEqual(result.stderr.count(b"\n"), 1, result.stderr)
            self.assertTrue(result.stderr.startswith(b"ebb-"))
        return result.returncode

    def verbs(self, statuses=(0, 1), what=None, all_verbs=True):
        new = self.root / "new"
        self.tell(TRACE, "info", self.bad, statuses=statuses, what=what)
        self.tell(TRACE, "compile", self.bad, new, statuses=statuses, what=what)
        if all_verbs:
            self.tell(TRACE, "cut", self.bad, new, 10, 100, statuses=statuses, what=what)
            self.tell(TRACE, "anonymise", self.bad, new, statuses=statuses, what=what)
            self.tell(TRACE, "scale", self.bad, new, 2, statuses=statuses, what=what)

    def sample(self, length, count):
        """All of the first bytes, and some of the others."""
        dice = random.Random(SEED)
        return [*range(min(length, 80)), *sorted(dice.sample(range(length), min(count, length)))]

    def ends_of_blocks(self):
        """There a recording that was not finished could end as well."""
        at = START_BYTES + struct.unpack_from("<I", self.whole, START_BYTES - 4)[0]
        while at < len(self.whole):
            yield at
            at += BLOCK_BYTES + struct.unpack_from("<I", self.whole, at + STORED_AT)[0]

    def test_cut_off(self):
        unfinished = set(self.ends_of_blocks())
        self.assertIn(len(self.unfinished), unfinished)
        for length in [*self.sample(len(self.whole), 100), *unfinished]:
            self.bad.write_bytes(self.whole[:length])
            statuses = (0, 1) if length in unfinished else (1,)
            self.verbs(statuses, what=length, all_verbs=length % 16 == 0)

    def test_changed(self):
        dice = random.Random(SEED)
        for at in self.sample(len(self.whole), FLIPS):
            changed = bytearray(self.whole)
            changed[at] ^= 1 << dice.randrange(8)
            self.bad.write_bytes(changed)
            self.verbs(what=at, all_verbs=at % 16 == 0)

    def test_flip_is_found(self):
        """The block's check: any one bit of its payload or of its head."""
        first = self.whole.index(b"EBK1") + 32
        for at in (*range(first - 32, first), first, first + 100, first + 2000):
            changed = bytearray(self.whole)
            changed[at] ^= 4
            self.bad.write_bytes(changed)
            self.verbs((1,), what=at)

    @staticmethod
    def check(data):
        total = (0xCBF29CE484222325 ^ len(data)) & (2**64 - 1)
        whole = len(data) // 8 * 8
        for i in range(0, whole, 8):
            total = (total ^ int.from_bytes(data[i:i + 8], "little")) * 0x100000001B3 % 2**64
            total ^= total >> 29
        for byte in data[whole:]:
            total = (total ^ byte) * 0x100000001B3 % 2**64
        return (total ^ (total >> 32)) & 0xFFFFFFFF

    def block(self, events, thread=0, offset=0):
        """A block that is not compressed, its check as the reader wants it."""
        head = [0x314B4245, thread, offset, len(events), len(events), 0, 0]
        pack = struct.Struct("<IIQIIII").pack
        head[5] = self.check(events) ^ self.check(pack(*head)) * 31 % 2**32
        return pack(*head) + events

    def write(self, *blocks, text=b"first_thread=0\n"):
        self.bad.write_bytes(struct.pack("<8sII", b"EBBTRACE", 1, len(text)) + text + b"".join(blocks))

    def test_hostile_events(self):
        """Events that no recorder writes, behind a mark, with a check that holds."""
        mark, huge = bytes([6 << 5, 0, 0, 0]), b"\xff" * 9 + b"\x01"
        for events in (b"", b"\x00", mark, mark + b"\x40", mark + b"\x5f" + huge, mark + b"\x4f",
                       mark + b"\x1f" + huge, mark + b"\x1f" + huge + b"\x1f" + huge,
                       mark + b"\xbf" + huge, mark + b"\x1f" + b"\xff" * 20, mark + b"\x9f" + huge + b"\x00",
                       mark + b"\x80\x00", mark + b"\xe0" + huge + b"\x00\x05", mark + b"\xff",
                       mark + b"\xe1\x00\x00\x05", mark + b"\xe3\x00\x00" + huge, mark + b"\xe4" + huge,
                       mark + b"\x60\x00", mark + b"\x00\x60\x00", mark + mark, bytes([6 << 5]) + huge * 3,
                       mark + b"\x00" * 60000, mark + b"\x1f\xff\xff\xff\xff\xff\xff\x1f" * 2,
                       mark + b"\x00\x00\x40\x40\x40"):
            with self.subTest(events[:40]):
                self.write(self.block(events))
                self.verbs(what=events[:40])
                self.write(self.block(events), self.block(events, thread=2**32 - 2))
                self.verbs(what=events[:40])

    def test_many_objects_of_one_place(self):
        """Numbers chosen to fall into one place of the table of objects."""
        def number(value):
            out = b""
            while value >= 0x80:
                out += bytes([value & 0x7F | 0x80])
                value >>= 7
            return out + bytes([value])
        events, blocks, offset = bytes([6 << 5, 0, 0, 0]), [], 0
        for thread in range(1, 40000):
            events += b"\xe3" + number(thread) + number((thread << 40) ^ 99) + b"\x05"
            if len(events) > 60000:
                blocks.append(self.block(events, offset=offset))
                offset, events = offset + len(events), b""
        self.write(*blocks, self.block(events, offset=offset))
        self.verbs()

    def test_text(self):
        event = self.block(bytes([6 << 5, 0, 0, 0]))
        for text in (b"", b"first_thread=99999999999999999999\n", b"first_thread=-1\n", b"first_thread=",
                     b"page_bytes=0\n", b"page_bytes=99999999\n", b"\n" * 60000, b"=" * 65536, b"\xff\0" * 99,
                     b"program=" + b'"\\\n', b"x" * 65537):
            self.write(event, text=text)
            self.verbs(what=text[:30])
        self.write(event, text=b"first_thread=9999999999\n")
        self.verbs((1,), what="a number of more than 32 bits")

    def test_other_things(self):
        for data in (b"", b"EBBTRACE", self.whole[:8] + b"\x02" + self.whole[9:], b"\x7fELF" * 500,
                     self.program, os.urandom(5000), b"EBBTRACE" + b"\xff" * 8, self.spool):
            self.bad.write_bytes(data)
            self.verbs((1,), what=data[:20])
            self.tell(TRACE, "finish", self.bad, statuses=(1,))
            if data != self.program:
                self.tell(REPLAY, self.bad, statuses=(2,))
        for path in (self.root, "/dev/null", "/dev/zero", "/proc/self/mem", self.root / "nothing"):
            for verb in ("info", "finish"):
                self.tell(TRACE, verb, path, statuses=(1,))
            self.tell(REPLAY, path, statuses=(2,))
        os.mkfifo(self.root / "fifo")
        for command in ((TRACE, "info"), (TRACE, "finish"), (REPLAY,)):
            self.tell(*command, self.root / "fifo", statuses=(1, 2))

    def test_spool(self):
        """finish with a spool that is cut off, changed, or another thing: the recording is whole or refused."""
        dice, slot = random.Random(SEED), 65536 + 4096
        spools = [self.spool[:length] for length in (0, 1, 12, 4096, slot, slot + 10, 2 * slot - 1)]
        spools += [b"\xff" * len(self.spool), self.spool[slot:], b"\0" * len(self.spool), self.whole]
        for at in [*range(12), *range(slot, slot + 40), *(dice.randrange(slot, 2 * slot) for _ in range(60))]:
            changed = bytearray(self.spool)
            changed[at] ^= 1 << dice.randrange(8)
            spools.append(bytes(changed))
        spool = self.root / "bad.spool"
        for data in spools:
            self.bad.write_bytes(self.unfinished)
            spool.write_bytes(data)
            if self.tell(TRACE, "finish", self.bad, statuses=(0, 1)) == 0:
                self.tell(TRACE, "info", self.bad, statuses=(0, 1))
                self.assertFalse(spool.exists())
            else:
                self.assertEqual(self.bad.read_bytes(), self.unfinished)
        self.bad.write_bytes(self.unfinished)
        os.mkfifo(spool)
        self.tell(TRACE, "finish", self.bad, statuses=(0, 1))
        spool.unlink(missing_ok=True)
        spool.mkdir()
        self.bad.write_bytes(self.unfinished)
        self.tell(TRACE, "finish", self.bad, statuses=(0, 1))

    def test_program(self):
        """A compiled recording that was cut off or changed is told before it runs."""
        dice = random.Random(SEED)
        for length in self.sample(len(self.program) - 1, 60):
            self.bad.write_bytes(self.program[:length])
            self.tell(REPLAY, self.bad, statuses=(2,), what=length)
        for at in self.sample(len(self.program), FLIPS):
            changed = bytearray(self.program)
            changed[at] ^= 1 << dice.randrange(8)
            self.bad.write_bytes(changed)
            self.tell(REPLAY, self.bad, statuses=(2,), what=at)
        self.bad.write_bytes(self.program)
        self.assertEqual(tool(REPLAY, self.bad).returncode, 0)


if __name__ == "__main__":
    main()
