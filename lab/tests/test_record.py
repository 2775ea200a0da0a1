# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb record: real programs, how they end, and what is refused."""

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import await_ready, compile_c
from rich.console import Console
from test_cli import user_command

from ebbtide_lab.base.layout import Layout
from ebbtide_lab.inspect.executable import NotPreloadableError, check_preloadable
from ebbtide_lab.measure import recording
from ebbtide_lab.measure.recording import Recording, Run, numbered
from ebbtide_lab.measure.tracing import Info, read_info
from ebbtide_lab.show.recordings import print_overhead, print_recordings

PYTHON = os.path.realpath(sys.executable)
# Asks for blocks; then, if it is told to, for more in a child, or in the background.
ASKS = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
static void ask(int count)
{
    for (int i = 0; i < count; i++)
        free(malloc((size_t)(i % 300) + 1));
}
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    ask(2000);
    if (strcmp(what, "fork") == 0 && fork() == 0) {
        ask(4000);
        return 0;
    }
    if (strcmp(what, "daemon") == 0) {
        if (fork() > 0)
            return 6;
        setsid();
        usleep(300000);
        ask(5000);
        return 0;
    }
    if (strcmp(what, "server") == 0) {
        puts("ready");
        fflush(stdout);
        for (;;)
            pause();
    }
    (void)wait(NULL);
    return 0;
}
"""


@pytest.fixture(scope="session")
def asks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asks")
    return build(folder, "asks", ASKS)


def build(folder: Path, name: str, source: str, *flags: str) -> Path:
    code, program = folder / f"{name}.c", folder / name
    code.write_text(source, encoding="utf-8")
    compile_c([code], program, *flags)
    return program


def record(
    layout: Layout, folder: Path, *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    command = user_command(layout, "record", *map(str, arguments))
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def names(folder: Path) -> set[str]:
    """All that is there, hidden or not: nothing of the recorder's is left."""
    return {each.name for each in folder.iterdir()}


def test_a_program_is_recorded_into_a_file_with_its_name(
    traced: Layout, asks: Path, tmp_path: Path
) -> None:
    done = record(traced, tmp_path, asks)
    assert (done.returncode, done.stderr) == (0, "")
    assert names(tmp_path) == {"asks.ebt"}
    info = read_info(traced, tmp_path / "asks.ebt")
    assert (info.name, info.mallocs, info.frees) == ("asks", 2000, 2000)
    assert re.search(rf"asks\.ebt +asks +{info.events:,} +1 ", done.stdout)


def test_python_goes_on_as_ever_and_its_exit_status_is_kept(traced: Layout, tmp_path: Path) -> None:
    code = "import sys; print(sys.stdin.read()); sys.exit(len([str(i) for i in range(7)]))"
    command = user_command(traced, "record", "-o", "py.ebt", "--", PYTHON, "-c", code)
    done = subprocess.run(
        command,
        cwd=tmp_path,
        input="hello",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 7
    assert done.stdout.startswith("hello\n")
    assert read_info(traced, tmp_path / "py.ebt").events > 1000


def test_the_process_with_the_most_events_comes_first(
    traced: Layout, asks: Path, tmp_path: Path
) -> None:
    done = record(traced, tmp_path, "-o", "x.ebt", "--", "sh", "-c", f"{asks} fork; {asks}; exit 3")
    assert done.returncode == 3
    assert names(tmp_path) == {"x.ebt", "x.1.ebt", "x.2.ebt"}
    found = [read_info(traced, tmp_path / name).mallocs for name in ("x.ebt", "x.1.ebt", "x.2.ebt")]
    assert found == [4000, 2000, 2000]


def test_all_keeps_the_shell_too_and_only_nothing_but_its_program(
    traced: Layout, asks: Path, tmp_path: Path
) -> None:
    command = ["sh", "-c", f"{asks}; exit 0"]
    assert record(traced, tmp_path, "--all", "-o", "all.ebt", "--", *command).returncode == 0
    assert read_info(traced, tmp_path / "all.1.ebt").events < 1000
    assert record(traced, tmp_path, "--only", "asks", "--all", "--", *command).returncode == 0
    assert {each for each in names(tmp_path) if each.startswith("sh")} == {"sh.ebt"}
    assert read_info(traced, tmp_path / "sh.ebt").name == "asks"


def test_seconds_end_a_server_and_its_recording_is_whole(
    traced: Layout, asks: Path, tmp_path: Path
) -> None:
    done = record(traced, tmp_path, "--seconds", "0.5", "--", asks, "server")
    assert done.returncode == 128 + signal.SIGTERM
    assert read_info(traced, tmp_path / "asks.ebt").mallocs >= 2000
    assert names(tmp_path) == {"asks.ebt"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_server_and_keeps_its_recording(
    traced: Layout, asks: Path, tmp_path: Path, number: signal.Signals
) -> None:
    command = user_command(traced, "record", str(asks), "server")
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as lab:
        await_ready(lab)
        lab.send_signal(number)
        assert lab.wait(timeout=30) == 128 + signal.SIGTERM
    assert names(tmp_path) == {"asks.ebt"}
    assert read_info(traced, tmp_path / "asks.ebt").mallocs >= 2000


def test_a_server_that_ignores_the_signal_is_killed(
    traced: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "GRACE_S", 0.3)
    stubborn = [PYTHON, "-c", "import signal, time; signal.signal(15, 1); time.sleep(60)"]
    told: list[str] = []
    request = recording.Request(stubborn, tmp_path / "s.ebt", seconds=1.0)
    run, (found,) = recording.record(request, traced, told.append)
    assert run.status == 128 + signal.SIGKILL
    assert told == ["the command does not end on SIGTERM: it is killed"]
    assert found.info.events > 1000


def test_a_process_that_outlives_the_command_is_waited_for(
    traced: Layout, asks: Path, tmp_path: Path
) -> None:
    done = record(traced, tmp_path, "-o", "d.ebt", "--", asks, "daemon")
    assert done.returncode == 6
    assert read_info(traced, tmp_path / "d.ebt").mallocs == 5000
    assert read_info(traced, tmp_path / "d.1.ebt").mallocs == 2000


DAEMON = "import subprocess as s; s.Popen(['{}', 'server'], start_new_session=True)"


def test_seconds_end_what_outlives_the_command(traced: Layout, asks: Path, tmp_path: Path) -> None:
    begin = DAEMON.format(asks)
    options = ("--only", "asks", "--seconds", "3", "-o", "d.ebt")
    done = record(traced, tmp_path, *options, "--", PYTHON, "-c", begin)
    assert done.returncode == 0
    assert re.search(r"waiting for asks \(\d+\)", done.stderr)
    assert read_info(traced, tmp_path / "d.ebt").mallocs >= 2000


def test_what_runs_on_is_left_out_after_a_while(
    traced: Layout, asks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("QUIET_S", "LINGER_S"):
        monkeypatch.setattr(recording, name, 1.0)
    told: list[str] = []
    request = recording.Request([PYTHON, "-c", DAEMON.format(asks)], tmp_path / "d.ebt")
    _, (found,) = recording.record(request, traced, told.append)
    left = re.match(r"asks \((\d+)\) still runs: what it does is not recorded", told[-1])
    assert left, told
    os.kill(int(left[1]), signal.SIGKILL)
    assert found.info.name.startswith("python")
    assert names(tmp_path) == {"d.ebt"}


def test_overhead_runs_the_command_a_second_time_unrecorded(
    traced: Layout, asks: Path, tmp_path: Path
) -> None:
    script = f"echo $LD_PRELOAD >>log; {asks}"
    done = record(traced, tmp_path, "--overhead", "-o", "x.ebt", "--", "sh", "-c", script)
    first, second = (tmp_path / "log").read_text().splitlines()
    assert (Path(first).name, second) == ("libebbtide_record.so", "")
    assert re.search(r"CPU time \d.\d+ s recorded, \d.\d+ s unrecorded", done.stdout)


def test_a_line_of_the_recorder_and_a_lost_recording_are_told(
    traced: Layout, asks: Path, tmp_path: Path
) -> None:
    done = record(traced, tmp_path, "--", "sh", "-c", f"ulimit -f 1; {asks} fork; true")
    assert "the recording stops here, the program goes on" in done.stderr
    assert done.returncode == 0


def test_a_summary_that_cannot_be_printed_leaves_the_status(
    traced: Layout, asks: Path, tmp_path: Path
) -> None:
    command = user_command(traced, "record", "--", "sh", "-c", f"{asks} >&2; exit 4")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.returncode == 4
    assert b"cannot print what was recorded: No space left on device" in done.stderr
    assert names(tmp_path)


def test_nothing_recorded_is_told(traced: Layout, tmp_path: Path) -> None:
    done = record(traced, tmp_path, "--only", "nobody", "--", "sh", "-c", "exit 4")
    assert done.returncode == 4
    assert "nothing was recorded" in done.stderr
    assert names(tmp_path) == set()


# --- what is refused -----------------------------------------------------------------


def refused(layout: Layout, folder: Path, *arguments: str | Path) -> str:
    before = names(folder)
    done = record(layout, folder, *arguments)
    assert done.returncode == 2, done.stderr
    assert names(folder) == before
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_program_that_is_not_there_is_refused(traced: Layout, tmp_path: Path) -> None:
    assert "there is no program nothing" in refused(traced, tmp_path, "--", "nothing", "-x")
    text = tmp_path / "text"
    text.write_text("words\n", encoding="utf-8")
    assert "there is no program" in refused(traced, tmp_path, text)
    text.chmod(0o755)
    assert "no ELF program and no script" in refused(traced, tmp_path, text)


def test_a_static_program_is_refused_and_a_script_that_it_runs(
    traced: Layout, tmp_path: Path
) -> None:
    static = build(tmp_path, "static", "int main(void) { return 0; }\n", "-static")
    assert "is static" in refused(traced, tmp_path, static)
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    inner.write_text(f"#! {static} -x\n", encoding="utf-8")
    outer.write_text(f"#!{inner}\n", encoding="utf-8")
    for script in (inner, outer):
        script.chmod(0o755)
        assert f"{static} is static" in refused(traced, tmp_path, script)


@pytest.mark.parametrize(("mode", "word"), [(0o4755, "set-uid"), (0o2755, "set-gid")])
def test_a_program_with_rights_of_its_file_is_refused(
    traced: Layout, asks: Path, tmp_path: Path, mode: int, word: str
) -> None:
    program = tmp_path / "program"
    program.write_bytes(asks.read_bytes())
    program.chmod(mode)
    assert f"is {word}" in refused(traced, tmp_path, program)


def test_file_capabilities_are_refused(
    traced: Layout, asks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "listxattr", lambda _: ["security.capability"])
    with pytest.raises(NotPreloadableError, match="file capabilities"):
        check_preloadable(str(asks), traced.program("libebbtide_record.so"))


def test_a_program_of_another_machine_is_refused(
    traced: Layout, asks: Path, tmp_path: Path
) -> None:
    content = bytearray(asks.read_bytes())
    content[18:20] = (8).to_bytes(2, "little")  # e_machine: MIPS
    program = tmp_path / "program"
    program.write_bytes(content)
    program.chmod(0o755)
    assert "is built for MIPS" in refused(traced, tmp_path, program)


def test_a_recording_that_has_no_place_is_refused(
    traced: Layout, asks: Path, tmp_path: Path
) -> None:
    assert "cannot write in" in refused(traced, tmp_path, "-o", "no/where.ebt", asks)
    assert "cannot write in" in refused(traced, tmp_path, "-o", "/proc/x.ebt", asks)
    (tmp_path / "folder").mkdir()
    assert "folder is no file" in refused(traced, tmp_path, "-o", "folder", asks)


# --- what is printed --------------------------------------------------------------------


def made_up(**others: object) -> Info:
    fields: dict[str, object] = dict.fromkeys(Info.__dataclass_fields__, 0)
    fields |= {"program": "/usr/bin/" + "long-name-" * 3, "command": "command", "pid": "7"}
    fields |= {"libc": "2", "sizes": [0] * 48, "lifetimes": [0] * 48, "live_bytes": []}
    fields |= {"live_at_us": [], **others}
    return Info(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_is_not_cut(width: int) -> None:
    info = made_up(events=123_456_789_012, threads=12345, file_bytes=10**12, peak_bytes=5 << 40)
    target = Path("/home/somebody/recordings/of/last/week/a-rather-long-name-of-a-recording.ebt")
    out = io.StringIO()
    print_recordings([Recording(target, info)], Console(file=out, width=width))
    text = out.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for figure in ("123,456,789,012", "12345", "8.10", "5.00 TiB"):
        assert figure in text


def test_overhead_of_nothing_has_no_ratio() -> None:
    out = io.StringIO()
    print_overhead(Run(0, 0.5), Run(0, 0.25), Console(file=out, width=80))
    print_overhead(Run(0, 0.5), Run(0, 0.0), Console(file=out, width=80))
    first, second = out.getvalue().splitlines()
    assert first == "CPU time 0.500 s recorded, 0.250 s unrecorded: 2.00 times."
    assert second == "CPU time 0.500 s recorded, 0.000 s unrecorded."


def test_the_number_stands_before_the_suffix() -> None:
    assert [numbered(Path("a/x.ebt"), number).name for number in (0, 1, 12)] == [
        "x.ebt",
        "x.1.ebt",
        "x.12.ebt",
    ]
    assert numbered(Path("plain"), 2).name == "plain.2"


def test_what_is_no_file_is_not_replaced(traced: Layout, asks: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "is no file" in refused(traced, tmp_path, "-o", "pipe", asks)
    assert pipe.is_fifo()
    link, real = tmp_path / "link.ebt", tmp_path / "real.ebt"
    link.symlink_to(real)
    done = record(traced, tmp_path, "-o", "link.ebt", asks)
    assert done.returncode == 0, done.stderr
    assert link.is_symlink()
    assert real.is_file()
