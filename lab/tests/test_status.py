# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb status: on a board made of bytes, on a made-up library, and on Ebbtide."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import await_ready
from made_up_board import board
from rich.console import Console
from test_stalls import NOTED, WAITS, build, started

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import find_root
from ebbtide_lab.cli.main import main
from ebbtide_lab.inspect import lifetimes
from ebbtide_lab.inspect.image import Torn
from ebbtide_lab.inspect.labels import HEAD, ROW, Label, Table
from ebbtide_lab.inspect.lifetimes import Status
from ebbtide_lab.show.status import Look, human_age, human_bytes, print_status

BOARD = 0x1000
NOW_MS = 500_000
NUMBERS = ("is_domain", "open", "opened", "closed", "drained", "released", "held", "peak", "live")
NUMBERS += ("slabs", "demoted", "late", "refused", "since", "demoted_bytes")


class Bytes:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, address: int, size: int) -> bytes:
        found = self.content[address - BOARD : address - BOARD + size]
        if len(found) != size:
            raise Torn
        return found


def row(label: str = "requests", **numbers: int) -> bytes:
    assert set(numbers) <= set(NUMBERS)
    return ROW.pack(label.encode(), *(numbers.get(name, 0) for name in NUMBERS))


def read(*rows: bytes, count: int | None = None) -> list[Label]:
    head = HEAD.pack(len(rows) if count is None else count)
    return Table(Bytes(head + b"".join(rows)), BOARD, 1).read(NOW_MS).found


def shown(*rows: bytes) -> str:
    text = io.StringIO()
    found = read(*rows)
    status = Status(7, "server", "/lib/libebbtide.so.0.1.0", "0.1.0", 3 << 20, found)
    print_status(Look(status, None, "it sleeps"), Console(width=160, file=text))
    return text.getvalue()


def test_who_holds_most_comes_first_and_every_number_is_in_its_place() -> None:
    numbers = {name: at + 2 for at, name in enumerate(NUMBERS)}
    small, large = row("small", held=5), row("large", **(numbers | {"held": 9, "since": 499_000}))
    first, second = read(small, large)
    assert (first.label, second.label) == ("large", "small")
    assert (first.is_domain, first.open, first.opened, first.closed) == (True, 3, 4, 5)
    assert (first.drained, first.released, first.held_bytes, first.peak_bytes) == (6, 7, 9, 9)
    assert (first.live_bytes, first.slabs, first.demoted) == (10, 11, 12)
    assert (first.late, first.refused, first.oldest_ms) == (13, 14, 1_000)


@pytest.mark.parametrize(("closed", "drained", "share"), [(0, 0, None), (4, 3, 0.75), (4, 5, 1.0)])
def test_the_drain_share_is_of_the_closes(closed: int, drained: int, share: float | None) -> None:
    (found,) = read(row(closed=closed, drained=drained))
    assert found.drain_share == share


@pytest.mark.parametrize(("since", "age"), [(0, None), (499_999, 1), (500_001, 0)])
def test_the_oldest_has_an_age_if_there_is_one(since: int, age: int | None) -> None:
    (found,) = read(row(since=since))
    assert found.oldest_ms == age


@pytest.mark.parametrize(
    ("numbers", "live"),
    [
        ({"held": 9}, None),
        ({"held": 9, "live": 4}, 4),
        ({}, 0),
        ({"held": 9, "is_domain": 1}, 0),
    ],
)
def test_regions_that_nobody_measured_have_no_live_bytes(
    numbers: dict[str, int], live: int | None
) -> None:
    (found,) = read(row(**numbers))
    assert found.live_bytes == live


def test_labels_of_any_bytes_are_shown() -> None:
    longest, broken = read(row("x" * 31, held=2), ROW.pack(b"\xff\xfe[red]", *([0] * 15)))
    assert longest.label == "x" * 31
    assert "[red]" in shown(ROW.pack(b"\xff\xfe[red]", *([0] * 15)))
    assert broken.label.endswith("[red]")


def test_a_board_of_another_kind_is_an_error() -> None:
    with pytest.raises(LabError, match="counts 65 rows"):
        read(count=65)
    with pytest.raises(Torn):
        read(row(), count=2)


def test_the_table_tells_share_sizes_and_ages() -> None:
    text = shown(
        row("requests", is_domain=1, closed=8, drained=7, held=3 << 20, since=380_000),
        row("parse", released=12, held=1536),
    )
    assert "Process 7 (server): Ebbtide 0.1.0 from /lib/libebbtide.so.0.1.0" in text
    assert "3.00 MiB resident; regions and domains hold 3.00 MiB" in text
    rows = {words[0]: words for line in text.splitlines() if (words := line.split())}
    expected = ["domain", "0", "0", "8", "87.5%", "-", "3.00", "MiB", "3.00", "MiB"]
    assert rows["requests"][1:11] == expected
    assert rows["requests"][-2:] == ["2.00", "min"]
    assert rows["parse"][4:9] == ["0", "-", "12", "1.50", "KiB"]
    assert "hard limit" not in text


def test_what_went_wrong_and_what_is_missing_is_said() -> None:
    text = shown(
        *(row(f"label{at}", late=3 * (at == 5), refused=2 * (at == 5)) for at in range(63))
    )
    assert "label5: 3 allocations after a close, 2 refused by a hard limit." in text
    assert "No region or domain has been used." in shown()


def test_sizes_and_ages_are_readable() -> None:
    assert [human_bytes(each) for each in (0, 1023, 1024, 10_000, 1 << 31)] == [
        *("0 B", "1023 B", "1.00 KiB", "9.77 KiB", "2.00 GiB")
    ]
    assert [human_age(each) for each in (None, 0, 999, 1000, 90_000, 7_200_000)] == [
        *("-", "0 ms", "999 ms", "1.00 s", "1.50 min", "2.00 h")
    ]


# --- real processes -----------------------------------------------------------------

MADE_UP = """
#include <stdint.h>
static struct {
    uint64_t rows;
    struct { char label[32]; uint64_t numbers[15]; } row[64];
} labels = {2, {
    {"requests", {1, 2, 1000, 10, 9, 0, 131072, 262144, 4096, 2, 0, 0, 0, 0}},
    {"parse", {0, 1, 500, 0, 0, 499, 65536, 65536, 1000, 1, 0, 4, 0, 0}},
}};
"""
MADE_UP += board(labels="&labels", labels_a_part="400")
OLDER = 'const char *ebb_version(void);\nconst char *ebb_version(void) { return "0.0.9"; }\n'
UNDUMPABLE = """
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(void)
{
    if (prctl(PR_SET_DUMPABLE, 0) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    return (int)pause();
}
"""
USES = """
#include <ebbtide/region.h>
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    struct ebb_region_options options = {.label = "kept"};
    struct ebb_region *kept = ebb_region_open(&options);
    if (ebb_region_alloc(kept, 100000) == NULL)
        return 1;
    options.label = "gone";
    for (int i = 0; i < 5; i++) {
        struct ebb_region *gone = ebb_region_open(&options);
        if (ebb_region_alloc(gone, 1000) == NULL)
            return 1;
        ebb_region_release(gone);
    }
    puts("ready");
    fflush(stdout);
    return (int)pause();
}
"""


def status(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(main, ["status", *arguments])


def flat(result: Result) -> str:
    return " ".join(result.output.split())


def made_up(folder: Path, source: str = MADE_UP, library: str = "libebbtide.so.0.9.7") -> Path:
    shared = build(source, folder / library, "-shared", "-fPIC", "-fvisibility=default")
    return build(WAITS, folder / "program", "-Wl,--no-as-needed", str(shared))


def test_the_table_of_a_running_process(tmp_path: Path) -> None:
    with started(made_up(tmp_path)) as pid:
        done = status(str(pid))
    assert done.exit_code == 0, done.output
    assert f"Process {pid} (program): Ebbtide 0.9.7 from" in done.output
    assert "90.0%" in done.output
    assert "parse: 4 allocations after a close" in done.output


def test_json_has_every_number_unrounded(tmp_path: Path) -> None:
    with started(made_up(tmp_path)) as pid:
        done = status(str(pid), "--json")
    facts = json.loads(done.output)
    assert (facts["pid"], facts["name"], facts["version"]) == (pid, "program", "0.9.7")
    assert facts["library"] == str(tmp_path / "libebbtide.so.0.9.7")
    assert facts["resident_bytes"] > 0
    first, second = facts["labels"]
    assert (first["label"], first["held_bytes"], first["drain_share"]) == ("requests", 131072, 0.9)
    assert (second["label"], second["released"], second["drain_share"]) == ("parse", 499, None)


def test_names_do_not_rule_the_terminal(tmp_path: Path) -> None:
    source = MADE_UP.replace('"requests"', '"\\033]0;x\\007\\033[2J\\n[red]"')
    with started(made_up(tmp_path, source)) as pid:
        done = status(str(pid))
        facts = json.loads(status(str(pid), "--json").output)
    assert done.exit_code == 0
    assert "\033" not in done.output
    assert facts["labels"][0]["label"] == "\ufffd]0;x\ufffd\ufffd[2J\ufffd[red]"


def test_watch_looks_again_until_the_process_ends(tmp_path: Path) -> None:
    code = "from ebbtide_lab.cli.main import main; main()"
    with started(made_up(tmp_path)) as pid:
        command = [sys.executable, "-c", code, "status", str(pid), "--json", "--watch", "0.1"]
        watcher = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert watcher.stdout is not None
        looks = [json.loads(watcher.stdout.readline()) for _ in range(3)]
    assert [each["pid"] for each in looks] == [pid] * 3
    _, errors = watcher.communicate(timeout=30)
    assert (watcher.returncode, errors) == (0, "")


def test_a_library_without_the_board_is_told(tmp_path: Path) -> None:
    with started(made_up(tmp_path, OLDER, "libebbtide.so.0.0.9")) as pid:
        done = status(str(pid))
    assert done.exit_code == 1
    assert f"process {pid} runs an Ebbtide of another version from" in flat(done)


def test_a_program_with_its_own_copy_tells_its_version(tmp_path: Path) -> None:
    with started(build(MADE_UP + WAITS, tmp_path / "static")) as pid:
        done = status(str(pid))
    assert done.exit_code == 0
    assert f"Ebbtide 0.9.7 from {tmp_path / 'static'}" in flat(done)


def test_what_has_no_ebbtide_or_is_no_process_is_a_clear_error(tmp_path: Path) -> None:
    with started(build(WAITS, tmp_path / "plain")) as pid:
        done = status(str(pid))
    assert done.exit_code == 1
    assert f"process {pid} has no Ebbtide in it" in done.output
    assert "no process has the number" in status(str(2**22 + 1)).output
    for wrong in (["0"], ["self"], [str(os.getpid()), "--watch", "0"]):
        assert status(*wrong).exit_code == 2


def test_a_library_that_was_replaced_is_read_all_the_same(tmp_path: Path) -> None:
    with started(made_up(tmp_path)) as pid:
        (tmp_path / "libebbtide.so.0.9.7").unlink()
        done = status(str(pid))
    assert done.exit_code == 0
    assert "parse: 4 allocations after a close" in done.output


def refuse(*_: object, **__: object) -> str:
    raise PermissionError(13, "no")


def test_a_process_of_another_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", refuse)
    done = status("1")
    assert done.exit_code == 1
    assert "not allowed to read the memory of process 1: be its user or root" in flat(done)


NOBODY = 65534


def test_a_process_that_may_not_be_dumped_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, and so is made to see what another user would."""
    program = build(UNDUMPABLE, tmp_path / "undumpable")
    is_root = os.geteuid() == 0
    user = {"user": NOBODY} if is_root else {}
    at = os.open(program, os.O_PATH)  # whose folder another user may not enter
    command = [f"/proc/self/fd/{at}"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[at], **user)
    os.close(at)
    try:
        await_ready(child)
        if is_root:
            monkeypatch.setattr(os, "getuid", lambda: NOBODY)
            monkeypatch.setattr(os, "open", refuse)
        done = status(str(child.pid))
    finally:
        monkeypatch.undo()
        child.kill()
        child.communicate()
    assert done.exit_code == 1
    assert "it is set-user-ID or has made itself undumpable" in flat(done)


@pytest.mark.parametrize("first", ["a.so", "b.so"])
def test_of_two_copies_the_one_that_serves_malloc_is_shown(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = find_root() / "build" / "release" / "libebbtide.so"
    if not library.is_file() or NOTED not in library.read_bytes():
        pytest.skip("`make lib` has not built a library with a board")
    copies = [tmp_path / "a.so", tmp_path / "b.so"]
    for each in copies:
        shutil.copy(library, each)
    serves, other = sorted(copies, key=lambda each: each.name != first)
    program = build(WAITS, tmp_path / "program")
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", f"{serves}:{other}")
        running = started(program)
        pid = running.__enter__()
    try:
        facts = json.loads(status(str(pid), "--json").output)
        told = flat(status(str(pid)))
    finally:
        running.__exit__(None, None, None)
    assert (facts["library"], facts["others"]) == (str(serves), [str(other)])
    assert f"Ebbtide {facts['version']} from {serves}" in told
    assert f"another copy of Ebbtide, which does not serve malloc and is not shown: {other}" in told


def test_ebbtide_itself_tells_who_holds_memory(tmp_path: Path) -> None:
    root = find_root()
    library = root / "build" / "release" / "libebbtide.so"
    if not library.is_file() or NOTED not in library.read_bytes():
        pytest.skip("`make lib` has not built a library with regions")
    places = [f"-I{root / 'include'}", str(library), f"-Wl,-rpath,{library.parent}"]
    with started(build(USES, tmp_path / "uses", *places)) as pid:
        found = lifetimes.examine(pid)
    labels = {each.label: each for each in found.labels}
    assert found.version == "0.1.0"
    assert labels["kept"].held_bytes >= 100_000
    assert (labels["kept"].open, labels["kept"].released) == (1, 0)
    assert (labels["gone"].opened, labels["gone"].released, labels["gone"].open) == (5, 5, 0)
