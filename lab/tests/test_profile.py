# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb profile: on profiles that are made up, and on a program that says where its code lies."""

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from profile_data import Maker
from verbs import fault_of

from ebbtide_lab.cli.main import main
from ebbtide_lab.profile import profile_pb2, stacks
from ebbtide_lab.show.function_names import brief

MIB = 1 << 20
HOSTILE = "</script><img[red]&"
STARTS_OF_FIELDS = re.compile(r"^    (?:repeated )?[\w.]+ (\w+) = (\d+);", re.MULTILINE)


def run(*arguments: object, columns: int = 100) -> Result:
    runner = CliRunner(env={"COLUMNS": str(columns), "NO_COLOR": "1"})
    return runner.invoke(main, ["profile", *map(str, arguments)])


def told(*arguments: object, columns: int = 100) -> str:
    done = run(*arguments, columns=columns)
    assert done.exit_code == 0, done.output
    return done.output


def fault(*arguments: object) -> str:
    """The one line of an error."""
    return fault_of(run(*arguments))


def read_json(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shop() -> Maker:
    maker = Maker()
    maker.stack("main serve parse", 6 * MIB, 60 * MIB)
    maker.stack("main serve", 3 * MIB, 5 * MIB)
    maker.stack("main load", 1 * MIB, 1 * MIB)
    return maker


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return shop().write(tmp_path / "heap.pb")


def by_name(found: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {each["name"]: (each["flat"], each["cumulative"]) for each in found["functions"]}


# --- the numbers ----------------------------------------------------------------------


def test_flat_is_the_functions_own_and_cumulative_with_what_it_calls(file: Path) -> None:
    found = read_json(file)
    assert found["total"] == 10 * MIB
    assert by_name(found) == {
        "parse": (6 * MIB, 6 * MIB),
        "serve": (3 * MIB, 9 * MIB),
        "load": (1 * MIB, 1 * MIB),
        "main": (0, 10 * MIB),
    }


def test_a_function_that_calls_itself_counts_once(tmp_path: Path) -> None:
    maker = Maker()
    maker.stack("main walk walk walk", 8 * MIB)
    found = read_json(maker.write(tmp_path / "heap.pb"))
    assert by_name(found)["walk"] == (8 * MIB, 8 * MIB)


@pytest.mark.parametrize(
    ("view", "total", "unit"),
    [
        ("in-use", 10 * MIB, "bytes"),
        ("allocated", 66 * MIB, "bytes"),
        ("in-use-objects", 10 * MIB // 8, "count"),
        ("allocated-objects", 66 * MIB // 8, "count"),
    ],
)
def test_each_view_has_its_own_values(file: Path, view: str, total: int, unit: str) -> None:
    found = read_json(file, "--view", view)
    assert (found["total"], found["unit"]) == (total, unit)


def test_a_profile_of_tcmallocs_has_space_in_use_and_nothing_allocated(tmp_path: Path) -> None:
    maker = Maker((("objects", "count"), ("space", "bytes")))
    maker.sample([maker.named("main")], (2, 512))
    path = maker.write(tmp_path / "heap.pb")
    assert read_json(path)["total"] == 512
    assert "it holds objects, space" in fault(path, "--view", "allocated")


def test_gzip_says_the_same(file: Path, tmp_path: Path) -> None:
    packed = shop().write(tmp_path / "heap.pb.gz", packed=True)
    assert read_json(packed) | {"file": ""} == read_json(file) | {"file": ""}


def test_other_values_give_other_numbers(tmp_path: Path, file: Path) -> None:
    changed = shop()
    changed.message.sample[0].value[3] += MIB
    path = changed.write(tmp_path / "changed.pb")
    assert read_json(path)["total"] == read_json(file)["total"] + MIB


def test_samples_of_one_stack_are_summed(tmp_path: Path) -> None:
    maker = Maker()
    for _ in range(2):
        maker.stack("main f", 4 * MIB)
    (found,) = read_json(maker.write(tmp_path / "heap.pb"))["stacks"]
    assert found["value"] == 8 * MIB


# --- what is printed ------------------------------------------------------------------


def test_the_text_tells_totals_and_the_most_first(file: Path) -> None:
    text = told(file, columns=200)
    assert f"{file}: 10.0 MiB in use, by 3 stacks." in text
    rows = [line for line in text.splitlines() if "MiB" in line and "%" in line]
    assert [re.findall(r"[\w.]+", row)[0] for row in rows] == ["parse", "serve", "load", "main"]
    assert re.search(r"serve .*3\.00 MiB .*30\.0% .*9\.00 MiB .*90\.0%", text)
    assert "code.c:7" in text


def test_top_cuts_the_text_but_not_the_json(file: Path) -> None:
    text = told(file, "--top", 1)
    assert "parse" in text
    assert "load" not in text
    assert "3 more functions" in text
    assert len(read_json(file, "--top", 1)["functions"]) == 4


def test_a_narrow_terminal_cuts_no_name_and_no_number(file: Path) -> None:
    for options in ([], ["--tree"], ["--base", str(file)]):
        text = told(file, *options, columns=30)
        assert "\x1b" not in text
        assert all(len(line) <= 30 for line in text.splitlines())
    for word in ("parse", "6.00 MiB", "60.0%"):
        assert word in told(file, columns=30)


def test_the_tree_leaves_out_what_weighs_less_than_a_percent(tmp_path: Path) -> None:
    maker = shop()
    maker.stack("main small", MIB // 20)
    maker.stack("main large", MIB // 5)
    text = told(maker.write(tmp_path / "heap.pb"), "--tree")
    assert "large" in text
    assert "small" not in text
    assert text.index("serve") < text.index("parse") < text.index("load")


def test_focus_keeps_the_stacks_with_such_a_function(file: Path) -> None:
    assert read_json(file, "--focus", "^par")["total"] == 6 * MIB
    assert "no stack has a function like" in fault(file, "--focus", "nothing")
    assert "is no regular expression" in fault(file, "--focus", "(")


def test_the_profiles_own_pattern_drops_functions_and_what_they_call(tmp_path: Path) -> None:
    maker = Maker()
    maker.message.drop_frames = maker.text("malloc|operator new.*")
    locations = [maker.named(name) for name in ("slow", "malloc", "operator new(unsigned long)")]
    maker.sample([*locations, maker.named("f"), maker.named("malloc_user")], (1, 1, 1, 64))
    maker.sample([maker.named("malloc")], (1, 1, 1, 32))
    found = by_name(read_json(maker.write(tmp_path / "heap.pb")))
    assert found == {"f": (64, 64), "malloc_user": (0, 64), "malloc": (32, 32)}


def test_inlined_calls_are_frames_of_their_own(tmp_path: Path) -> None:
    maker = Maker()
    maker.sample([maker.named("inner", "outer"), maker.named("main")], (1, 64, 1, 64))
    (found,) = read_json(maker.write(tmp_path / "heap.pb"))["stacks"]
    assert [each["name"] for each in found["frames"]] == ["main", "outer", "inner"]


def test_names_do_not_steer_the_terminal(tmp_path: Path) -> None:
    maker = Maker()
    mapping = maker.mapping(0x1000, 0x1000, 0, "/tmp/st\x1b[31mx")
    at = [maker.named("one\x1b]0;two\x07"), maker.location(0x1234, mapping)]
    maker.sample(at, (1, 64, 1, 64))
    file = maker.write(tmp_path / "heap.pb")
    for arguments in ([], ["--tree"]):
        text = CliRunner().invoke(main, ["profile", str(file), *arguments]).output
        assert "one\ufffd]0;two\ufffd" in text
        assert "st\ufffd[31mx" in text
        assert not {"\x1b", "\x07"} & set(text)


def test_names_with_marks_are_shown_as_they_are(tmp_path: Path) -> None:
    maker = Maker()
    maker.stack(f"main {HOSTILE}", MIB)
    path = maker.write(tmp_path / "heap.pb")
    for options in ([], ["--tree"], ["--base", str(path)]):
        assert run(path, *options).exit_code == 0
    assert HOSTILE in told(path)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("std::map<int, f<void (int)> >::at(int const&) const", "std::map<>::at"),
        ("double* shop::grow<double>(int)", "shop::grow<>"),
        ("ns::(anonymous namespace)::f(int)", "ns::{anonymous}::f"),
        ("std::map<int, int>::operator[](int&&)", "std::map<>::operator[]"),
        ("Lamp::operator()(int) const", "Lamp::operator()"),
        ("operator new(unsigned long)", "operator new"),
        ("void (*f(int))(int)", "void (*f(int))(int)"),
        ("a::f(std::vector<int>&) (.constprop.0)", "a::f"),
        ("a::f(int) [clone .isra.0]", "a::f"),
        ("a::f::h0123456789abcdef", "a::f"),
        ("a::f$u7b$$u7b$g$u7d$$u7d$::h0123456789abcdef", "a::f{{g}}"),
        ("main.(*Tree).Walk", "main.(*Tree).Walk"),
        ("<a::B as c::D>::e", "<a::B as c::D>::e"),
        ("main", "main"),
    ],
)
def test_names_of_cxx_are_shortened_in_text(name: str, short: str) -> None:
    assert brief(name) == short


# --- with a base ----------------------------------------------------------------------


@pytest.fixture
def later(tmp_path: Path) -> Path:
    maker = Maker()
    maker.stack("main serve parse", 9 * MIB)
    maker.stack("main serve", 3 * MIB)
    maker.stack("main cache", 2 * MIB)
    return maker.write(tmp_path / "later.pb")


def test_new_stacks_come_first_then_what_grew_most(file: Path, later: Path) -> None:
    found = read_json(later, "--base", file)
    grown = [(each["frames"][-1]["name"], each["grew"], each["new"]) for each in found["stacks"]]
    assert grown == [
        ("cache", 2 * MIB, True),
        ("parse", 3 * MIB, False),
        ("serve", 0, False),
        ("load", -MIB, False),
    ]
    assert found["total"] == 4 * MIB
    text = told(later, "--base", file, columns=300)
    assert text.index("cache") < text.index("parse") < text.index("load")
    assert "Difference: +4.00 MiB" in text
    assert "+3.00 MiB" in text
    assert "-1.00 MiB" in text


def test_beside_itself_nothing_differs(file: Path) -> None:
    assert "No stack differs." in told(file, "--base", file)


def test_beside_an_empty_one_all_is_new(file: Path, tmp_path: Path) -> None:
    empty = Maker().write(tmp_path / "empty.pb")
    assert all(each["new"] for each in read_json(file, "--base", empty)["stacks"])


# --- what goes wrong ------------------------------------------------------------------


def test_files_that_hold_no_profile_are_told_in_a_line(file: Path, tmp_path: Path) -> None:
    content, packed = file.read_bytes(), shop().write(tmp_path / "gz", packed=True).read_bytes()
    spoilt = bytearray(packed)
    spoilt[len(spoilt) // 2] ^= 0xFF
    for name, held, message in (
        ("nothing", b"", "is empty"),
        ("text", b"hello world\n", "no profile in pprof's format"),
        ("half", content[: len(content) // 2], "is cut off"),
        ("half.gz", packed[: len(packed) // 2], "is cut off"),
        ("spoilt.gz", bytes(spoilt), "damaged"),
    ):
        (tmp_path / name).write_bytes(held)
        assert message in fault(tmp_path / name)
    assert f"there is no file {tmp_path / 'missing'}" in fault(tmp_path / "missing")
    assert "Is a directory" in fault(tmp_path)
    assert "holds no sample" in fault(Maker().write(tmp_path / "empty.pb"))


def test_no_cut_of_a_profile_ends_in_a_trace(file: Path, tmp_path: Path) -> None:
    content = file.read_bytes()
    cut = tmp_path / "cut"
    for size in range(len(content)):
        cut.write_bytes(content[:size])
        done = run(cut)
        assert done.exception is None or isinstance(done.exception, SystemExit), size
    assert len(content) > 100


@pytest.mark.parametrize("field", ["location_id", "value"])
def test_what_refers_to_nothing_is_damaged(tmp_path: Path, field: str) -> None:
    maker = shop()
    getattr(maker.message.sample[0], field).append(99)
    assert "damaged" in fault(maker.write(tmp_path / "heap.pb"))


def test_outputs_exclude_each_other(file: Path) -> None:
    done = run(file, "--tree", "--json")
    assert done.exit_code == 2
    assert "exclude each other" in done.output


def test_the_view_may_count_nothing(tmp_path: Path) -> None:
    maker = Maker()
    maker.stack("main", 0, MIB)
    assert "counts nothing for the view in-use" in fault(maker.write(tmp_path / "heap.pb"))


def test_the_generated_module_has_the_fields_of_the_proto() -> None:
    """It is generated by hand: nothing else would tell that one was changed alone."""
    text = (Path(profile_pb2.__file__).with_name("profile.proto")).read_text()
    written = sorted((name, int(number)) for name, number in STARTS_OF_FIELDS.findall(text))
    messages = profile_pb2.DESCRIPTOR.message_types_by_name.values()
    have = sorted((field.name, field.number) for each in messages for field in each.fields)
    assert written == have
    assert len(have) > 30


# --- names from files -----------------------------------------------------------------

PROGRAM = """
#include <cstdio>
namespace shop {
__attribute__((noinline)) int fill(int n)
{
    std::puts("filled");
    return n + 1;
}
}
int main()
{
    std::printf("%p\\n", reinterpret_cast<void *>(&shop::fill));
    FILE *maps = std::fopen("/proc/self/maps", "r");
    for (int c; (c = std::fgetc(maps)) != EOF;) std::putchar(c);
    return shop::fill(1) - 2;
}
"""
BODY_LINE = 5  # where fill() begins is this line or the one before


class Built:
    """A program of this machine, and where its function lay when it ran."""

    def __init__(self, folder: Path, flags: Iterable[str]) -> None:
        self.program = folder / "program"
        source = folder / "program.cc"
        source.write_text(PROGRAM)
        command = ["g++", "-O1", "-g", "-Wl,--build-id", *flags, str(source), "-o"]
        subprocess.run([*command, str(self.program)], check=True, timeout=60)
        out = subprocess.run([self.program], check=True, capture_output=True, text=True).stdout
        address, *maps = out.splitlines()
        self.address = int(address, 16) + 1
        for line in maps:
            if str(self.program) in line and " r-xp " in line:
                span, _, offset = line.split()[:3]
                self.start, self.limit = (int(each, 16) for each in span.split("-"))
                self.offset = int(offset, 16)
        notes = subprocess.run(
            ["readelf", "-n", self.program], check=True, capture_output=True, text=True
        ).stdout
        self.build_id = re.findall(r"Build ID: (\w+)", notes)[0]

    def profile(self, path: Path, *, build_id: str = "", file: str = "", shift: int = 0) -> Path:
        maker = Maker()
        mapping = maker.mapping(
            self.start + shift,
            self.limit - self.start,
            self.offset,
            file or str(self.program),
            build_id or self.build_id,
        )
        maker.sample([maker.location(self.address, mapping)], (1, 64, 1, 64))
        return maker.write(path)


@pytest.fixture(scope="module", params=["pie", "no-pie", "stripped"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    flags = {"pie": ["-pie", "-fPIE"], "no-pie": ["-no-pie"], "stripped": ["-rdynamic", "-s"]}
    return Built(tmp_path_factory.mktemp("built"), flags[request.param])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("plain"), ["-pie", "-fPIE"])


def test_functions_are_named_by_the_file_in_plain_cxx(built: Built, tmp_path: Path) -> None:
    found = stacks.read(built.profile(tmp_path / "heap.pb"))
    ((frames, stack),) = found.stacks.items()
    assert [each.name for each in frames] == ["shop::fill(int)"]
    assert found.warnings == []
    if stack.where:
        assert stack.where in (f"program.cc:{BODY_LINE}", f"program.cc:{BODY_LINE - 1}")


def test_the_leaf_has_its_line(plain: Built, tmp_path: Path) -> None:
    (stack,) = stacks.read(plain.profile(tmp_path / "heap.pb")).stacks.values()
    assert re.fullmatch(r"program\.cc:[45]", stack.where)


def test_a_mapping_that_is_elsewhere_gives_another_name(built: Built, tmp_path: Path) -> None:
    """The control of the two above: names depend on the mapping."""
    found = stacks.read(built.profile(tmp_path / "heap.pb", shift=-0x40))
    ((frames, _),) = found.stacks.items()
    assert frames[0].name != "shop::fill(int)"


def test_another_build_of_the_file_is_warned_of(plain: Built, tmp_path: Path) -> None:
    done = run(plain.profile(tmp_path / "heap.pb", build_id="ab" * 20))
    assert done.exit_code == 0
    assert re.search(r"Warning: .* is not the file that was profiled", done.stderr)
    assert done.stderr.count("\n") == 1


def test_without_the_file_functions_are_module_and_offset(plain: Built, tmp_path: Path) -> None:
    path = plain.profile(tmp_path / "heap.pb", file=str(tmp_path / "gone.so"))
    done = run(path, "--json")
    offset = plain.address - plain.start + plain.offset
    assert by_name(json.loads(done.stdout)) == {f"gone.so+{offset:#x}": (64, 64)}
    assert "gone.so cannot be read (No such file or directory)" in done.stderr


def test_a_file_that_is_no_program_is_warned_of(plain: Built, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no program")
    path = plain.profile(tmp_path / "heap.pb", file=str(tmp_path / "text.so"))
    assert "text.so is no ELF file" in run(path).stderr


def test_code_without_a_file_is_its_address(tmp_path: Path) -> None:
    maker = Maker()
    vdso = maker.mapping(0x1000, 0x1000, 0, "[vdso]")
    maker.sample([maker.location(0x1010, vdso), maker.location(0x77)], (1, 64, 1, 64))
    maker.sample([], (1, 8, 1, 8))
    done = run(maker.write(tmp_path / "heap.pb"), "--json")
    assert set(by_name(json.loads(done.stdout))) == {"[vdso]+0x10", "0x77", stacks.NO_STACK}
    assert done.stderr == ""


# --- the page -------------------------------------------------------------------------


def test_the_page_is_one_file_that_fetches_nothing(tmp_path: Path) -> None:
    maker = shop()
    maker.stack(f"main {HOSTILE}", MIB)
    out = tmp_path / "page.html"
    assert told(maker.write(tmp_path / "heap.pb"), "--html", out) == ""
    text = out.read_text()
    assert not re.search(r"https?:|src=|@import|<link(?! rel=\"icon\" href=\"data:,\")", text)
    assert HOSTILE not in text
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text)[0])
    assert data["values"][0] == 11 * MIB
    assert HOSTILE in [name for _, name, _ in data["names"]]


def test_a_page_that_cannot_be_written_is_an_error(file: Path, tmp_path: Path) -> None:
    assert "cannot write" in fault(file, "--html", tmp_path / "missing" / "page.html")
