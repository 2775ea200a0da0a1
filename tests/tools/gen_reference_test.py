# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/gen_reference writes each function and field with its words, and finds a page that is stale."""
import unittest

from planted import SPDX, ToolTest

FIRST = "// About it.\n#ifndef A\n#define A\n\n"
FIELDS = "struct {} {{\n    int bytes; // in use,\n               // or not\n    size_t\n        blocks; // their number\n}};\n\n"
HEADERS = ("ebbtide.h", *(f"ebbtide/{name}.h" for name in ("reclaim", "region", "profile", "queue", "stack", "map", "deque")))
STRUCTS = {"ebbtide.h": ["ebb_stats", "ebb_snapshot", "ebb_class_stats", "ebb_thread_stats"], "ebbtide/reclaim.h": ["ebb_reclaim_stats"],
           "ebbtide/region.h": ["ebb_region_stats", "ebb_lifetime_stats"]}


class GenReference(ToolTest, unittest.TestCase):
    tool = "gen_reference"

    def setUp(self):
        super().setUp()
        for header in HEADERS:
            structs = "".join(FIELDS.format(name) for name in STRUCTS.get(header, []))
            self.plant(f"include/{header}", SPDX + FIRST + structs + "// What it does,\n// for <all>.\n"
                       "EBB_EXPORT void *ebb_one(size_t bytes,\n                         int more) EBB_NOEXCEPT;\n\n#endif\n")
        for face in ("", "/object", "/rcu", "/hazard_pointer", "/tagged_ptr", "/region", "/profile", "/snapshot", "/lockfree"):
            self.plant(f"include/ebbtide{face}.hpp", "class face;\n")
        (self.root / "docs").mkdir()

    def test_functions_and_fields(self):
        self.assert_passes("--root", self.root)
        page = (self.root / "docs/reference/c-queue.md").read_text()
        self.assertIn("### `ebb_one`\n\n```c\nvoid *ebb_one(size_t bytes,\n                         int more);\n```\n\n"
                      "What it does,\nfor \\<all\\>.\n", page)
        table = (self.root / "docs/statistics.md").read_text()
        self.assertIn("| `bytes` | in use, or not |\n| `blocks` | their number |\n", table)
        self.assertIn("class face;", (self.root / "docs/reference/cpp.md").read_text())

    def test_a_stale_page_is_found(self):
        self.assert_passes("--root", self.root)
        self.assert_passes("--root", self.root, "--check")
        self.plant("include/ebbtide/map.h", SPDX + FIRST + "// Other words.\nEBB_EXPORT int ebb_two(void);\n")
        self.assert_fails("docs/reference/c-map.md is not what the headers say", "--root", self.root, "--check")


if __name__ == "__main__":
    unittest.main()
