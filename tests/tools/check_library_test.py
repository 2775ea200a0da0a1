# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/check_library finds what a preload must not be."""
import subprocess
import unittest

from planted import SPDX, ToolTest


class CheckLibrary(ToolTest, unittest.TestCase):
    tool = "check_library"

    def library(self, text, *options):
        source = self.plant("library.c", SPDX + text)
        library = self.root / "library.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-fno-builtin", source, "-o", library, *options],
                       check=True)
        return library

    def test_each_fault(self):
        library = self.library("__thread char large[64]; char *f(void) { return large; }\n"
                               "void *malloc(unsigned long n) { (void)n; return 0; }\n",
                               "-Wl,--no-as-needed", "-lm", "-Wl,-z,execstack")
        for expected in ("needs libm.so.6", "SONAME is absent", "64 bytes of static TLS",
                         "executable stack", "does not export calloc", "does not export _Znwm",
                         "exports f, which is not in symbols.md"):
            self.assert_fails(expected, library)

    def test_whole_surface_passes(self):
        names = self.run_tool(self.library("")).stderr
        missing = [line.split()[-1] for line in names.splitlines() if "does not export" in line]
        self.assertLess({"malloc", "_ZdlPv", "ebb_malloc", "ebb_thread_idle"}, set(missing))
        text = "".join(f"void *{name}(void);\nvoid *{name}(void) {{ return 0; }}\n" for name in missing)
        self.assert_passes(self.library(text, "-Wl,-soname,libebbtide.so.0"))

    def test_the_library_of_other_names(self):
        library = self.library("int mallctl(void) { return 0; }\nint malloc(void) { return 0; }\n",
                               "-Wl,-soname,libebbtide_compat.so.0")
        said = self.run_tool(library).stderr
        self.assertIn("does not export je_mallctl\n", said)
        self.assertIn("exports malloc, which is not in", said)
        self.assertNotIn("export mallctl\n", said)
        self.assertNotIn("export ebb_malloc", said)
        self.assertNotIn("SONAME", said)

    def test_newer_glibc(self):
        library = self.library("extern int memfd_create(const char *, unsigned);\n"
                               "int f(void) { return memfd_create(\"\", 0); }\n")  # of 2.27
        self.assert_fails("needs glibc 2.27, at most 2.26", "--glibc", "2.26", library)
        self.assertNotIn("needs glibc", self.run_tool("--glibc", "2.27", library).stderr)
        self.assert_fails("needs memfd_create of glibc, which is not in glibc-2.28.list", library)

    def test_not_a_library(self):
        self.assert_fails("check_library:", self.plant("text.so", "no ELF\n"))


if __name__ == "__main__":
    unittest.main()
