# SPDX-License-Identifier: MIT OR Apache-2.0
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ebbtide_lab import peers
from ebbtide_lab.cli import main
from ebbtide_lab.errors import LabError
from ebbtide_lab.layout import Layout


def invoke(layout: Layout, *arguments: str) -> Result:
    places = ["--lib", str(layout.lib), "--programs", str(layout.programs)]
    return CliRunner().invoke(main, [*places, *arguments])


def run_as_user(layout: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from ebbtide_lab.cli import main; main()"
    places = ["--lib", str(layout.lib), "--programs", str(layout.programs)]
    command = [sys.executable, "-c", code, *places, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_run_proves_the_allocator_and_keeps_the_exit_status(layout: Layout) -> None:
    done = run_as_user(layout, "run", "--with", "glibc", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7
    assert "malloc is glibc's" in done.stderr


def test_run_of_a_static_program_is_not_proved(layout: Layout, tmp_path: Path) -> None:
    source, program = tmp_path / "static.c", tmp_path / "static"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-static", str(source), "-o", str(program)], check=True)
    done = run_as_user(layout, "run", "--with", "floor", "--", str(program))
    assert done.returncode == 3
    assert "not proved" in done.stderr


def test_run_of_a_program_that_is_not_there_is_an_error(layout: Layout) -> None:
    done = run_as_user(layout, "run", "--with", "glibc", "--", "/proc/self/nothing")
    assert done.returncode == 1
    assert "cannot start" in done.stderr


def test_missing_library_and_unknown_names_are_clear_errors(layout: Layout) -> None:
    for arguments, message in (
        (["run", "--", "true"], "is missing; `make lib` builds it"),
        (["bench", "quick"], "is missing; `make lib` builds it"),
        (["bench", "nothing"], "no scenario or set is called 'nothing'"),
        (["bench", "--arms", "what"], "no allocator is called 'what'"),
        (["run", "--with", "what", "--", "true"], "no allocator is called 'what'"),
    ):
        result = invoke(layout, *arguments)
        assert result.exit_code == 1
        assert message in result.output.replace("\n", " ")


def test_bench_prints_the_table_and_keeps_the_runs(layout: Layout, tmp_path: Path) -> None:
    result = invoke(
        layout, "bench", "start", "--arms", "glibc,floor", "--runs", "1", "--out", str(tmp_path)
    )
    assert result.exit_code == 0, result.output
    assert "true" in result.output
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1


def test_list_shows_every_bar_row(layout: Layout) -> None:
    assert "hand-off-t16-r90" in invoke(layout, "list").output


def test_a_peer_that_cannot_be_fetched_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    recipe = peers.Recipe("x", "some-crate", "1.0.0", "src", ("a.c",), (), ())
    with pytest.raises(LabError, match="cargo is not installed"):
        peers.build(recipe, tmp_path / "cache")
