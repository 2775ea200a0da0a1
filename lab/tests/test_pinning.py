# SPDX-License-Identifier: MIT OR Apache-2.0
"""Who pins, of made-up heaps and profiles."""

from pathlib import Path

from heap_data import heap, totals

from ebbtide_lab.measure.pinning import unseen
from ebbtide_lab.measure.profiling import PINNED, TYPES, UNITS
from ebbtide_lab.profile.recorded import Recorded, Sample


def keeping(*amounts: int) -> Recorded:
    """A stack for each."""
    samples = tuple(Sample((), (1, 64, 1, 64, each)) for each in amounts)
    types, units = (*TYPES, PINNED), (*UNITS, "bytes")
    return Recorded(Path("process 7"), types, units, samples, "", "", 512, "bytes")


def test_what_no_sample_keeps_is_told() -> None:
    assert unseen(keeping(1000, 2000), heap(totals=totals(dirty_bytes=10_000))) == 7000


def test_an_estimate_may_say_too_much() -> None:
    assert unseen(keeping(1000, 2000), heap(totals=totals(dirty_bytes=2500))) == 0
