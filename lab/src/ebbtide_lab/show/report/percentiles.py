# SPDX-License-Identifier: MIT OR Apache-2.0
"""Latencies at percentiles: the histograms of all runs of an arm, merged."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.results.model import Histogram, Sample

SHOWN = (50.0, 90.0, 99.0, 99.9, 99.99, 100.0)


class _Item(Protocol):
    value_iterated_to: int
    total_count_to_this_value: int


class _Recorder(Protocol):
    """What is used of the package hdrhistogram, which has no types of its own."""

    def record_value(self, value: int, count: int) -> bool: ...
    def get_value_from_index(self, index: int) -> int: ...
    def get_recorded_iterator(self) -> Iterator[_Item]: ...
    def add(self, other_hist: "_Recorder") -> None: ...


@dataclass(frozen=True)
class Curve:
    """The recorded values in order, each with how many were at most as large."""

    values: list[int]
    reached: list[int]

    @property
    def total(self) -> int:
        return self.reached[-1]

    def at(self, percentile: float) -> int:
        wanted = max(1, math.ceil(round(self.total * percentile / 100, 6)))
        return self.values[bisect_left(self.reached, wanted)]

    def below(self, bound: float) -> int:
        """How many values were less."""
        place = bisect_left(self.values, bound)
        return self.reached[place - 1] if place else 0


def names(samples: Iterable[Sample]) -> list[str]:
    """Of the histograms, in the order in which they are met."""
    return list(dict.fromkeys(name for each in samples for name in each.histograms))


def merge(samples: list[Sample], name: str) -> Curve | None:
    """All runs of an arm as one curve; None when nothing was recorded."""
    found = [each.histograms[name] for each in samples if name in each.histograms]
    if not any(each.counts for each in found):
        return None
    merged, *others = [_recorder(each, name) for each in found]
    for other in others:
        merged.add(other)
    return _curve(merged)


def _recorder(data: Histogram, name: str) -> _Recorder:
    recorder: _Recorder = import_module("hdrh.histogram").HdrHistogram(
        data.lowest, data.highest, data.significant_figures
    )
    for index, count in data.counts:
        if count < 1 or not recorder.record_value(recorder.get_value_from_index(index), count):
            raise LabError(f"histogram {name}: bucket {index} does not fit its layout")
    return recorder


def _curve(recorder: _Recorder) -> Curve:
    curve = Curve([], [])
    for item in recorder.get_recorded_iterator():
        curve.values.append(item.value_iterated_to)
        curve.reached.append(item.total_count_to_this_value)
    return curve
