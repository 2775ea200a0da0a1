# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/golden finds the fast path, and fails when it grows, changes or calls."""
import importlib.machinery
import importlib.util
import subprocess
import sys
import unittest

from planted import SPDX, TOOLS, ToolTest

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("golden", str(TOOLS / "golden"))
golden = importlib.util.module_from_spec(importlib.util.spec_from_loader("golden", LOADER))
LOADER.exec_module(golden)

SMALL = "void *malloc(unsigned long n) { return slots[n & 7]; }\n"
LARGER = "void *malloc(unsigned long n) { used++; return slots[n & 7]; }\n"
FREE = "void free(void *p) { slots[0] = p; }\n"
REST = "".join(f"void {name}(void) {{}}\n" for name in (
    "ebb_retire", "ebb_pin", "ebb_unpin", "ebb_region_alloc"))
PRELUDE = SPDX + "void *slots[8]; volatile unsigned long used; void *slow(unsigned long n);\n"


def listing(*lines):
    return "\n".join(f"  {address:x}:\t{text}" for address, text in lines) + "\n"


class FastPath(unittest.TestCase):
    def path(self, *lines):
        return golden.fast_path(golden.parse(listing(*lines)))

    def test_straight_line(self):
        self.assertEqual(self.path((0, "test   %rax,%rax"), (3, "je     9 <slow>"), (5, "nopl 0x0(%rax)"),
                                   (8, "ret"), (9, "call   100 <f>"), (14, "ret")),
                         ["test %rax,%rax", "je 9", "ret"])

    def test_hot_path_behind_a_taken_branch(self):
        self.assertEqual(self.path((0, "test   %rax,%rax"), (3, "jne    10 <malloc+0x10>"),
                                   (5, "jmp    200 <slow>"), (16, "mov    (%rax),%rax"), (19, "ret")),
                         ["test %rax,%rax", "jne 10", "mov (%rax),%rax", "ret"])

    def test_jump_inside_the_function_is_followed(self):
        self.assertEqual(len(self.path((0, "jmp    8 <free+0x8>"), (2, "ud2"), (8, "ret"))), 2)

    def test_no_path_without_a_call(self):
        with self.assertRaises(golden.Failure):
            self.path((0, "call   100 <f>"), (5, "ret"))

    def test_tail_call_is_no_return(self):
        with self.assertRaises(golden.Failure):
            self.path((0, "jmp    100 <f>"))

    def test_normalise(self):
        for text, expected in (("mov %fs:0x28,%rax", "mov %fs:N,%rax"),
                               ("mov 0x1234(%rip),%rax", "mov N(%rip),%rax"),
                               ("mov -0x8(%rax,%rcx,8),%rax", "mov N(%rax,%rcx,8),%rax"),
                               ("ja 11b0", "ja TARGET"),
                               ("cmp $0x400,%rdi", "cmp $0x400,%rdi"),
                               ("shr $0x10,%rax", "shr $0x10,%rax")):
            self.assertEqual(golden.normalise(text), expected)


class Golden(ToolTest, unittest.TestCase):
    tool = "golden"

    def library(self, *functions):
        source = self.plant("library.c", PRELUDE + REST + "".join(functions))
        library = self.root / "library.so"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-fno-builtin", "-Wl,-Bsymbolic", source, "-o", library],
                       check=True)
        return ["--folder", self.root, f"gcc={library}"]

    def test_unchanged(self):
        arguments = self.library(SMALL, FREE)
        self.assert_fails("gcc-malloc.txt is missing", *arguments)
        self.assert_passes("--update", *arguments)
        self.assertIn("malloc", self.assert_passes(*arguments))

    def test_changed(self):
        self.assert_passes("--update", *self.library(SMALL, FREE))
        self.assert_fails("gcc malloc: ", *self.library(LARGER, FREE))
        self.assert_fails("differs", *self.library(LARGER, FREE))

    def test_over_budget_even_when_updated(self):
        grown = SMALL.replace("return", "used++; " * 20 + "return")
        self.assert_fails("over its budget of 18", "--update", *self.library(grown, FREE))

    def test_call_on_the_path(self):
        calling = "void *malloc(unsigned long n) { slots[0] = slow(n); return slots[1]; }\n"
        self.assert_fails("no path returns without a call", *self.library(calling, FREE))

    def test_another_compiler_version_is_judged_by_budget(self):
        arguments = self.library(SMALL, FREE)
        self.assert_passes("--update", *arguments)
        for name in golden.BUDGETS:
            self.plant(f"gcc-{name}.txt", "# gcc 4\nret\n")
        self.assertIn("budget only", self.assert_passes(*arguments))

    def test_missing_library_and_function(self):
        self.assert_fails("not built", "gcc=/nonexistent.so")
        self.assert_fails("no function malloc", *self.library(FREE))


if __name__ == "__main__":
    unittest.main()
