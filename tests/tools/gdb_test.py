# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/gdb/ebbtide.py: what it says of a running program, and of its core, is so."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
#include <ebbtide.h>
#include <ebbtide/region.h>
#include <pthread.h>
void *used, *freed, *foreign, *large, *in_region, *gone_in_region, *tiny;
struct ebb_region *region;
int local;
__attribute__((noinline)) void look(void) { __asm__ volatile(""); }
static void *other(void *unused) { ebb_free(foreign); (void)ebb_malloc(1); return unused; }
int main(void)
{
    used = ebb_malloc(48), freed = ebb_malloc(48), foreign = ebb_malloc(48);
    for (int i = 0; i < 3000; i++)
        tiny = ebb_malloc(16);
    ebb_free(freed);
    pthread_t thread;
    pthread_create(&thread, NULL, other, NULL);
    pthread_join(thread, NULL);
    large = ebb_malloc(500000);
    region = ebb_region_open(NULL);
    in_region = ebb_region_alloc(region, 100), gone_in_region = ebb_region_alloc(region, 100);
    ebb_free(gone_in_region);
    (void)ebb_region_alloc(region, 100);
    look();
    return 0;
}
"""
COMMANDS = ("block used", "block (char *)used + 5", "block freed", "block foreign", "slab foreign", "block large",
            "block (char *)large + 400000", "block (char *)in_region + 20", "block gone_in_region", "sheet in_region", "block tiny", "slab ((unsigned long)used & ~0x3fffffffUL) + (((unsigned long)used & 0x3fffffff) >> 16) * 256", "heap", "owners")
REFUSED = ("slab 0", "sheet 0", "slab large", "block &local", "block 12345", "slab", "heap used", "block nowhere")


@unittest.skipIf(shutil.which("gdb") is None, "needs gdb")
class Gdb(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / "program.c").write_text(PROGRAM)
        subprocess.run(["gcc", "-g", "-O1", "-std=gnu17", "-DEBB_NO_OVERRIDE=1", f"-I{ROOT}/include",
                        f"-I{ROOT}/src", ROOT / "src/one.c", cls.folder / "program.c", "-o",
                        cls.folder / "program", "-lpthread"], check=True)

    def gdb(self, *commands):
        arguments = [argument for command in commands for argument in ("-ex", command)]
        done = subprocess.run(["gdb", "-nx", "-batch", *arguments, self.folder / "program"], text=True,
                              capture_output=True, check=False, timeout=120)
        return done.stdout + done.stderr

    def check(self, text):
        for expected in (
            r"of 48 bytes .*\n.*free at the owner .* 1 freed by others",
            r"is byte 0 of block \d+: in use",
            r"is byte 5 of block \d+: in use",
            r"block \d+: free, in a magazine of heap 0x\w+",
            r"block \d+: freed by another thread",
            r"large object: \d{6} bytes at 0x\w+; 0x\w+ is byte 0: in use",
            r"large object: \d{6} bytes at 0x\w+; 0x\w+ is byte 400000: in use",
            r"in a span of kind sheet\nsheet 0x\w+: \d+ bytes at 0x\w+, of region 0x\w+",
            r"is byte 20 of the block at 0x\w+: in use",
            r"is byte 0 of the block at 0x\w+: freed",
            r"of 16 bytes",
            r"heap 0x\w+: lane \d+",
            r"48 bytes: +\d+ of \d+ blocks, newest 0x\w+",
            r"depot 0: \d+ slabs, \d+ bytes held, \d+ dirty; lock free",
            r"a thread's: \d+ slabs",
            r"abandoned: \d+ slabs",
            *("refused: 0x0 lies outside of the window", "refused: .* lies in a span of kind large",
              "refused: .* lies outside of the window", "refused: ebb slab P", "refused: there is no heap at",
              "refused: ebb block: No symbol"),
        ):
            with self.subTest(expected):
                self.assertIsNotNone(re.search(expected, text), text)
        self.assertNotIn("Python Exception", text)
        self.assertEqual(2, len(re.findall(r"byte 0 of block \d+: freed by another", text)), text)

    def test_process_and_core(self):
        source = f"source {ROOT}/tools/gdb/ebbtide.py"
        looks = [f"ebb {command}" for command in COMMANDS]
        looks += [f"python\ntry: gdb.execute('ebb {command}')\nexcept gdb.error as e: print('refused:', e)"
                  for command in REFUSED]  # else the first one would end the batch
        core = self.folder / "core"
        self.check(self.gdb(source, "break look", "run", "up", f"generate-core-file {core}", *looks, "kill"))
        self.check(self.gdb(source, f"core-file {core}", "up", *looks))


if __name__ == "__main__":
    unittest.main()
