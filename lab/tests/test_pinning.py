# SPDX-License-Identifier: MIT OR Apache-2.0
"""Who pins, of made-up heaps and profiles."""

from pathlib import Path

from heap_data import heap

from ebbtide_lab.inspect.heap import SizeClass
from ebbtide_lab.measure.pinning import PAGE, TYPE, added, most_pinned
from ebbtide_lab.measure.profiling import TYPES, UNITS
from ebbtide_lab.profile.recorded import Recorded, Sample


def recorded(*in_use: tuple[int, int]) -> Recorded:
    """A stack for each: objects, and the bytes of all of them."""
    samples = tuple(Sample((), (objects, size, objects, size)) for objects, size in in_use)
    return Recorded(Path("process 7"), TYPES, UNITS, samples, "", "", 512, "bytes")


def keeps(profile: Recorded) -> list[int]:
    assert profile.types[-1] == TYPE
    return [each.values[-1] for each in profile.samples]


def test_a_block_keeps_a_page_and_a_class_what_it_has() -> None:
    assert most_pinned(SizeClass(64, 1, 3, 5, 10_000)) == 3 * PAGE
    assert most_pinned(SizeClass(64, 1, 3, 5, 10)) == 640
    assert most_pinned(SizeClass(64, 1, 0, 5, 10)) == 0


def test_a_stack_has_its_share_of_its_size_class() -> None:
    found = added(
        recorded((10, 640), (30, 1830), (4, 8000)),
        heap(SizeClass(64, 1, 40, 0, 400), SizeClass(2048, 1, 4, 0, 1)),
    )
    assert keeps(found.profile) == [6400, 19200, 2048]
    assert found.unseen == 0


def test_what_no_sample_stands_for_is_told() -> None:
    small, other = SizeClass(64, 1, 40, 0, 400), SizeClass(256, 1, 1, 0, 100)
    found = added(recorded((10, 640)), heap(small, other))
    assert keeps(found.profile) == [6400]
    assert found.unseen == 19200 + PAGE


def test_more_samples_than_blocks_share_what_there_is() -> None:
    found = added(recorded((30, 1920), (90, 5760)), heap(SizeClass(64, 1, 40, 0, 400)))
    assert keeps(found.profile) == [6400, 19200]


def test_rounded_sums_are_of_their_class() -> None:
    """48 bytes each, of 82,663.4 objects."""
    found = added(recorded((82_663, 3_967_843)), heap(SizeClass(48, 1, 90_000, 0, 1 << 24)))
    assert keeps(found.profile) == [90_000 * PAGE * 82_663 // 90_000]
    assert found.unseen == 7_337 * PAGE


def test_large_and_freed_objects_keep_nothing() -> None:
    found = added(recorded((1, 1 << 20), (0, 0)), heap(SizeClass(64, 1, 40, 0, 400)))
    assert keeps(found.profile) == [0, 0]
    assert found.unseen == 25600
