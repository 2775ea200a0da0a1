# SPDX-License-Identifier: MIT OR Apache-2.0
"""tools/rust-suites: a suite counts only where tests ran, all passed, and Ebbtide's crate was below them."""
import os
import unittest

from planted import ToolTest

MANIFEST = """[workspace.metadata.suites]
deque = { version = "1.2.3", arguments = ["--features", "f"] }
tree = { version = "4.5.6", built = true }
"""
# Says what the files beside it say; every call is noted.
CARGO = """#!/bin/sh
echo "$*" >>{root}/called
case $1 in
generate-lockfile) printf '[[package]]\\nname = "a"\\nsource = "registry"\\n' >Cargo.lock ;;
metadata) cat {root}/metadata ;;
tree) cat {root}/tree ;;
test) cat {root}/tests; exit $(cat {root}/status) ;;
esac
"""
METADATA = """{{"packages": [
{{"name": "deque", "version": "1.2.3", "manifest_path": "{root}/store/deque/Cargo.toml"}},
{{"name": "deque", "version": "0.9.0", "manifest_path": "{root}/nowhere/Cargo.toml"}},
{{"name": "tree", "version": "4.5.6", "manifest_path": "{root}/store/tree/Cargo.toml"}}]}}
"""
TESTS = """     Running unittests src/lib.rs ({root}/program)
test result: ok. 3 passed; 0 failed; 0 ignored
   Doc-tests deque
test result: ok. 4 passed; 0 failed; 1 ignored
"""
OURS = "crossbeam-epoch v0.9.21+ebbtide.0.1.0 (/x/rust/crossbeam-epoch-shim)\n"


class Suites(ToolTest, unittest.TestCase):
    tool = "rust-suites"

    def setUp(self):
        super().setUp()
        self.plant("rust/suites/Cargo.toml", MANIFEST)
        self.plant("rust/suites/Cargo.versions", '[[package]]\nname = "a"\n')
        self.plant("store/deque/Cargo.toml", "its own")
        self.plant("store/tree/Cargo.toml", "")
        for name, text in (("metadata", METADATA), ("tests", TESTS)):
            self.plant(name, text.format(root=self.root))
        self.plant("tree", OURS)
        self.plant("status", "0")
        self.plant("bin/nm", "#!/bin/sh\necho 0000000000000010 T ebb_malloc\n").chmod(0o755)
        cargo = self.plant("bin/cargo", CARGO.format(root=self.root))
        cargo.chmod(0o755)
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{cargo.parent}:{path}"
        self.addCleanup(os.environ.__setitem__, "PATH", path)

    def test_all_that_ran_is_counted(self):
        text = self.assert_passes("--root", self.root)
        self.assertIn("deque: 7 tests passed in 1 programs and the documentation\n", text)
        self.assertIn("tree: built\n", text)
        self.assertEqual("its own", (self.root / "rust/suites/crates/deque/Cargo.toml").read_text())
        called = (self.root / "called").read_text()
        self.assertRegex(called, r"test --locked .*/rust/suites/crates/deque/Cargo.toml --no-fail-fast --features f\n")
        self.assertRegex(called, r"build --locked .*/rust/suites/crates/tree/Cargo.toml\n")

    def test_a_suite_without_tests_fails(self):
        none = TESTS.replace("3 passed", "0 passed").replace("4 passed", "0 passed")
        self.plant("tests", none.format(root=self.root))
        self.assert_fails("deque: FAILED: no test ran", "--root", self.root)

    def test_a_failing_test_fails(self):
        self.plant("status", "101")
        self.assert_fails("deque: FAILED: cargo test failed", "--root", self.root, "deque")

    def test_the_original_below_fails(self):
        self.plant("tree", "crossbeam-epoch v0.9.21\n")
        self.assert_fails("tree: FAILED: it rests on crossbeam-epoch v0.9.21", "--root", self.root, "tree")
        self.plant("tree", OURS + OURS)
        self.assert_fails("FAILED: it rests on", "--root", self.root, "tree")

    def test_a_program_without_ebbtide_fails(self):
        self.plant("bin/nm", "#!/bin/sh\necho 0000000000000010 T malloc\n")
        self.assert_fails("program has no ebb_malloc", "--root", self.root, "deque")

    def test_programs_that_cannot_be_looked_at_fail(self):
        self.plant("tests", "test result: ok. 3 passed; 0 failed\n")
        self.assert_fails("cargo named no program", "--root", self.root, "deque")

    def test_an_unknown_crate_is_a_wrong_call(self):
        self.assertEqual(2, self.run_tool("--root", self.root, "stack").returncode)


if __name__ == "__main__":
    unittest.main()
