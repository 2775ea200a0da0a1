# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb trace: what it shows of recordings, and those that it makes."""

import io
import json
import re
from pathlib import Path

import pytest
from conftest import invoke
from rich.console import Console
from test_record import PYTHON, build, made_up, record

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout
from ebbtide_lab.measure import tracing
from ebbtide_lab.measure.tracing import Info, read_info
from ebbtide_lab.show.recordings import bar, print_info, size_rows, spread

# Two threads: the second frees what the first has made. One large block goes at half time.
HANDS_OVER = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *blocks[3000];
static void *end(void *unused)
{
    for (int i = 0; i < 3000; i++)
        free(blocks[i]);
    return unused;
}
int main(void)
{
    char *large = malloc(4000000);
    memset(large, 1, 4000000);
    for (int i = 0; i < 3000; i++)
        blocks[i] = calloc(1, 100);
    usleep(200000);
    free(large);
    pthread_t thread;
    pthread_create(&thread, NULL, end, NULL);
    pthread_join(thread, NULL);
    usleep(200000);
    free(malloc(20));
    return 0;
}
"""


@pytest.fixture(scope="session")
def recorded(traced: Layout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    done = record(traced, folder, build(folder, "hands_over", HANDS_OVER))
    assert done.returncode == 0, done.stderr
    return folder / "hands_over.ebt"


def shown(info: Info, width: int) -> list[str]:
    out = io.StringIO()
    print_info(info, Console(file=out, width=width))
    return out.getvalue().splitlines()


def test_info_shows_what_the_program_did(traced: Layout, recorded: Path) -> None:
    done = invoke(traced, "trace", "info", str(recorded))
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    info = read_info(traced, recorded)
    assert f"{info.events:,} events of 2 threads" in text
    assert re.search(r"\(\d by malloc, 3,00\d by calloc, 0 aligned\)", text)
    assert "Hand-overs: 3,000 objects ended in another thread" in text
    assert re.search(r"up to 128 B █+ 3,000", text)
    assert re.search(r"up to 4.00 MiB ▏ 1 ", text)


def test_a_recording_does_not_rule_the_terminal(
    traced: Layout, recorded: Path, tmp_path: Path
) -> None:
    content = recorded.read_bytes()
    at = content.index(b"command=") + len(b"command=")
    hostile = tmp_path / "hostile.ebt"
    hostile.write_bytes(content[:at] + b"\x1b]0;a" + content[at + 5 :])
    done = invoke(traced, "trace", "info", str(hostile))
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    assert "\ufffd]0;a" in done.output


def test_live_bytes_fall_when_the_large_block_goes(traced: Layout, recorded: Path) -> None:
    heights = spread(read_info(traced, recorded), 100)
    assert heights[20] > 4_000_000
    assert 0 < heights[60] < 1_000_000
    assert len(heights) == 100


@pytest.mark.parametrize("width", [80, 160])
def test_the_page_of_the_terminal_is_not_cut(traced: Layout, recorded: Path, width: int) -> None:
    lines = shown(read_info(traced, recorded), width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    plot = lines[next(at for at, line in enumerate(lines) if line.startswith("Live bytes")) + 1 :]
    assert len(plot) == 9
    assert max(map(len, plot)) == width - 1
    assert re.match(r" *3.81 MiB |.*4\.\d\d MiB", plot[0])
    assert re.search(r"0 +0\.\d+ s$", plot[-1])


def test_numbers_of_any_length_have_room() -> None:
    sizes, lifetimes = [0] * 48, [0] * 48
    sizes[0], sizes[47], lifetimes[46] = 10**15, 1, 10**15
    info = made_up(sizes=sizes, lifetimes=lifetimes, events=10**15, command="long " * 200)
    lines = shown(info, 80)
    assert max(map(len, lines)) <= 80
    assert any("1,000,000,000,000,000" in line and "█" in line for line in lines)


def test_a_recording_of_nothing_is_shown() -> None:
    lines = shown(made_up(program="", pid="", command=""), 80)
    assert lines[0] == "unnamed"
    assert lines.count("none") == 3


def test_bars_are_drawn_to_an_eighth_and_never_vanish() -> None:
    assert [bar(share, 2) for share in (0, 1e-9, 0.5, 0.5625, 1)] == ["", "▏", "█", "█▏", "██"]


def test_powers_between_the_first_and_the_last_are_shown() -> None:
    info = made_up(sizes=[0, 0, 0, 5, 0, 2, 0])
    assert size_rows(info) == [("up to 8 B", 5), ("up to 16 B", 0), ("up to 32 B", 2)]


def test_a_part_without_a_sample_has_what_was_live_before_it() -> None:
    times = {"live_at_us": [0, 1, 5], "live_bytes": [7, 3, 5]}
    assert spread(made_up(**times, microseconds=9, end_bytes=2), 5) == [7, 3, 5, 5, 2]
    assert spread(made_up(live_at_us=[0, 0], live_bytes=[7, 3], end_bytes=1), 3) == [7, 1, 1]


def test_the_page_is_one_file_with_the_same_figures(
    traced: Layout, recorded: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    done = invoke(traced, "trace", "info", str(recorded), "--html", str(page))
    assert (done.exit_code, done.output) == (0, "")
    text = page.read_text(encoding="utf-8")
    assert "Hand-overs: 3,000 objects" in text
    assert "seconds since the first event" in text
    assert '<th scope="row">up to 128 B</th><td>3,0' in text
    assert text.count("<svg") > 3
    assert not re.search(r'(src|href)="(?!data:|#)|url\((?!#)|<script', text)


def test_a_page_escapes_what_programs_are_called(traced: Layout, tmp_path: Path) -> None:
    command = [PYTHON, "-c", "'<b>&[red]'"]
    assert record(traced, tmp_path, "-o", "x.ebt", "--", *command).returncode == 0
    info = read_info(traced, tmp_path / "x.ebt")
    assert any("'<b>&[red]'" in line for line in shown(info, 200))
    done = invoke(traced, "trace", "info", str(tmp_path / "x.ebt"), "--html", str(tmp_path / "p"))
    assert done.exit_code == 0
    assert "&lt;b&gt;&amp;[red]" in (tmp_path / "p").read_text(encoding="utf-8")


# --- recordings made of recordings --------------------------------------------------------


def test_cut_keeps_a_part(traced: Layout, recorded: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.ebt"
    options = ("--from", "100", "--to", "600")
    assert invoke(traced, "trace", "cut", str(recorded), str(new), *options).exit_code == 0
    assert 500 <= read_info(traced, new).events < 800


def test_anonymise_leaves_the_names_out(traced: Layout, recorded: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.ebt"
    assert invoke(traced, "trace", "anonymise", str(recorded), str(new)).exit_code == 0
    before, after = read_info(traced, recorded), read_info(traced, new)
    assert (after.name, after.command, after.pid) == ("unnamed", "", "")
    assert (after.sizes, after.handed_over) == (before.sizes, before.handed_over)
    assert b"hands_over" not in new.read_bytes()


def test_scale_makes_copies(traced: Layout, recorded: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.ebt"
    done = invoke(traced, "trace", "scale", str(recorded), str(new), "--copies", "3")
    assert done.exit_code == 0, done.output
    before, after = read_info(traced, recorded), read_info(traced, new)
    assert (after.mallocs, after.threads) == (3 * before.mallocs, 3 * before.threads)


def test_files_that_are_no_recordings_are_one_line(
    traced: Layout, recorded: Path, tmp_path: Path
) -> None:
    early, cut, changed = (tmp_path / f"{name}.ebt" for name in ("early", "cut", "changed"))
    content = bytearray(recorded.read_bytes())
    early.write_bytes(content[:64])
    cut.write_bytes(content[:-1])
    # Near the end: how long the lines before the events are is a matter of the machine.
    content[-100] ^= 0xFF
    changed.write_bytes(content)
    for file, message in (
        (tmp_path / "nothing", "No such file"),
        (Path("/bin/sh"), "is no recording"),
        (tmp_path, "is no recording"),
        (early, "cut off in its first lines"),
        (cut, "damaged or cut off"),
        (changed, "damaged"),
    ):
        for verb in (["info"], ["anonymise", "new"], ["scale", "new", "--copies", "2"]):
            done = invoke(traced, "trace", verb[0], str(file), *verb[1:])
            assert done.exit_code == 1
            assert message in done.output
            assert done.output.startswith("Error: ")
            assert done.output.count("\n") == 1


def test_what_cannot_be_written_is_one_line(traced: Layout, recorded: Path) -> None:
    for arguments in (
        ("info", str(recorded), "--html", "/proc/nothing/page"),
        ("anonymise", str(recorded), "/proc/nothing/new"),
    ):
        done = invoke(traced, "trace", *arguments)
        assert done.exit_code == 1
        assert re.fullmatch(r"Error: cannot (write|create) /proc/nothing/.*\n", done.output)


def test_another_schema_is_an_error(
    traced: Layout, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "call_tool", lambda *_: json.dumps({"schema": 9}))
    with pytest.raises(LabError, match="prints schema 9, this lab reads 1"):
        read_info(traced, recorded)
