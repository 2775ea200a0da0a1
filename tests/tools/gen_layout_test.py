# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/gen_layout reads structs as the compiler sees them, and tells of each change."""
import unittest

from planted import SPDX, ToolTest

HEADER = SPDX + """#include <stdint.h>
struct ebb_one {
    char first; // not; a field
    uint64_t table[4];
    void (*call)(int, void *);
    union {
        int a;
        long b;
    } both;
    unsigned last __attribute__((aligned(64)));
};
"""


class GenLayout(ToolTest, unittest.TestCase):
    tool = "gen_layout"

    def test_fields_of_every_kind(self):
        self.plant("include/one.h", HEADER)
        (self.root / "docs").mkdir()
        self.assert_passes("--root", self.root)
        text = (self.root / "docs/layout.md").read_text()
        self.assertIn("| `ebb_one` | 128 | `first` 0 `table` 8 `call` 40 `both` 48 `last` 64 |", text)
        self.assert_passes("--check", "--root", self.root)

    def test_a_change_fails(self):
        self.test_fields_of_every_kind()
        self.plant("include/one.h", HEADER.replace("table[4]", "table[5]"))
        self.assert_fails("breaks programs", "--check", "--root", self.root)


if __name__ == "__main__":
    unittest.main()
