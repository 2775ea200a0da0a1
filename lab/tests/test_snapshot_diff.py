# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb snapshot and ebb diff: on made-up heaps, and on Ebbtide."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from heap_data import GROWS, grow, heap, label, totals
from rich.console import Console
from test_profile_live import under_ebbtide
from test_stalls import WAITS, build, started
from verbs import fault_of

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.files import replace_text, write_new
from ebbtide_lab.cli.main import main
from ebbtide_lab.inspect import heap as heaps
from ebbtide_lab.inspect import snapshots
from ebbtide_lab.inspect.accounts import accounts_of
from ebbtide_lab.inspect.growth import growth
from ebbtide_lab.inspect.heap import Heap, SizeClass
from ebbtide_lab.show.growth import notes, print_growth, sentence

SMALL = SizeClass(64, 1, 10, 20, 30)
LARGE = SizeClass(49216, 15, 300, 2, 13)


def ebb(*arguments: object) -> Result:
    environment = {"NO_COLOR": "1", "COLUMNS": "80"}
    return CliRunner(env=environment).invoke(main, [*map(str, arguments)])


def fault(*arguments: object) -> str:
    return fault_of(ebb(*arguments))


def kept(folder: Path, name: str, found: Heap) -> Path:
    path = folder / name
    path.write_text(snapshots.to_text(found))
    return path


def shown(before: Heap, after: Heap) -> str:
    text = io.StringIO()
    print_growth(growth(before, after), Console(width=80, file=text))
    return text.getvalue()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    whole = heap(
        SMALL,
        LARGE,
        labels=[label('a"\\b\u20ac', 9, drain_share=0.5, live_bytes=3), label("c", 1, True)],
        totals=totals(purged_bytes=2**63),
    )
    for found in (whole, heap()):
        assert snapshots.read(kept(tmp_path, "one", found)) == found


def test_names_in_a_file_do_not_steer_the_terminal(tmp_path: Path) -> None:
    found = replace(heap(), name="a\x1b[31mb", labels=[label("c\x07d", 64)])
    again = snapshots.read(kept(tmp_path, "one", found))
    assert (again.name, again.labels[0].label) == ("a\ufffd[31mb", "c\ufffdd")


def test_what_is_no_snapshot_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "one"
    good = json.loads(snapshots.to_text(heap(SMALL)))
    assert f"there is no file {path}" in fault("diff", path, path)
    assert "Is a directory" in fault("diff", tmp_path, path)
    for content in (b"", b"\xff\xfe", b"{", b"[" * 100_000):
        path.write_bytes(content)
        assert "no snapshot of ebb: it is not JSON" in fault("diff", path, path)
    for other in ([], 7, {}, {snapshots.MARK: "1"}):
        path.write_text(json.dumps(other))
        assert "no snapshot of ebb: it has no" in fault("diff", path, path)
    for schema, what in ((1, "take the snapshot anew"), (3, "update it")):
        path.write_text(json.dumps(good | {snapshots.MARK: schema}))
        told = f"has schema {schema}, and this ebb reads 2: {what}"
        assert told in fault("diff", path, path)
    for change in (
        {"pid": "7"},
        {"pid": True},
        {"pid": -1},
        {"pid": 10**400},
        {"taken": float("nan")},
        {"name": None},
        {"name": []},
        {"totals": 3},
        {"totals": {}},
        {"classes": [3]},
        {"classes": 3},
        {"labels": [{}]},
        {"more": 1},
    ):
        path.write_text(json.dumps(good | change))
        assert "is a damaged snapshot: " in fault("diff", path, path), change
    del good["classes"]
    path.write_text(json.dumps(good))
    assert "is a damaged snapshot: it has no classes" in fault("diff", path, path)


def test_no_byte_is_in_two_accounts() -> None:
    """The library counts a freed large object that a thread keeps as cached and as a span."""
    more = totals(cached_bytes=1 << 20, span_bytes=3 << 20, huge_bytes=5)
    more = replace(more, dirty_bytes=1000, pinned_bytes=300)
    found = accounts_of(heap(SMALL, totals=more))
    assert (found.cached, found.spare, found.spans) == (20 * 64, 1 << 20, 2 << 20)
    assert (found.dirty, found.pinned, found.clean) == (1000, 300, 30 * 64 - 1300)
    assert found.in_use == 10 * 64 + (2 << 20) + 5


def test_the_largest_change_is_named_first() -> None:
    before = heap(SMALL)
    after = heap(replace(SMALL, live_blocks=11), LARGE, taken=1010.0)
    assert sentence(growth(before, after)) == (
        "In use grew by 14.1 MiB in 10.0 s; the largest change is 300 more blocks of 49,216 bytes"
        " (14.1 MiB)."
    )
    text = shown(before, after)
    rows = [words[0] for line in text.splitlines() if (words := line.split())]
    assert rows.index("49,216") < rows.index("64")
    assert "two processes" not in text
    fewer = sentence(growth(after, replace(before, taken=1020.0)))
    assert fewer.startswith("In use shrank by 14.1 MiB in 10.0 s; ")
    assert "300 fewer blocks" in fewer


def test_what_did_not_change_is_left_out() -> None:
    before, after = heap(SMALL, LARGE), heap(SMALL, LARGE, taken=1001.0)
    assert shown(before, after) == "In use did not change in 1.00 s.\n"
    found = growth(before, heap(SMALL, replace(LARGE, live_blocks=301), taken=1001.0))
    assert [each.block_bytes for each in found.classes] == [49216]
    assert "1 more block of 49,216 bytes" in sentence(found)


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ({}, {"totals": totals(huge_bytes=64 << 20)}, "64.0 MiB more in huge objects in use"),
        (
            {"totals": totals(dirty_span_bytes=3 << 20)},
            {},
            "3.00 MiB less in free spans, not yet returned",
        ),
        (
            {},
            {"labels": [label("jobs", 2 << 20)], "totals": totals(span_bytes=3 << 20)},
            "2.00 MiB more that regions of label jobs hold",
        ),
        (
            {"labels": [label("x", 9 << 20, True)]},
            {},
            "9.00 MiB less that the domain x holds",
        ),
        (
            {"labels": [label("x", 1 << 20)], "totals": totals(span_bytes=1 << 20)},
            {"labels": [label("x", 2 << 20)], "totals": totals(span_bytes=9 << 20)},
            "7.00 MiB more in large objects and regions in use",
        ),
    ],
)
def test_causes_of_each_kind(
    before: dict[str, object], after: dict[str, object], cause: str
) -> None:
    assert f"the largest change is {cause}." in sentence(growth(heap(**before), heap(**after)))


def test_what_turned_free_is_told_as_no_longer_used() -> None:
    before = heap(replace(LARGE, free_blocks=0))
    after = heap(replace(LARGE, live_blocks=0, free_blocks=300), totals=totals(dirty_bytes=1 << 30))
    assert "300 fewer blocks" in sentence(growth(before, after))


def test_another_process_is_said() -> None:
    one = heap(SMALL)
    for change, note in (
        ({"pid": 8, "name": "other"}, "These are two processes: 7 (server) and 8 (other)."),
        ({"start_ticks": 100}, "Process 7 was restarted in between: it is another one."),
        ({"minor_faults": 9}, "Process 7 was restarted in between: it is another one."),
        ({"start_ticks": 0, "major_faults": 0}, "restarted in between"),
        ({"taken": 999.0, "minor_faults": 9}, "The second was taken before the first"),
    ):
        (said,) = notes(growth(one, replace(one, **change)))
        assert note in said
        assert note.split(":")[0] in " ".join(shown(one, replace(one, **change)).split())
    assert notes(growth(one, replace(one, start_ticks=0))) == []


def test_labels_that_were_cut_to_one_text_are_one() -> None:
    before = heap(labels=[label("same", 10), label("same", 20), label("same", 5, True)])
    after = heap(
        labels=[label("same", 10), label("same", 25, live_bytes=1), label("same", 5, True)]
    )
    (found,) = growth(before, after).labels
    assert (found.held_before, found.held_after, found.live_bytes) == (30, 35, None)


def test_nothing_is_cut_at_80_columns() -> None:
    name = "a-label-of-thirty-one-characters"[:31]
    huge = 987 << 30
    before = heap(SizeClass(32768, 1, 10**9, 0, 0), labels=[label(name, huge, True, live_bytes=1)])
    after = heap(
        SizeClass(32768, 10**6, 2 * 10**9, 10**9, 0),
        labels=[label(name, 3 * huge, True, live_bytes=huge, open=10**6, demoted=10**6)],
        totals=totals(span_bytes=huge, cached_bytes=huge >> 1, dirty_span_bytes=huge),
        resident_bytes=huge,
    )
    text = shown(before, after)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    # A long label goes on in the next line of its cell.
    for each in ("free large objects that threads keep", "2,000,000,000", name[:20], name[-5:]):
        assert each in text


# --- files --------------------------------------------------------------------------


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    link.symlink_to(path)
    replace_text(link, "new")
    assert (path.read_text(), link.is_symlink()) == ("new", True)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(LabError, match=r"cannot write .*file: No space left on device"):
        replace_text(path, "newer")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link"]
    assert path.read_text() == "new"


@pytest.mark.parametrize("folder", ["/", ".", ".."])
def test_a_folder_is_no_file(folder: str) -> None:
    done = CliRunner().invoke(main, ["snapshot", str(os.getpid()), "-o", folder])
    assert (done.exit_code, "is a directory" in done.output) == (2, True)


def test_what_is_no_file_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    replace_text(pipe, "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert pipe.is_fifo()


# --- real processes -----------------------------------------------------------------


def until_grown(pid: int) -> None:
    grow(pid)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if any(each.live_blocks >= 300 for each in heaps.examine(pid).classes):
            return
    pytest.fail("it does not grow")


def test_a_snapshot_of_a_process_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    examine = heaps.examine

    def remember(pid: int) -> Heap:
        looked.append(examine(pid))
        return looked[-1]

    monkeypatch.setattr(heaps, "examine", remember)
    monkeypatch.chdir(tmp_path)
    with under_ebbtide(GROWS, tmp_path, monkeypatch) as pid:
        named = ebb("snapshot", pid, "-o", tmp_path / "one.json")
        unnamed = ebb("snapshot", pid)
        printed = ebb("snapshot", pid, "-o", "-")
        folder = ebb("snapshot", pid, "-o", tmp_path)
        assert "cannot write" in fault("snapshot", pid, "-o", tmp_path / "none" / "x")
    assert folder.exit_code == 2, folder.output
    assert "is a directory" in folder.output
    assert named.output == f"Wrote {tmp_path / 'one.json'}.\n"
    assert snapshots.read(tmp_path / "one.json") == looked[0]
    assert looked[0].pid == pid
    assert looked[0].start_ticks > 0
    found = re.fullmatch(rf"Wrote ({pid}-\d{{8}}-\d{{6}}\.ebb\.json)\.\n", unnamed.output)
    assert found
    assert snapshots.read(Path(found[1])) == looked[1]
    (tmp_path / "printed").write_text(printed.output)
    assert snapshots.read(tmp_path / "printed") == looked[2]


def test_two_snapshots_of_one_second_have_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heaps, "examine", lambda pid: heap(SizeClass(64, 1, 1, 0, 0), pid=pid))
    monkeypatch.chdir(tmp_path)
    told = [ebb("snapshot", 1).output for _ in range(3)]
    name = re.sub(r"\.ebb\.json\.\n", "", told[0].removeprefix("Wrote "))
    assert told[1:] == [f"Wrote {name}-{number}.ebb.json.\n" for number in (1, 2)]
    assert len(list(tmp_path.iterdir())) == 3
    assert snapshots.read(Path(f"{name}-2.ebb.json")).pid == 1
    with pytest.raises(LabError, match="cannot write"):
        write_new([tmp_path / "nowhere" / "x"], "")
    with pytest.raises(UnicodeEncodeError):
        write_new([tmp_path / "new"], "\udcff")
    assert not (tmp_path / "new").exists()


def test_what_is_neither_a_file_nor_a_pid_is_told(tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    for given in ("nginx", beside, 10**19):
        assert f"there is no file {given}, and that is no PID" in fault("diff", given)
        assert f"there is no file {given}, and that is no PID" in fault("diff", given, os.getpid())


def test_what_grew_in_a_process_is_in_the_first_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with under_ebbtide(GROWS, tmp_path, monkeypatch) as pid:
        assert ebb("snapshot", pid, "-o", first).exit_code == 0
        until_grown(pid)
        assert ebb("snapshot", pid, "-o", second).exit_code == 0
        now = ebb("diff", first, pid)
        again = ebb("diff", pid, "--seconds", 0, "--json")
    done = ebb("diff", first, second)
    assert done.exit_code == 0, done.output
    named = (
        r"In use grew by 14\.\d MiB in [^;]*; the largest change is 300 more blocks of 49,216 bytes"
    )
    for output in (done.output, now.output):
        assert re.match(named, " ".join(output.split()))
    facts = json.loads(ebb("diff", first, second, "--json").stdout)
    assert facts["notes"] == []
    assert facts["classes"][0]["block_bytes"] == 49216
    assert facts["classes"][0]["blocks_after"] - facts["classes"][0]["blocks_before"] == 300
    assert facts["in_use_bytes"] >= 300 * 48000
    assert json.loads(again.stdout)["before"]["pid"] == pid


def test_ctrl_c_ends_the_wait_and_shows_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from ebbtide_lab.cli.main import main; from ebbtide_lab.inspect import lifetimes\n"
        "def wait(pid, seconds, real=lifetimes.wait_beside):\n"
        "    print('waits', flush=True)\n"
        "    real(pid, seconds)\n"
        "lifetimes.wait_beside = wait; main()"
    )
    with under_ebbtide(GROWS, tmp_path, monkeypatch) as pid:
        command = [sys.executable, "-c", code, "diff", str(pid), "--seconds", "3600"]
        tool = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert tool.stdout is not None
        assert tool.stdout.readline() == "waits\n"
        until_grown(pid)
        tool.send_signal(signal.SIGINT)
        output, _ = tool.communicate(timeout=60)
    assert tool.returncode == 0
    assert "300 more blocks of 49,216 bytes" in " ".join(output.split())


def test_what_cannot_be_looked_at_is_one_line(tmp_path: Path) -> None:
    for verb in ("snapshot", "diff"):
        assert "no process has the number 4194400" in fault(verb, 4194400)
        with started(build(WAITS, tmp_path / verb)) as pid:
            assert f"process {pid} has no Ebbtide in it" in fault(verb, pid)
    one = kept(tmp_path, "one", heap())
    assert ebb("diff", one).exit_code == 2
    assert ebb("diff", one, one, "--seconds", 1).exit_code == 2
