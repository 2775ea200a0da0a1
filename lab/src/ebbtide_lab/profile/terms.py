# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lengths of time, as a profile tells ages and lifetimes (src/profile/profile.h)."""

from bisect import bisect_right

TERMS = ("<1ms", "<10ms", "<100ms", "<1s", "<10s", "<1min", "<1h", ">=1h")
ENDS_MS = (1, 10, 100, 1000, 10_000, 60_000, 3_600_000)
SHORT = TERMS[:4]  # within a second


def term(ns: int) -> str:
    return TERMS[bisect_right(ENDS_MS, ns // 1_000_000)]
