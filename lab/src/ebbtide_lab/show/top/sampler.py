# SPDX-License-Identifier: MIT OR Apache-2.0
"""The stacks of the sampled profile of a running process, as long as somebody looks at them.

It is asked for a few seconds at a time, again and again: when this tool is killed, it ends by
itself. This module needs what a wheel does not bring, so it is imported when it is wanted.
"""

import time

from ebbtide_lab.inspect.heap_profile import HeapProfile
from ebbtide_lab.measure import profiling
from ebbtide_lab.profile import stacks, weights
from ebbtide_lab.profile.stacks import Binaries
from ebbtide_lab.profile.weights import Weight
from ebbtide_lab.show.function_names import brief
from ebbtide_lab.show.top.sheets import StackSum

MEAN = 512 << 10
HOLD_S = 20.0
RENEW_S = 10.0  # when it has no longer than this to go
NAMING_SHARE = 0.005  # of a core: how much the names of functions may cost,
MOST_S = 5.0  # but they are no older than this


class LiveStacks:
    def __init__(self, pid: int) -> None:
        self._live = HeapProfile(pid)
        self._found: list[StackSum] = []
        self._binaries: Binaries = {}
        self._again_at = 0.0

    def look(self) -> list[StackSum]:
        self._renew()
        begun = time.thread_time()
        if time.monotonic() >= self._again_at:
            recorded = profiling.recorded(self._live, self._live.mean())
            found = weights.weigh(stacks.named(recorded, self._binaries), None, "in-use")
            self._found = [StackSum(each.now, _calls(each)) for each in found]
            spent = time.thread_time() - begun
            self._again_at = time.monotonic() + min(spent / NAMING_SHARE, MOST_S)
        return self._found

    def end(self) -> None:
        try:
            self._live.end()
        finally:
            self._live.close()

    def _renew(self) -> None:
        until = self._live.until()
        is_the_programs = until == 0 and self._live.mean() != 0
        if not is_the_programs and until < (time.monotonic() + RENEW_S) * 1000:
            self._live.begin(MEAN, HOLD_S)


def _calls(weight: Weight) -> str:
    return " < ".join(brief(each.name) for each in reversed(weight.frames))
