# SPDX-License-Identifier: MIT OR Apache-2.0
import re
import tomllib
from pathlib import Path

import pytest

from ebbtide_lab.arms import allocators, ways
from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import Layout, find_root
from ebbtide_lab.measure import execute
from ebbtide_lab.scenarios import model as scenarios
from ebbtide_lab.scenarios.described import (
    RECORDED,
    SENTENCES,
    Description,
    describe,
    describe_kept,
)
from ebbtide_lab.scenarios.model import Scenario, load_all

GOOD = """
purpose = "test"
arms = ["glibc"]
[[scenario]]
name = "one"
kind = "workload"
command = ["lanes"]
bars = [{ kind = "speed", at_least = 1 }]
"""


def test_every_shipped_set_loads_and_names_known_arms() -> None:
    layout = Layout.of(None, None)
    known = {*allocators.names(layout), *allocators.OWN}
    over = {
        f"{scheme}/{allocator}"
        for scheme in allocators.load_schemes(layout)
        for allocator in allocators.names(layout)
        if allocators.is_peer(allocator)
    }
    found = scenarios.load_all()
    assert {"quick", "apps", "bars", "start", "reclaim", "lifetimes"} <= set(found)
    for group in found.values():
        grouped = {arm for arm in group.arms if allocators.WITH in arm}
        assert set(group.arms) - grouped <= known | over
        assert all(ways.parts(arm)[0] in known for arm in grouped)
        for each in group.scenarios:
            named = {*each.arms, *(arm for bar in each.bars for arm in (bar.arm, *bar.peers))}
            assert named <= set(group.arms)


def test_bars_name_arms_and_rows_that_are_there() -> None:
    for group in scenarios.load_all().values():
        rows = {each.name: each for each in group.scenarios}
        for each in group.scenarios:
            asked = set(each.arms or group.arms)
            for bar in each.bars:
                assert {bar.arm, *bar.peers} <= asked, each.name
                assert not bar.row or bar.arm in (rows[bar.row].arms or group.arms)


def test_reclamation_fits_its_time() -> None:
    group = scenarios.load_all()["reclaim"]
    spent_s = sum(each.runs * each.estimate_s * len(each.arms) for each in group.scenarios)
    assert 60 < spent_s <= 15 * 60


def test_lifetimes_fit_their_time() -> None:
    group = scenarios.load_all()["lifetimes"]
    spent_s = sum(each.runs * each.estimate_s * len(each.arms) for each in group.scenarios)
    assert 60 < spent_s <= 15 * 60


def test_arms_with_a_way_are_asked_in_scoped_rows_alone() -> None:
    for group in scenarios.load_all().values():
        for each in group.scenarios:
            assert each.scoped or not any(allocators.WITH in arm for arm in each.arms)


def test_shipped_workloads_exist() -> None:
    layout = Layout.of(None, None)
    for group in scenarios.load_all().values():
        for each in group.scenarios:
            if each.kind in ("workload", "start"):
                programs = layout.root / "bench"
                subjects = ("malloc", "patterns", "harness", ".")
                assert any((programs / s / f"{each.command[0]}.c").is_file() for s in subjects)
            if each.kind == "scheme":
                assert (layout.root / "bench" / "reclaim" / f"{each.command[0]}.c").is_file()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "workload"', 'kind = "magic"', "kind is one of"),
        ('command = ["lanes"]', "command = []", "command is missing"),
        ('command = ["lanes"]', 'command = ["lanes"]\nsped = 1', "unknown key sped"),
        ("at_least = 1", "at_least = 1, at_most = 2", "either at_least or at_most"),
        ("at_least = 1", "at_least = 0", "at_least of a bar of kind speed is above 0"),
        ('kind = "workload"', 'kind = "command"\nscoped = true', "only a row of kind workload"),
        ('kind = "speed"', 'kind = "own_cost"', "wants floor = true"),
        ('kind = "speed"', 'kind = "charm"', "no bar is of kind"),
        ("at_least = 1", "at_least = 1, figure = 'ops'", "`figure` belongs"),
        ("at_least = 1", "at_least = 1, peers = ['glibc']", "`peers` belongs"),
        ("at_least = 1", "at_least = 1, row = 'two'", "`row` belongs"),
        ("at_least = 1", "at_least = 1, arm = 'ebbtide-fenced'", "is on ebbtide alone"),
        ('kind = "speed"', 'kind = "against"', "`peers` belongs"),
        ('kind = "speed"', 'kind = "unchanged", row = "one"', "unchanged, neither"),
        ('name = "one"', "", "missing .* 'name'"),
        ("[[scenario]]", "[[scenario", "cannot read"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(LabError, match=message):
        scenarios.load(path)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("['{scrach}/x']", r"bad.toml, scenario one: '{scrach}/x': no place 'scrach'; there are"),
        ("['{']", r"bad.toml, scenario one: '{': .*; {{ and }} are braces"),
        ("['a', '}']", "bad.toml, scenario one: '}'"),
        ("['{}']", "no place ''"),
        ("['{scratch.name}']", "no place 'scratch.name'"),
        ("['{scratch!r}']", "no place 'scratch'"),
    ],
)
def test_a_place_that_is_not_there_names_file_and_row(
    tmp_path: Path, command: str, message: str
) -> None:
    path = tmp_path / "bad.toml"
    text = GOOD.replace('["lanes"]', command).replace('"workload"', '"command"')
    path.write_text(text)
    with pytest.raises(LabError, match=message) as raised:
        scenarios.load(path)
    assert "\n" not in str(raised.value)


def test_doubled_braces_reach_the_program_as_braces(layout: Layout, tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    text = GOOD.replace('["lanes"]', "['sh', '-c', 'true ${{HOME}} && echo {{a}}']")
    path.write_text(text.replace('"workload"', '"command"').replace("bars", "output = '{a}'\nbars"))
    (found,) = scenarios.load(path).scenarios
    glibc = allocators.find("glibc", layout)
    assert execute.run(found, glibc, layout).figures


def test_what_fills_no_places_takes_braces_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    path.write_text(GOOD.replace('["lanes"]', "['lanes', '{']"))
    assert scenarios.load(path).scenarios[0].command == ["lanes", "{"]


def test_a_good_file_loads(tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    assert scenarios.load(path).scenarios[0].bars[0].at_least == 1


def test_select_by_set_and_by_scenario() -> None:
    assert scenarios.select(["quick"]) == [scenarios.load_all()["quick"]]
    assert [each.name for each in scenarios.select(["bars/lanes-small"])[0].scenarios] == [
        "lanes-small"
    ]
    with pytest.raises(LabError, match="no scenario or set is called 'nothing'"):
        scenarios.select(["nothing"])


def test_every_workload_has_a_sentence_on_what_it_imitates() -> None:
    rows = [row for each in load_all().values() for row in each.scenarios]
    assert [row.name for row in rows if not describe(row).imitates] == []
    recorded = tomllib.loads((find_root() / RECORDED).read_text(encoding="utf-8"))["program"]
    told = {each["name"]: describe_kept("corpus", each["name"]) for each in recorded}
    assert [name for name, each in told.items() if not each.imitates] == []
    assert not told["batches"].is_program
    assert told["gcc"].is_program
    sentences = [describe(row).imitates for row in rows] + [each.imitates for each in told.values()]
    assert [each for each in sentences if not re.fullmatch(r"[^\n]{20,150}[.]", each)] == []


def test_every_sentence_is_of_a_workload_that_there_is() -> None:
    sentences = tomllib.loads(SENTENCES.read_text(encoding="utf-8"))
    rows = [row for each in load_all().values() for row in each.scenarios]
    programs = {row.command[0].removeprefix("{programs}/") for row in rows}
    assert set(sentences["programs"]) <= programs
    assert set(sentences["rows"]) <= {row.name for row in rows}


def test_what_nobody_described_has_no_sentence() -> None:
    mine = Scenario("mine", "command", ["mine"])
    assert describe(mine) == Description("", True)
    assert describe_kept("corpus", "nothing") == Description("", True)
    assert describe_kept("quick", "nothing") == Description()
