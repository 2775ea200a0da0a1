# SPDX-License-Identifier: MIT OR Apache-2.0
"""More labels than the board has rows: on one made of bytes, on the screen of `ebb top`, and on
Ebbtide."""

import io
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from test_stalls import NOTED, build, started
from test_status import BOARD, NOW_MS, Bytes, row
from textual.pilot import Pilot
from top_data import heap, label, screen
from top_screen import app_of, play, rows, shows, tell

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import find_root
from ebbtide_lab.inspect import labels, lifetimes
from ebbtide_lab.inspect.heap import Heap, Subject
from ebbtide_lab.inspect.image import Torn
from ebbtide_lab.inspect.labels import HEAD, MORE, ROWS, SHOWN, Labels, Rest, Table
from ebbtide_lab.inspect.lifetimes import Status
from ebbtide_lab.show.status import Look, human_bytes, print_status
from ebbtide_lab.show.top.app import Top
from ebbtide_lab.show.top.feed import News

A_PART = 3
BEHIND = BOARD + HEAD.size + ROWS * labels.ROW.size + MORE.size  # where the first part is


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "LEAST_PART", A_PART)


def board(*found: bytes, count: int | None = None) -> Bytes:
    parts, at = b"", BEHIND
    for first in range(ROWS, len(found), A_PART):
        some = b"".join(found[first : first + A_PART])
        at += 8 + len(some)
        parts += struct.pack("<Q", at) + some
    shown = b"".join(found[:ROWS]).ljust(ROWS * labels.ROW.size, b"\0")
    more = MORE.pack(len(found) if count is None else count, BEHIND)
    return Bytes(HEAD.pack(min(len(found), ROWS)) + shown + more + parts)


def read(memory: Bytes, most: int | None = None, a_part: int = A_PART) -> Labels:
    return Table(memory, BOARD, a_part, most).read(NOW_MS)


def many(count: int) -> list[bytes]:
    """The later one is the more it holds."""
    return [row(f"kind {at}", held=at, open=2, since=1) for at in range(count)]


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 67, 68, 400])
def test_all_labels_are_read(count: int) -> None:
    found = read(board(*many(count)))
    assert [each.label for each in found.found] == [f"kind {at}" for at in reversed(range(count))]
    assert found.rest == Rest()


def test_those_that_hold_most_are_kept_and_the_others_summed_up() -> None:
    found = read(board(*many(400)), 10)
    assert [each.held_bytes for each in found.found] == list(range(399, 389, -1))
    assert found.rest == Rest(390, 780, sum(range(390)))


def test_ages_are_those_that_the_process_keeps_up() -> None:
    ages = {each.label: each.oldest_ms for each in read(board(*many(70))).found}
    assert ages["kind 63"] == NOW_MS - 1
    assert ages["kind 64"] is None


def test_a_board_that_cannot_be_is_an_error() -> None:
    for memory, a_part in (
        (board(*many(64), count=63), A_PART),
        (board(*many(64), count=1 << 60), A_PART),
        (board(*many(64)), 0),
    ):
        with pytest.raises(LabError, match=r"counts \d+ labels"):
            read(memory, a_part=a_part)
    with pytest.raises(Torn):
        read(board(*many(64), count=70))


def test_a_status_tells_what_the_others_hold() -> None:
    text = io.StringIO()
    found = read(board(*many(66)), 64)
    status = Status(7, "server", "", "", 3 << 20, found.found, found.rest)
    print_status(Look(status, None, "it sleeps"), Console(width=160, file=text))
    assert "2 more labels, 4 open, hold 1 B." in text.getvalue()
    assert f"hold {human_bytes(sum(range(66)))} of address space" in text.getvalue()


# --- on the screen --------------------------------------------------------------------


def crowd(second: int = 0, first: int = 0) -> Heap:
    """Of 10,000 labels those that hold most."""
    held = [label(f"kind {first + at}", (900 - at) << 10) for at in range(SHOWN)]
    return replace(heap(second), labels=held, rest=Rest(9_936, 9_000, 612 << 20))


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_nothing_is_cut_without_a_word(size: tuple[int, int]) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("2")
        assert shows(app, "64 of 10,000 labels hold 54.3 MiB, the others 612 MiB")
        assert rows(app)[0].startswith("kind 0 ")
        await pilot.press("m")
        await tell(app, pilot, News(crowd(30)))
        line = next(each for each in screen(app) if "changes in 30.0 s" in each)
        assert "64 of 10,000 labels hold 54.3 MiB, the others 612 MiB" in line

    play(app_of(crowd()), steps, size)


def test_what_was_among_the_others_has_not_grown_from_nothing() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("2", "m")
        await tell(app, pilot, News(crowd(1, first=SHOWN - 1)))
        known, unknown = rows(app)[:2]
        assert "kind 63" in known
        assert "+63.0 KiB" in known
        assert "+" not in unknown
        assert unknown.split()[-1] == "-"

    play(app_of(crowd()), steps, (200, 60))
    everything = replace(crowd(), rest=Rest())

    async def grows(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("2", "m")
        await tell(app, pilot, News(replace(crowd(1, first=SHOWN - 1), rest=Rest())))
        assert "+899 KiB" in rows(app)[0], "it was not there at the mark"

    play(app_of(everything), grows, (200, 60))


# --- on Ebbtide -----------------------------------------------------------------------

OPENS = """
#include <ebbtide/region.h>
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    for (int i = 0; i < 1000; i++) {
        char name[32];
        snprintf(name, sizeof name, "kind %d", i);
        struct ebb_region *region =
            ebb_region_open(&(struct ebb_region_options){.label = name});
        for (int more = 0; more < 1 + (i == 900); more++)
            if (ebb_region_alloc(region, 100000) == NULL)
                return 1;
    }
    puts("ready");
    fflush(stdout);
    for (;; usleep(1000)) // answers at a slow call
        ebb_free(ebb_malloc(1 << 20));
}
"""


def test_ebbtide_itself_tells_of_all_its_labels(tmp_path: Path) -> None:
    root = find_root()
    library = root / "build" / "release" / "libebbtide.so"
    if not library.is_file() or NOTED not in library.read_bytes():
        pytest.skip("`make lib` has not built a library with regions")
    places = [f"-I{root / 'include'}", str(library), f"-Wl,-rpath,{library.parent}"]
    with started(build(OPENS, tmp_path / "opens", *places)) as pid:
        everything = lifetimes.examine(pid)
        subject = Subject(pid, SHOWN)
        first, again = subject.look(), subject.look()
        subject.close()
    assert len(everything.labels) == 1000
    assert {each.open for each in everything.labels} == {1}
    assert first.labels[0].label == "kind 900"
    assert (first.rest.labels, first.rest.open) == (936, 936)
    held = sum(each.held_bytes for each in first.labels) + first.rest.held_bytes
    assert held == sum(each.held_bytes for each in everything.labels)
    assert (again.labels, again.rest) == (first.labels, first.rest)
