# SPDX-License-Identifier: MIT OR Apache-2.0
"""A class more in tools/gen_classes: the library has it, or does not compile; no block is too small."""
import os
import shutil
import subprocess
import unittest

from planted import SPDX, TOOLS, ToolTest

EACH_SIZE = SPDX + """
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    for (size_t bytes = 1; bytes <= 140000; bytes++) {
        void *volatile block = malloc(bytes);
        size_t has = malloc_usable_size(block);
        if (has < bytes) {
            printf("malloc(%zu) gave %zu bytes\\n", bytes, has);
            return 1;
        }
        free(block);
    }
    puts("all fit");
    return 0;
}
"""


class GenClasses(ToolTest, unittest.TestCase):
    tool = "gen_classes"

    def setUp(self):
        super().setUp()
        for folder in ("src", "include"):
            shutil.copytree(TOOLS.parent / folder, self.root / folder)
        (self.root / "docs").mkdir()

    def with_one_more(self, size):
        """The library's one file compiled with a class of this size beside the others."""
        text = (TOOLS / self.tool).read_text()
        changed = text.replace("    return out\n", f"    return sorted([*out, {size}])\n", 1)
        self.assertNotEqual(text, changed)
        generator = self.plant("tools/gen_classes", changed)
        subprocess.run(["python3", generator], check=True)
        self.assertIn(f" {size}, ", (self.root / "src/slab/class_table.h").read_text())
        return subprocess.run(
            ["gcc", "-std=gnu17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-builtin",
             "-ftls-model=initial-exec", f"-I{self.root}/src", f"-I{self.root}/include",
             self.root / "src/one.c", "-o", self.root / "one.so"],
            capture_output=True, text=True, check=False)

    def fits(self):
        program = self.root / "each_size"
        subprocess.run(["gcc", self.plant("each_size.c", EACH_SIZE), "-o", program], check=True)
        return subprocess.run([program], env={**os.environ, "LD_PRELOAD": str(self.root / "one.so")},
                              capture_output=True, text=True, check=True).stdout

    def test_small_one_is_looked_up(self):
        built = self.with_one_more(272)
        self.assertEqual(built.returncode, 0, built.stderr)
        self.assertEqual(self.fits(), "all fit\n")

    def test_large_one_does_not_compile(self):
        built = self.with_one_more(34000)
        self.assertNotEqual(built.returncode, 0, "its size is a formula, which does not know it")
        self.assertIn("static assertion failed", built.stderr)


if __name__ == "__main__":
    unittest.main()
