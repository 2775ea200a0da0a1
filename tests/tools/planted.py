# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the tool tests share: small trees with planted faults, and running a tool on them."""
import pathlib
import subprocess
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
SPDX = "// SPDX-License-Identifier: MIT OR Apache-2.0\n"


class ToolTest:
    """Mixed into a TestCase: a folder of its own, self.root, and one tool, named by the class."""

    tool = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def plant(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run_tool(self, *arguments):
        return subprocess.run([TOOLS / self.tool, *map(str, arguments)],
                              capture_output=True, text=True, check=False)

    def assert_passes(self, *arguments):
        result = self.run_tool(*arguments)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def assert_fails(self, expected, *arguments):
        result = self.run_tool(*arguments)
        self.assertEqual(result.returncode, 1, "the planted fault passed")
        self.assertIn(expected, result.stdout + result.stderr)

    def test_help(self):
        self.assertIn("usage:", self.assert_passes("--help"))
