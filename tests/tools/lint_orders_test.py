# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/lint_orders accepts noted and paired atomics, and finds each that is not."""
import unittest

from planted import SPDX, ToolTest

RELEASE = """void put(void)
{
    // release[put -> get]: publishes the item,
    // and its size
    ebbi_store_release(&ready, 1);
}
"""
ACQUIRE = """int get(void)
{
    // acquire[get <- put]: the item is now visible
    if (first &&
        ebbi_load_acquire(&ready)) {
        return 1;
    }
    return 0;
}
"""


class LintOrders(ToolTest, unittest.TestCase):
    tool = "lint_orders"

    def sources(self, *functions):
        self.plant("src/heap/item.c", SPDX + "\n".join(functions))

    def passes(self):
        self.assert_passes("--root", self.root, "--write")
        self.assert_passes("--root", self.root)

    def fails(self, expected):
        self.assert_fails(expected, "--root", self.root, "--write")

    def test_paired(self):
        self.sources(RELEASE, ACQUIRE)
        self.passes()
        table = (self.root / "docs/memory-model.md").read_text()
        self.assertIn("| put | get | `src/heap/item.c`: publishes the item, and its size |", table)

    def test_pair_across_files(self):
        self.plant("src/os/put.h", SPDX + RELEASE)
        self.plant("src/heap/get.c", SPDX + ACQUIRE)
        self.passes()

    def test_stale_document(self):
        self.sources(RELEASE, ACQUIRE)
        self.passes()
        self.sources(RELEASE.replace("the item", "everything"), ACQUIRE)
        self.assert_fails("memory-model.md is stale", "--root", self.root)

    def test_release_without_partner(self):
        self.sources(RELEASE)
        self.fails("release[put -> get] has no acquire partner")

    def test_acquire_without_partner(self):
        self.sources(RELEASE.replace("put -> get", "put -> other"), ACQUIRE)
        self.fails("acquire[get <- put] has no release partner")

    def test_two_partners(self):
        peek = ACQUIRE.replace("get", "peek")
        self.sources(RELEASE.replace("get]", "get, peek]"), ACQUIRE, peek)
        self.passes()

    def test_missing_note(self):
        self.sources("void f(void)\n{\n    ebbi_store_release(&x, 1);\n}\n")
        self.fails("src/heap/item.c:4: release operation without its 'release' note")

    def test_note_of_another_order(self):
        self.sources("void f(void)\n{\n    // relaxed: a hint\n    ebbi_load_acquire(&x);\n}\n")
        self.fails("acquire operation without its 'acquire' note")

    def test_note_does_not_reach_past_other_code(self):
        self.sources("void f(void)\n{\n    // relaxed: a hint\n    g();\n"
                     "    ebbi_load_relaxed(&x);\n}\n")
        self.fails("relaxed operation without its 'relaxed' note")

    def test_relaxed_beside_and_neighbouring(self):
        self.sources("void f(void)\n{\n    ebbi_load_relaxed(&x); // relaxed: a hint\n"
                     "    // relaxed: counters of the owner\n    ebbi_store_relaxed(&a, 1);\n"
                     "    ebbi_store_relaxed(&b, 1);\n}\n")
        self.passes()

    def test_relaxed_without_reason(self):
        self.sources("void f(void)\n{\n    ebbi_load_relaxed(&x); // relaxed:\n}\n")
        self.fails("relaxed operation without")

    def test_both_sides_of_acq_rel(self):
        swap = ("void swap(void)\n{\n    // release[put -> get]: publishes\n%s"
                "    ebbi_exchange_acq_rel(&x, 1);\n}\n")
        self.sources(swap % "    // acquire[get <- put]: visible\n")
        self.passes()
        self.sources(swap % "", ACQUIRE)
        self.fails("acq_rel operation without its 'acquire' note")

    def test_arrow_of_the_other_side(self):
        self.sources(RELEASE.replace("->", "<-"), ACQUIRE)
        self.fails("a release note points ->")

    def test_malformed_note(self):
        self.sources(RELEASE.replace("put -> get", "put"), ACQUIRE)
        self.fails("malformed note")

    def test_raw_atomic(self):
        self.sources("void f(void) { __atomic_store_n(&x, 1, __ATOMIC_RELAXED); }\n")
        self.fails("raw atomic")

    def test_definitions_may_be_raw(self):
        self.sources("int nothing;\n")
        self.plant("include/ebbtide/detail/atomic.h", SPDX + "#define ebbi_load_relaxed(p) __atomic_load_n(p, 0)\n")
        self.passes()

    def test_full_fences_pair(self):
        side = "    // full[{0} <-> {1}]: the other's store\n    ebbi_store_full(&x, 1);\n"
        self.sources("void f(void)\n{\n" + side.format("a", "b") + side.format("b", "a") + "}\n")
        self.passes()

    def test_full_fence_without_partner(self):
        self.sources("void f(void)\n{\n    // full[a <-> b]: x\n    ebbi_fence_full();\n}\n")
        self.fails("full[a <-> b] has no full partner")

    def test_sequential_consistency(self):
        self.sources("void f(void)\n{\n    ebbi_load_seq_cst(&x); // relaxed: no\n}\n")
        self.fails("seq_cst hides")


if __name__ == "__main__":
    unittest.main()
