# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb top: its screen on made-up heaps, at two sizes; its keys; how it asks."""

import os
import re
import threading
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from top_data import (
    NOBODY,
    STACKS,
    Sampled,
    Source,
    any_heap,
    heap,
    label,
    screen,
    unsampled,
)
from top_screen import app_of, play, rows, shows, tell, until

from ebbtide_lab.inspect.heap import Heap
from ebbtide_lab.inspect.stalls import Stalls
from ebbtide_lab.show.status import human_bytes, share
from ebbtide_lab.show.top import sheets
from ebbtide_lab.show.top.app import TABS, Top
from ebbtide_lab.show.top.feed import Feed, News
from ebbtide_lab.show.top.grid import Grid
from ebbtide_lab.show.top.history import KEPT_S, History
from ebbtide_lab.show.waterfall import accounts

SIZES = [(80, 24), (200, 60)]
FOOTER = ("q Quit", "space Freeze", "s Sort", "r Reverse", "/ Filter", "m Mark", "d Diff")
FOOTER += ("t Trim", "? Help")


# --- the screen -----------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_all_that_it_tells_is_on_the_screen(size: tuple[int, int]) -> None:
    first, later = heap(0), heap(2)

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await tell(app, pilot, News(later))
        text = "\n".join(screen(app))
        assert f"server {NOBODY}   Ebbtide 0.1.0   {human_bytes(later.resident_bytes)}" in text
        assert "12 threads" in text
        assert "130 faults/s   36.0 MiB returned to the OS so far" in text
        for each in accounts(later):
            assert re.search(rf"{each.name} +{human_bytes(each.bytes)} ", text)
        assert all(each in screen(app)[-1] for each in FOOTER)
        assert all(each in text for each in TABS.values())

    play(app_of(first), steps, size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("key", ["1", "2", "3", "4"])
def test_no_number_is_cut(size: tuple[int, int], key: str) -> None:
    """Whatever they are; a column that has no room is not there at all."""

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press(key)
        for seed in range(6):
            before, now = any_heap(seed), any_heap(seed + 100)
            await tell(app, pilot, News(before))
            await pilot.press("m")
            await tell(app, pilot, News(now))
            grid, sheet = app.query_one(Grid), app._sheet()
            lines = screen(app)
            assert max(map(len, lines)) <= size[0]
            found = sheets.arranged(sheet, app._sort_of(sheet), False, "")
            for line, cells in zip(rows(app, lines), found, strict=False):
                shown = [each for each in grid.shown_columns() if not sheet.columns[each].names]
                numbers = [cells[at].text for at in shown]
                assert re.fullmatch(".*" + ".* ".join(map(re.escape, numbers)) + ".*", line)
                assert "…" not in line

    play(app_of(heap()), steps, size)


def test_the_most_important_columns_stay() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("m")
        headings = next(line for line in screen(app) if "▼" in line)
        assert all(each in headings for each in ("block size", "live", "cached", "free", "idle"))
        assert "change" in headings
        await pilot.press("2")
        headings = next(line for line in screen(app) if "▼" in line)
        assert all(each in headings for each in ("label", "held", "live", "oldest", "change"))

    play(app_of(heap()), steps)


def test_labels_threads_stalls_and_stacks_have_their_tables() -> None:
    sampled = Sampled()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("2")
        assert [line.split()[0] for line in rows(app)] == ["requests", "session", "parser"]
        await pilot.press("3")
        await until(pilot, lambda: shows(app, "worker-1"))
        cells = "4712 worker-1 300 KiB 0 B 8.00 MiB -"
        assert rows(app)[0].split() == cells.split()
        assert shows(app, "3 threads keep 504 KiB free")
        await pilot.press("4")
        await until(pilot, lambda: shows(app, "worker-3"))
        assert rows(app)[0].split() == ["4713", "worker-3", "1", "4", "1.02", "min"]
        assert shows(app, "12 threads take part in reclamation, 2 inside a pin; 3.00 MiB wait")
        await pilot.press("5")
        await until(pilot, lambda: shows(app, STACKS[0].calls))
        assert rows(app)[0].startswith("9.00 MiB   81.8%  read_body < serve")
        assert shows(app, "sampled: some 2 ns a malloc, and off again when you leave")
        assert not sampled.has_ended

    play(Top(heap(), Source([heap()]), lambda: sampled, 0.2), steps)
    assert sampled.has_ended


@pytest.mark.parametrize("width", range(40, 121, 4))
def test_names_are_cut_for_numbers_and_these_are_not(width: int) -> None:
    name = "a-label-of-thirty-one-letters-{}"

    def grown(held: int) -> Heap:
        return replace(heap(), labels=[label(name.format(at), held) for at in range(12)])

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("2", "m")
        await tell(app, pilot, News(grown(3 << 21)))
        found = [line for line in rows(app) if line.startswith("a-label")]
        assert found
        for line in found:
            assert re.search("( MiB| min)$", line)

    play(app_of(grown(3 << 19)), steps, (width, 24))


def test_what_a_thread_has_taken_since_the_mark() -> None:
    source = Source([heap()])

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("3")
        await until(pilot, lambda: source.looks == 2)  # the tab asks for them at once
        await tell(app, pilot, News(heap(1)))
        await pilot.press("m")
        await tell(app, pilot, News(heap(3)))
        row = next(line for line in rows(app) if "worker-1" in line)
        assert " ".join(row.split()) == "4712 worker-1 0 B 0 B +2.00 MiB +2.00 MiB"

    play(app_of(heap(), source=source), steps)


def test_a_profile_that_cannot_be_had_is_told_of() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("5")
        await until(pilot, lambda: shows(app, "it has no profile"))

    play(Top(heap(), Source([heap()]), unsampled, 0.2), steps)


# --- keys -----------------------------------------------------------------------------


def test_what_is_frozen_stays_and_goes_on() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("space")
        frozen = screen(app)
        assert shows(app, "Frozen. The space bar goes on.")
        await tell(app, pilot, News(heap(50)))
        assert screen(app) == frozen
        await pilot.press("s")
        assert screen(app) != frozen, "it can be sorted meanwhile"
        await pilot.press("space")
        assert shows(app, human_bytes(heap(50).resident_bytes))
        assert not shows(app, "Frozen")

    play(app_of(heap()), steps)


def test_the_table_is_sorted_by_one_column_after_the_other() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        seen = []
        for _ in range(len(app.query_one(Grid).shown_columns())):
            headings = next(line for line in screen(app) if "▼" in line)
            seen.append(re.findall(r"(\S+)▼", headings)[0])
            await pilot.press("s")
        assert seen[:4] == ["live", "cached", "free", "idle"]
        assert len(set(seen)) == len(seen)
        largest_first = rows(app)
        await pilot.press("r")
        assert any("▲" in line for line in screen(app))
        assert rows(app)[0] != largest_first[0]

    play(app_of(heap()), steps)


def test_numbers_begin_with_the_largest_and_names_with_the_first() -> None:
    sheet = sheets.lifetimes(heap(), None, False)
    held = [row[6].value for row in sheets.arranged(sheet, 6, False, "")]
    assert held == sorted(held, reverse=True)
    names = [row[0].text for row in sheets.arranged(sheet, 0, False, "")]
    assert names == sorted(names)
    assert [row[0].text for row in sheets.arranged(sheet, 0, True, "")] == names[::-1]


def test_only_rows_with_a_text_are_shown() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("2", "slash", *"Q")
        await pilot.press("enter")
        assert [line.split()[0] for line in rows(app)] == ["requests"]
        assert shows(app, 'only "Q"')
        await pilot.press("1")
        assert rows(app) == []
        await pilot.press("slash", "backspace", *"4096", "enter")
        assert [line[:8] for line in rows(app)] == ["4.00 KiB"]
        await pilot.press("slash", "escape")
        assert len(rows(app)) > 5

    play(app_of(heap()), steps)


def test_a_mark_shows_what_has_changed_since() -> None:
    before, now = heap(0), heap(30)
    grew = 64 * (now.classes[3].live_blocks - before.classes[3].live_blocks)

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("m")
        await tell(app, pilot, News(now))
        assert rows(app)[0].startswith("64 B")
        assert f"+{human_bytes(grew)}" in rows(app)[0]
        assert "+27,000" in rows(app)[0]
        assert shows(app, "changes in 30.0 s")
        assert shows(app, f"+{human_bytes(now.resident_bytes - before.resident_bytes)}")
        await pilot.press("d")
        assert shows(app, "marked 30.0 s ago")
        assert human_bytes(now.classes[3].live_bytes) in "\n".join(rows(app))
        assert f"+{human_bytes(grew)}" in "\n".join(rows(app)), "in the column of changes"
        await pilot.press("d")
        assert shows(app, "changes in")

    play(app_of(before), steps)


def test_no_difference_without_a_mark() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("d")
        await until(pilot, lambda: shows(app, "m marks a moment first"))
        assert not shows(app, "changes in")

    play(app_of(heap()), steps, told=True)


def test_a_block_size_that_is_gone_is_in_the_differences() -> None:
    before = heap()
    now = replace(before, classes=before.classes[1:])
    gone = sheets.classes(now, before, True).rows[0]
    assert gone[0].text == "16 B"
    assert gone[2].value == -before.classes[0].live_blocks


def test_it_trims_when_one_is_sure() -> None:
    source = Source([heap(9), heap(9), heap(0)])

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: source.looks == 1)
        await pilot.press("t")
        assert shows(app, f"Have server ({NOBODY}) give back all memory that is free in it?")
        await pilot.press("n")
        assert source.trims == 0
        await pilot.press("t", "y")
        await until(pilot, lambda: source.trims == 1)
        await until(pilot, lambda: shows(app, "What was free has gone back"))

    play(Top(heap(9), source, unsampled, 3600), steps, told=True)


def test_help_names_every_key() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        text = "\n".join(screen(app))
        assert all(each in text for each in ("1 to 5", "freeze", "reverse", "mark", "leave"))
        await pilot.press("q")
        assert not shows(app, "freeze the screen")
        assert app.is_running
        await pilot.press("q")
        assert not app.is_running

    play(app_of(heap()), steps)


@pytest.mark.parametrize("key", ["question_mark", "t"])
def test_it_goes_on_behind_a_dialog(key: str) -> None:
    later = heap(70)

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press(key)
        await tell(app, pilot, News(later))
        await pilot.resize_terminal(100, 30)
        await pilot.press("escape")
        assert shows(app, human_bytes(later.resident_bytes))

    play(app_of(heap()), steps)


# --- the feed -------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["has ended", "is another program now"])
def test_what_became_of_it_fits_a_line(what: str) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await tell(app, pilot, News(over=what))
        assert shows(app, f"Process 4194304 {what}. Below is its last look. q leaves.")

    play(app_of(replace(heap(), pid=4194304)), steps)


@pytest.mark.parametrize("key", ["1", "slash", "question_mark", "t"])
def test_ctrl_c_leaves_from_wherever_it_is_pressed(key: str) -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press(key, "ctrl+c")
        assert not app.is_running

    play(app_of(heap()), steps)


def test_at_forty_columns_numbers_are_whole() -> None:
    found = heap()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        text = "\n".join(screen(app)[:11])
        for each in accounts(found):
            assert f"{human_bytes(each.bytes)} " in text
            assert share(each.bytes, found.resident_bytes) in text
        assert all(len(line.rstrip()) <= 40 for line in screen(app))
        assert not any(line.rstrip().endswith("…") for line in screen(app)[:11])
        for key in ("1", "2", "3", "4"):
            await pilot.press(key)
            await until(pilot, lambda: bool(rows(app)) or shows(app, "reading"))
            assert not any(line.endswith("…") for line in rows(app))

    play(app_of(found), steps, size=(40, 24))


def test_a_process_that_ends_leaves_its_last_look() -> None:
    source = Source([heap(1)], ends=True)

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: shows(app, f"Process {NOBODY} has ended."))
        assert rows(app)
        await pilot.press("m", "s", "3")
        assert app.is_running

    play(Top(heap(), source, unsampled, 0.01), steps)
    assert source.is_closed


def test_one_that_does_not_answer_is_told_of_and_asked_again() -> None:
    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await tell(app, pilot, News(trouble="process 7 does not answer" + ", as it sleeps" * 9))
        assert screen(app)[1].strip().startswith("process 7 does not answer")
        assert screen(app)[1].endswith("…")
        await tell(app, pilot, News(heap(4)))
        assert not shows(app, "does not answer")

    play(app_of(heap()), steps)


def test_questions_do_not_pile_up() -> None:
    """One that takes its time has all of it: nobody asks another meanwhile."""

    class Slow(Source):
        def __init__(self) -> None:
            super().__init__([heap()])
            self.inside, self.most = 0, 0
            self.may_go = threading.Semaphore(0)

        def look(self, with_threads: bool = True) -> Heap:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.may_go.acquire()
            self.inside -= 1
            return super().look(with_threads)

    source = Slow()

    async def steps(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: source.inside == 1)
        await pilot.press("3", "2", "1", "3", "s", "space", "space")
        assert source.looks == 0
        source.may_go.release()
        await until(pilot, lambda: source.looks == 1 and source.inside == 1)
        assert source.most == 1
        await pilot.press("q")
        source.may_go.release(5)

    play(Top(heap(), source, unsampled, 0.2), steps)


def test_a_thread_that_is_stopped_closes_what_it_has() -> None:
    told: list[News] = []
    source, sampled = Source([heap()]), Sampled()
    feed = Feed(os.getpid(), source, lambda: sampled, 0.01, told.append)
    feed.watch_stacks()
    feed.watch(stalls=True)
    feed.start()
    while len(told) < 3:
        threading.Event().wait(0.01)
    feed.stop()
    assert source.is_closed
    assert sampled.has_ended
    assert all(isinstance(each.stalls, Stalls) and each.stacks == STACKS for each in told[1:])


def test_the_bars_go_from_zero_to_the_most_of_two_minutes() -> None:
    history = History()
    assert history.line(0, 10, 0) == " " * 10
    plain = heap()
    for second, count in ((0, 8), (60, 4), (119, 0)):
        of_all = replace(plain.totals, live_bytes=count << 20)
        history.add(replace(plain, taken=float(second), totals=of_all))
    line = history.line(0, 12, 119)
    assert len(line) == 12
    assert line[0] == "▇"
    assert (line[6], line[-1]) == ("▄", "▁")
    assert history.line(0, 12, 60) == " " * 5 + "▇▇▇▇▇▇▄", "what is later is not there yet"
    end = 119 + KEPT_S + 1
    history.add(replace(plain, taken=end))
    assert history.line(0, 12, end).strip() == "▇", "what is older is forgotten"
