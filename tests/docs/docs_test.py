# SPDX-License-Identifier: MIT OR Apache-2.0
"""The programs in the documents compile, run and return 0; the documents' links lead somewhere; every function has a
manual page.

Argument: the library. A block of C or C++ that has a main() is a program; others are excerpts.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / name for name in subprocess.run(
    ["git", "ls-files", "*.md", ":!results"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()]
BLOCK = re.compile(r"^```(c|cpp)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)\[[^\]\n]+\]\(([^)\s]+)\)")
COMPILERS = {"c": ["cc", "-std=gnu11"], "cpp": ["c++", "-std=c++17"]}
LEAST_PROGRAMS = 10  # of which each would be missed


def programs(text):
    return [(language, body) for language, body in BLOCK.findall(text) if re.search(r"^int main\(", body, re.MULTILINE)]


def anchors(text):
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken_links(document, text):
    for link in LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = document.parent / path if path else document
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            yield f"{link}: no such heading"


class Docs(unittest.TestCase):
    library = None

    def run_program(self, language, body):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / f"program.{language}"
            source.write_text(body)
            program = source.with_suffix(".out")
            subprocess.run([*COMPILERS[language], "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", source, self.library,
                            "-lpthread", "-o", program], check=True)
            environment = {**os.environ, "LD_LIBRARY_PATH": str(pathlib.Path(self.library).parent)}
            return subprocess.run([program], env=environment, check=False, timeout=60).returncode

    def test_programs(self):
        count = 0
        for document in DOCUMENTS:
            for language, body in programs(document.read_text()):
                with self.subTest(document=document.name, program=body.splitlines()[:4]):
                    self.assertEqual(0, self.run_program(language, body))
                count += 1
        self.assertGreaterEqual(count, LEAST_PROGRAMS)

    def test_every_sample_of_the_readme_is_a_program(self):
        text = (ROOT / "README.md").read_text()
        self.assertEqual(BLOCK.findall(text), programs(text))

    def test_links(self):
        broken = [f"{document.relative_to(ROOT)}: {link}" for document in DOCUMENTS
                  for link in broken_links(document, document.read_text())]
        self.assertEqual([], broken)

    def test_every_exported_function_has_a_manual_page(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", self.library], check=True, capture_output=True,
                                 text=True).stdout
        exported = set(re.findall(r" T (ebb_\w+)$", symbols, re.MULTILINE))
        internal = set(re.findall(r"\b(ebb_\w+)\(", "".join(
            path.read_text() for path in (ROOT / "include/ebbtide/detail").glob("*.h"))))
        paged = {name for page in (ROOT / "docs/man").glob("ebbtide-*.3")
                 for name in re.findall(r"alias: (\w+)", page.read_text())}
        self.assertIn("ebb_malloc", exported)
        self.assertEqual(set(), exported - internal - paged)

    def test_a_program_that_fails_and_a_link_that_is_broken_are_seen(self):
        [(language, body)] = programs("```c\nint main(void)\n{\n    return 3;\n}\n```\n")
        self.assertEqual(3, self.run_program(language, body))
        with tempfile.TemporaryDirectory() as folder:
            document = pathlib.Path(folder) / "a.md"
            document.write_text("# One head\n[a](#one-head) [b](#other) [c](nowhere.md)\n")
            self.assertEqual(["#other: no such heading", "nowhere.md: no such file"],
                             list(broken_links(document, document.read_text())))


if __name__ == "__main__":
    Docs.library = sys.argv.pop()
    unittest.main()
