# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/gen_man: comments become text, declarations stand above them, internals stay out."""
import unittest

from planted import TOOLS, ToolTest

HEADER = """// SPDX-License-Identifier: MIT OR Apache-2.0
// A thing:
//
//     ebb_one(1); // as it stands
#ifndef A_H
#define A_H
// ---- calls ---------------
// What one does - and returns.
EBB_EXPORT int ebb_one(int a,
                       void (*f)(int)) EBB_NOEXCEPT;
// Not the caller's.
EBB_EXPORT int ebb_two_slow(void) EBB_NOEXCEPT;
struct inner { EBBI_ATOMIC(int) a; };
struct options {
    int field; // of the caller
};
#endif
"""


class GenMan(ToolTest, unittest.TestCase):
    tool = "gen_man"

    def setUp(self):
        super().setUp()
        for header in (TOOLS.parent / "include").rglob("*.h"):
            self.plant(header.relative_to(TOOLS.parent), HEADER)
        self.plant("CMakeLists.txt", "project(Ebbtide VERSION 9.9.9)")
        self.plant("docs/man/old.3", "")

    def test_a_page(self):
        self.assert_fails("ebbtide-reclaim.3", "--root", self.root, "--check")
        self.assert_passes("--root", self.root)
        self.assert_passes("--root", self.root, "--check")
        page = (self.root / "docs/man/ebbtide-reclaim.3").read_text()
        for expected in ("int ebb_one(int a, void (*f)(int));\n", "What one does \\- and returns.", ".SS Calls",
                         "\nebb_one(1); // as it stands\n", "    int field; // of the caller", ".\\\" alias: ebb_one\n",
                         "Ebbtide 9.9.9"):
            self.assertIn(expected, page)
        for internal in ("two_slow", "Not the caller", "struct inner"):
            self.assertNotIn(internal, page)


if __name__ == "__main__":
    unittest.main()
