# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/gen_symbols: the map's lines and the headers' functions become the list; a stale one is told."""
import unittest

from planted import SPDX, ToolTest

MAP = """{
  global:
    malloc; free; /* blocks */
    _Zdl*; /* delete */
    ebb_self; /* inline */
    ebb_*; /* the rest */
};
"""


class GenSymbols(ToolTest, unittest.TestCase):
    tool = "gen_symbols"

    def setUp(self):
        super().setUp()
        self.plant("packaging/ebbtide.map", MAP)
        self.plant("include/ebbtide/a.h", SPDX + "EBB_EXPORT void *ebb_a(int n,\n    int m) EBB_NOEXCEPT;\n"
                                                 "static inline void ebb_inline(void) {}\n")
        self.plant("include/ebbtide/compat/other/b.h", SPDX + "EBB_EXPORT int\nother_b(void (*call)(int)) EBB_NOEXCEPT;\n")
        (self.root / "docs").mkdir()

    def test_names_and_reasons(self):
        self.assert_passes("--root", self.root)
        text = (self.root / "docs/symbols.md").read_text()
        for row in ("| `malloc`, `free` | blocks |", "| `ebb_self` | inline |", "| `ebb_a` | `ebbtide/a.h` |"):
            self.assertIn(row, text)
        self.assertEqual(6, text.count("`_Zdl"))
        self.assertNotIn("ebb_inline", text)
        self.assertNotIn("the rest", text)
        self.assertIn("| `other_b` | `ebbtide/compat/other/b.h` |", text.partition("## libebbtide_compat.so")[2])

    def test_a_stale_list_is_told(self):
        self.assert_passes("--root", self.root)
        self.assert_passes("--check", "--root", self.root)
        self.plant("include/ebbtide/b.h", SPDX + "EBB_EXPORT void ebb_b(void);\n")
        self.assert_fails("docs/symbols.md is out of date", "--check", "--root", self.root)


if __name__ == "__main__":
    unittest.main()
