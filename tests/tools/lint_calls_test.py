# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/lint_calls finds each fault that is planted in the objects of a sound tree, and no other."""
import subprocess
import unittest

from planted import ToolTest


class LintCalls(ToolTest, unittest.TestCase):
    tool = "lint_calls"

    def setUp(self):
        super().setUp()
        self.plant("src/layers.txt", "os\nheap reclaim\napi\n")
        self.plant("include/ebbtide.h", "extern int ebb_self;\nvoid ebb_malloc(void);\n")
        self.plant("src/os/os.h", "void ebbi_os_map(void);\n")
        self.plant("src/heap/heap.h", "void ebbi_take(void);\n")
        (self.root / "tests").mkdir()
        self.objects = {}
        self.source("os/linux.c", "extern int ebb_self; void ebbi_os_map(void) { ebb_self = 1; }")
        self.source("heap/heap.c", "void ebbi_os_map(void); void ebbi_take(void) { ebbi_os_map(); }")
        self.source("api/api.c", "int ebb_self; void ebbi_take(void); void ebb_malloc(void) { ebbi_take(); }")

    def source(self, name, text):
        path = self.plant(f"src/{name}", text + "\n")
        out = self.root / f"core.dir/src/{name}.o"
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-c", path, "-o", out], check=True)
        self.objects[name] = out

    def arguments(self):
        return ["--root", self.root, *self.objects.values()]

    def test_sound_tree(self):
        self.assert_passes(*self.arguments())

    def test_upward_call(self):
        self.source("os/lock.c", "void ebbi_take(void); void ebbi_os_map2(void) { ebbi_take(); }")
        self.plant("src/os/os.h", "void ebbi_os_map(void);\nvoid ebbi_os_map2(void);\n")
        self.source("heap/heap.c", "void ebbi_os_map(void); void ebbi_os_map2(void);"
                    "void ebbi_take(void) { ebbi_os_map(); ebbi_os_map2(); }")
        self.assert_fails("src/os/lock.c: needs ebbi_take of src/heap/heap.c, which is no lower layer",
                          *self.arguments())

    def test_equal_levels_are_strangers(self):
        self.source("reclaim/bag.c", "void ebbi_take(void); void ebb_retire(void) { ebbi_take(); }")
        self.assert_fails("src/reclaim/bag.c: needs ebbi_take of src/heap/heap.c", *self.arguments())

    def test_upward_variable(self):
        self.source("heap/heap.c", "int ebbi_count; void ebbi_take(void) {}")
        self.plant("src/heap/heap.h", "extern int ebbi_count;\nvoid ebbi_take(void);\n")
        self.source("os/linux.c", "extern int ebbi_count; void ebbi_os_map(void) { ebbi_count = 1; }")
        self.assert_fails("needs ebbi_count of src/heap/heap.c", *self.arguments())

    def ring(self, count):
        names = [f"ebbi_r{i}" for i in range(count)]
        for i, name in enumerate(names):
            after = names[(i + 1) % count]
            self.source(f"heap/r{i}.c", f"void {after}(void); void {name}(void) {{ {after}(); }}")
        self.plant("src/heap/rings.h", "".join(f"void {name}(void);\n" for name in names))

    def test_circle_of_three(self):
        self.ring(3)
        self.assert_passes(*self.arguments())

    def test_circle_of_four(self):
        self.ring(4)
        self.assert_fails("a circle of 4 files, more than 3: "
                          "heap/r0.c heap/r1.c heap/r2.c heap/r3.c", *self.arguments())

    def test_name_that_nobody_uses(self):
        self.source("heap/heap.c", "void ebbi_os_map(void); void ebbi_lonely(void) {}"
                    "void ebbi_take(void) { ebbi_os_map(); ebbi_lonely(); }")
        self.plant("src/heap/heap.h", "void ebbi_take(void);\nvoid ebbi_lonely(void);\n")
        self.assert_fails("src/heap/heap.c: ebbi_lonely is exported, and no other file uses it",
                          *self.arguments())

    def test_name_that_a_test_uses(self):
        self.test_name_that_nobody_uses()
        self.plant("tests/unit/heap_test.cc", "void test() { ebbi_lonely(); }\n")
        self.assert_passes(*self.arguments())


if __name__ == "__main__":
    unittest.main()
