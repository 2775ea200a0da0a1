# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/lint_locks lists every lock by its rank, and finds one that has none."""
import unittest

from planted import SPDX, ToolTest

RANKS = SPDX + "// Ranks, in the order in which they are taken: first,\n// second. More words.\n"


class LintLocks(ToolTest, unittest.TestCase):
    tool = "lint_locks"

    def setUp(self):
        super().setUp()
        self.plant("src/os/lock.h", RANKS)
        self.plant("docs/empty.md", "")

    def test_listed_in_order(self):
        self.plant("src/a/a.c", SPDX + "static struct ebbi_lock one; // rank: second; of all\n"
                   "extern struct ebbi_lock elsewhere;\nstatic struct ebbi_lock *pointer;\n")
        self.plant("src/b/b.h", SPDX + "struct b {\n"
                   "    struct ebbi_lock lock __attribute__((aligned(LINE))); // rank: first\n};\n")
        self.assert_fails("stale", "--root", self.root)
        self.assert_passes("--root", self.root, "--write")
        self.assert_passes("--root", self.root)
        rows = (self.root / "docs/locks.md").read_text().splitlines()[-2:]
        self.assertEqual(["| first | `lock`, `src/b/b.h` |  |", "| second | `one`, `src/a/a.c` | of all |"], rows)

    def test_each_form_of_a_declaration(self):
        self.plant("src/a/a.c", SPDX + "struct ebbi_lock one = EBBI_LOCK(SECOND); // of all\n"
                   "struct a {\n    struct ebbi_lock lock\n        __attribute__((aligned(LINE))); // rank: first; of two lines\n};\n"
                   "static inline void f(struct ebbi_lock lock) { (void)lock; }\n")
        self.assert_passes("--root", self.root, "--write")
        rows = (self.root / "docs/locks.md").read_text().splitlines()[-2:]
        self.assertEqual(["| first | `lock`, `src/a/a.c` | of two lines |", "| second | `one`, `src/a/a.c` | of all |"], rows)
        self.plant("src/a/a.c", SPDX + "struct ebbi_lock one = EBBI_LOCK(THIRD);\n")
        self.assert_fails("one has no rank", "--root", self.root, "--write")

    def test_no_rank(self):
        self.plant("src/a/a.c", SPDX + "static struct ebbi_lock one; // of all\n")
        self.assert_fails("src/a/a.c:2: one has no rank", "--root", self.root, "--write")

    def test_an_unknown_rank(self):
        self.plant("src/a/a.c", SPDX + "static struct ebbi_lock one; // rank: third\n")
        self.assert_fails("one has no rank", "--root", self.root, "--write")


if __name__ == "__main__":
    unittest.main()
