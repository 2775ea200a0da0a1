# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/lint_words finds private words in what a user reads, and leaves code and the sources alone."""
import unittest

from planted import SPDX, ToolTest


class LintWords(ToolTest, unittest.TestCase):
    tool = "lint_words"

    def setUp(self):
        super().setUp()
        self.plant("tools/private_words.txt", "# how\ntrays?\tcache\n(?:goes|went) home\treturn\n")
        self.plant("docs/glossary.md", "| word | meaning |\n|---|---|\n| **slab** | memory |\n")

    def found(self, name, text, where):
        path = self.plant(name, text)
        self.assert_fails(f"{name}:{where}", "--root", self.root)
        path.unlink()
        self.assert_passes("--root", self.root)

    def test_what_a_user_reads(self):
        for name in ("README.md", "docs/guide.md", "docs/reference/c.md"):
            self.found(name, "# Head\nMemory goes home.\n", "2: 'goes home' is a private word; write: return")
        self.found("docs/man/ebbtide.3", ".Sh NAME\nthe Tray\n", "2: 'Tray'")
        for name in ("include/ebbtide.h", "include/ebbtide/a.hpp"):
            self.found(name, SPDX + "int f(void); // in trays\n", "2: 'trays'")

    def test_messages_of_the_sources(self):
        self.found("src/heap/a.c", '// a\nint f(void) { return say("in the tray %p"); }\n', "2: 'tray'")
        self.plant("src/heap/a.c", '// "a tray"\nEBBI_ASSERT(x); _Static_assert(y,\n    "room for a tray");\nchar c[] = "tray";\n')
        self.plant("src/heap/a_audit.c", 'say("in the tray %p");\n')
        self.assert_passes("--root", self.root)

    def test_what_is_none_of_it(self):
        self.plant("README.md", "`tray` and [a](tray.md), --tray, a-tray, tray_of()\n\n    tray\n```c\nint tray;\n```\n")
        self.plant("include/ebbtide.h", SPDX + "int tray;\n//     tray = f();\n")
        self.plant("include/ebbtide/detail/a.h", "// tray\n")
        self.plant("src/a.c", "// tray\n")
        self.plant("ARCHITECTURE.md", "tray\n")
        self.plant("docs/no-go.md", "tray\n")
        self.plant("docs/adr/0001-a.md", "tray\n")
        self.assert_passes("--root", self.root)

    def test_the_help_of_the_command_is_words(self):
        self.found("docs/reference/cli.md", "```text\n  --tray N  The tray of N.\n```\n", "2: 'tray'")

    def test_the_glossary_stays_short(self):
        rows = "".join(f"| **word{number}** | meaning |\n" for number in range(20))
        self.plant("docs/glossary.md", rows)
        self.assert_passes("--root", self.root)
        self.plant("docs/glossary.md", rows + "| **one** | more |\n")
        self.assert_fails("21 words of ours", "--root", self.root)

    def test_a_missing_list_is_no_pass(self):
        (self.root / "tools/private_words.txt").unlink()
        self.assertNotEqual(0, self.run_tool("--root", self.root).returncode)


if __name__ == "__main__":
    unittest.main()
