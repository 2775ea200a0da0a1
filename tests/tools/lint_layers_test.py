# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/lint_layers finds each fault that is planted in a sound tree, and no other."""
import unittest

from planted import SPDX, ToolTest


class LintLayers(ToolTest, unittest.TestCase):
    tool = "lint_layers"

    def setUp(self):
        super().setUp()
        self.plant("src/layers.txt", "base\nos\nheap\napi diag\n")
        self.source("src/base/base.h")
        self.source("src/os/os.h", '#include "base/base.h"')
        self.source("src/heap/heap.h", '#include "os/os.h"')
        self.source("src/heap/heap.c", '#include "heap/heap.h"')
        self.source("src/api/api.h", '#include "ebbtide.h"')
        self.source("src/diag/stats.h", '#include "heap/heap.h"')
        self.source("include/ebbtide.h")
        self.source("src/one.c", '#include "heap/heap.c"')
        self.source("include/ebbtide/queue.h")
        self.source("include/ebbtide/detail/atomic.h")
        self.source("lockfree/list.h")
        self.source("lockfree/queue.c", "#include <ebbtide/queue.h>", "#include <errno.h>",
                    '#include "list.h"')

    def source(self, name, *lines):
        self.plant(name, SPDX + "\n".join(lines) + "\n")

    def passes(self):
        self.assert_passes("--root", self.root)

    def fails(self, expected):
        self.assert_fails(expected, "--root", self.root)

    def test_sound_tree(self):
        self.passes()

    def test_upward_include(self):
        self.source("src/os/os.h", '#include "heap/heap.h"')
        self.fails('src/os/os.h:2: layer os includes upward: "heap/heap.h"')

    def test_indented_upward_include(self):
        self.source("src/os/os.h", '  #  include "heap/heap.h"')
        self.fails("includes upward")

    def test_equal_levels_are_strangers(self):
        self.source("src/api/api.h", '#include "diag/stats.h"')
        self.fails("layer api includes upward")

    def test_public_header_below_api(self):
        self.source("src/heap/heap.h", '#include "ebbtide.h"')
        self.fails("below the api layer")

    def test_unknown_folder(self):
        self.source("src/util/util.h")
        self.fails("src/util: folder is not in the list of layers")

    def test_include_without_folder(self):
        self.source("src/os/os.h", '#include "base.h"')
        self.fails("does not name a layer folder")

    def test_missing_header(self):
        self.source("src/os/os.h", '#include "base/none.h"')
        self.fails('"base/none.h" does not exist')

    def test_platform_header_outside_os(self):
        self.source("src/heap/heap.h", "#include <sys/mman.h>")
        self.fails("<sys/mman.h> belongs to src/os")

    def test_form_that_is_not_compiled(self):
        asks = "#ifdef EBB_STATIC"
        self.source("src/heap/heap_audit.c", asks)
        self.source("src/one.c", '#include "heap/heap.c"', '#include "heap/heap_audit.c"', asks)
        self.passes()
        for name in ("src/heap/heap.c", "src/os/os.h", "include/ebbtide/queue.h"):
            with self.subTest(name):
                before = (self.root / name).read_text()
                self.plant(name, before + asks)
                self.fails(f"{name}: asks for EBB_STATIC, and is compiled once for all forms")
                self.plant(name, before)

    def test_file_missing_from_one(self):
        self.source("src/os/linux.c")
        self.fails('src/one.c: does not include "os/linux.c"')

    def test_file_twice_in_one(self):
        self.source("src/one.c", '#include "heap/heap.c"', '#include "heap/heap.c"')
        self.fails('includes "heap/heap.c" twice')

    def test_lockfree_reaches_into_the_library(self):
        self.source("lockfree/queue.c", '#include "heap/heap.h"')
        self.fails('lockfree/queue.c:2: "heap/heap.h" is not in lockfree/')

    def test_lockfree_includes_what_is_no_api(self):
        self.source("lockfree/queue.c", "#include <ebbtide/detail/atomic.h>")
        self.fails("<ebbtide/detail/atomic.h> is not part of the API")

    def test_lockfree_includes_a_platform_header(self):
        self.source("lockfree/list.h", "#include <pthread.h>")
        self.fails("lockfree/list.h:2: <pthread.h> is neither a public header nor one of ISO C")

    def test_lockfree_includes_a_public_header_that_is_not_there(self):
        self.source("lockfree/queue.c", "#include <ebbtide/none.h>")
        self.fails("<ebbtide/none.h> is neither")

    def test_missing_licence_line_in_lockfree(self):
        self.plant("lockfree/none.c", "int x;\n")
        self.fails("lockfree/none.c: first line is not")

    def test_long_file(self):
        self.source("src/base/base.h", *["int x;"] * 500)
        self.fails("501 lines, at most 500")

    def test_missing_licence_line(self):
        self.plant("tests/api/some_test.cc", "int x;\n")
        self.fails("tests/api/some_test.cc: first line is not")

    def test_script_without_suffix_needs_licence_line(self):
        self.plant("tools/some", "#!/bin/sh\ntrue\n")
        self.fails("tools/some: first line is not")


if __name__ == "__main__":
    unittest.main()
