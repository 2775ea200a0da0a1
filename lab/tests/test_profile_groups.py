# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb profile: what is in use by thread, label and age, and what was allocated by its lifetime."""

import json
from pathlib import Path
from typing import Any

import pytest
from profile_data import Maker
from test_profile import MIB, fault, read_json, run, told
from test_profile_live import LEAKS, profile, under_ebbtide

PLACES = """
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define ALONE __attribute__((noinline))
struct scope { unsigned long word; };
static struct scope (*enter)(void *);
static void (*leave)(struct scope);
static void *(*domain)(const char *);
static void *kept[4000];
static pthread_barrier_t done;
ALONE void *keep_a_row(void) { void *volatile p = malloc(3000); return p; }
ALONE void *keep_a_cart(void) { void *volatile p = malloc(700); return p; }
static void *work(void *name)
{
    pthread_setname_np(pthread_self(), name);
    int writes = *(char *)name == 'w';
    for (int i = 0; i < (writes ? 1000 : 2000); i++) {
        kept[2000 * writes + i] = keep_a_row();
    }
    struct scope before = enter(domain("checkout"));
    for (int i = 0; i < 500; i++) {
        (void)keep_a_cart();
    }
    leave(before);
    pthread_barrier_wait(&done);
    for (;;) {
        pause();
    }
}
int main(void)
{
    pthread_t one, other;
    *(void **)&enter = dlsym(RTLD_DEFAULT, "ebb_domain_enter");
    *(void **)&leave = dlsym(RTLD_DEFAULT, "ebb_leave");
    *(void **)&domain = dlsym(RTLD_DEFAULT, "ebb_domain_open");
    pthread_barrier_init(&done, NULL, 3);
    pthread_create(&one, NULL, work, "reader");
    pthread_create(&other, NULL, work, "writer");
    pthread_barrier_wait(&done);
    for (int i = 0; i < 600; i++) { // of another thread's
        free(kept[2000 + i]);
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        pause();
    }
}
"""


def shop() -> Maker:
    maker = Maker()
    maker.stack("main serve parse", 6 * MIB, thread="worker (7)", label="checkout", age="<1s")
    maker.stack("main serve parse", 2 * MIB, thread="worker (8)", label="search", age="<1h")
    maker.stack("main serve", 1 * MIB, thread="worker (7)", age="<1h")
    maker.stack("main serve parse", 0, 40 * MIB, lifetime="<1ms")
    maker.stack("main serve parse", 0, 10 * MIB, lifetime="<1s")
    maker.stack("main serve parse", 0, 20 * MIB, lifetime="<10s")
    maker.stack("main load", 0, 5 * MIB, lifetime=">=1h")
    return maker


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return shop().write(tmp_path / "heap.pb")


def sizes(found: dict[str, Any]) -> dict[str, float]:
    return {each["name"]: each["value"] / MIB for each in found["groups"]}


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        (["--by", "thread"], {"worker (7)": 7, "worker (8)": 2}),
        (["--by", "label"], {"checkout": 6, "search": 2, "(no label)": 1}),
        (["--by", "age"], {"<1s": 6, "<1h": 3}),
        (
            ["--by", "lifetime", "--view", "allocated"],
            {"(in use)": 9, "<1ms": 40, "<1s": 10, "<10s": 20, ">=1h": 5},
        ),
        (["--by", "lifetime", "--view", "short-lived"], {"<1ms": 40, "<1s": 10}),
        (["--by", "label", "--focus", "parse"], {"checkout": 6, "search": 2}),
    ],
)
def test_each_group_has_its_own(file: Path, options: list[str], groups: dict[str, int]) -> None:
    found = read_json(file, *options)
    assert sizes(found) == groups
    assert list(sizes(found)) == list(groups), "lengths of time in their order, else the most first"
    assert found["total"] == sum(groups.values()) * MIB
    by = found["by"]
    for name, size in groups.items():
        own = [each["value"] for each in found["stacks"] if each[by] == name]
        assert sum(own) == size * MIB


def test_without_groups_all_is_as_it_was(file: Path) -> None:
    found = read_json(file)
    assert {"by", "groups", "allocated"}.isdisjoint(found)
    assert found["total"] == 9 * MIB
    assert len(found["stacks"]) == 2


def test_short_lived_is_what_was_freed_within_a_second(file: Path) -> None:
    found = read_json(file, "--view", "short-lived")
    assert (found["total"], found["allocated"]) == (50 * MIB, 84 * MIB)
    (stack,) = found["stacks"]
    assert (stack["value"], stack["allocated"]) == (50 * MIB, 78 * MIB)
    text = told(file, "--view", "short-lived", columns=200)
    assert "50.0 MiB allocated and freed within a second, by 1 stack." in text
    assert "That is 59.5% of 84.0 MiB allocated." in text
    assert "64.1%" in text, "of what the function allocated"
    assert read_json(file, "--view", "short-lived-objects")["total"] == 50 * MIB // 8


def test_the_text_tells_who_has_what(file: Path) -> None:
    text = " ".join(told(file, "--by", "thread", "--top", 1).split())
    assert "9.00 MiB in use, by 2 stacks." in text
    assert "worker (7)" in text
    assert "77.8%" in text
    assert "worker (8)" not in text
    assert "1 more groups" in text


def test_the_tree_and_the_page_begin_with_the_groups(file: Path, tmp_path: Path) -> None:
    tree = told(file, "--by", "thread", "--tree")
    assert "thread worker (7)" in tree
    assert "thread worker (8) > main > serve > parse" in tree
    page = tmp_path / "page.html"
    assert run(file, "--by", "age", "--html", page).exit_code == 0
    assert "age \\u003c1h" in page.read_text()


def test_names_of_groups_are_not_shortened(tmp_path: Path) -> None:
    maker = Maker()
    maker.stack("main", MIB, label="io::pool<2>", age="<1s")
    file = maker.write(tmp_path / "heap.pb")
    assert "label io::pool<2> > main" in told(file, "--by", "label", "--tree")
    assert "io::pool<2>" in told(file, "--by", "label")


def test_names_of_groups_do_not_steer_the_terminal(tmp_path: Path) -> None:
    maker, before = Maker(), Maker()
    maker.sample([maker.named("main")], (1, 64, 1, 64), thread="a\x1b[31mb", label="c\x07d")
    before.sample([before.named("main")], (1, 64, 1, 64), thread="a", label="b")
    file, base = maker.write(tmp_path / "heap.pb"), before.write(tmp_path / "before.pb")
    for by, name in (("thread", "a\ufffd[31mb"), ("label", "c\ufffdd")):
        for options in ([], ["--tree"], ["--base", base]):
            text = run(file, "--by", by, *options).output
            assert name in text
            assert not {"\x1b", "\x07"} & set(text)


def test_beside_a_base_groups_grow(file: Path, tmp_path: Path) -> None:
    later = shop()
    later.stack("main load", 3 * MIB, thread="worker (8)", age="<1s")
    after = later.write(tmp_path / "later.pb")
    found = read_json(after, "--base", file, "--by", "thread")
    assert sizes(found) == {"worker (8)": 3, "worker (7)": 0}
    assert "+3.00 MiB" in told(after, "--base", file, "--by", "thread")


def test_what_a_view_does_not_tell_is_refused(file: Path, tmp_path: Path) -> None:
    for options in (["--by", "lifetime"], ["--by", "thread", "--view", "allocated"]):
        done = run(file, *options)
        assert done.exit_code == 2
        assert "is for views of what is" in done.output
    plain = Maker()
    plain.stack("main", MIB)
    bare = plain.write(tmp_path / "bare.pb")
    assert "does not tell what it counts by age" in fault(bare, "--by", "age")
    assert "counts nothing for the view short-lived" in fault(bare, "--view", "short-lived")


# --- of a process -----------------------------------------------------------------------


def by_function(found: dict[str, Any], by: str) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for each in found["stacks"]:
        key = each["frames"][-1]["name"], each[by].partition(" (")[0]
        sums[key] = sums.get(key, 0) + each["value"]
    return {key: sums[key] for key in sums if key[0].startswith("keep")}


def test_a_process_tells_who_has_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "at-exit.pb"
    with under_ebbtide(PLACES, tmp_path, monkeypatch, EBB_PROFILE=f"1,{file}") as pid:
        asked = {
            by: json.loads(profile(pid, "--seconds", 0, "--by", by, "--json").stdout)
            for by in ("thread", "label", "age")
        }
    rows, carts = "keep_a_row", "keep_a_cart"
    assert by_function(asked["thread"], "thread") == {
        (rows, "reader"): 6_000_000,
        (rows, "writer"): 1_200_000,
        (carts, "reader"): 350_000,
        (carts, "writer"): 350_000,
    }
    assert by_function(asked["label"], "label") == {
        (rows, "(no label)"): 7_200_000,
        (carts, "checkout"): 700_000,
    }
    ages = by_function(asked["age"], "age")
    assert sum(ages.values()) == 7_900_000
    assert {age for _, age in ages} <= {"<10ms", "<100ms", "<1s", "<10s", "<1min"}


def test_a_process_tells_what_is_short_lived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under_ebbtide(LEAKS, tmp_path, monkeypatch) as pid:
        options = ("--seconds", 0.5, "--mean", 4096, "--json", "--view", "short-lived")
        found = json.loads(profile(pid, *options).stdout)
    (stack,) = (each for each in found["stacks"] if "serve_a_request" in json.dumps(each))
    assert stack["value"] == stack["allocated"] > 0
    assert "leak_a_session" not in json.dumps(found["stacks"])
    assert found["allocated"] > found["total"]
