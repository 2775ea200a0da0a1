# SPDX-License-Identifier: MIT OR Apache-2.0
import random

from ebbtide_lab.stats import modes, ratio


def test_ratio_of_equal_arms_contains_one() -> None:
    rng = random.Random(3)
    arms = [[rng.gauss(10, 0.3) for _ in range(9)] for _ in range(2)]
    found = ratio(*arms)
    assert found.contains(1.0)
    assert found.low < found.value < found.high


def test_ratio_sees_a_clear_difference() -> None:
    slow, fast = [11.0, 11.1, 10.9, 11.0, 11.2], [10.0, 10.1, 9.9, 10.0, 10.1]
    found = ratio(slow, fast)
    assert found.low > 1.05
    assert not found.contains(1.0)


def test_ratio_is_not_moved_by_one_outlier() -> None:
    assert ratio([10, 10, 10, 10, 500], [10, 10, 10, 10, 10]).value == 1.0


def test_ratio_repeats() -> None:
    assert ratio([1, 2, 3], [2, 3, 4]) == ratio([1, 2, 3], [2, 3, 4])


def test_two_modes_are_told_apart() -> None:
    assert modes([10, 10.1, 9.9, 20, 20.1, 19.9, 20.2]) == (10, 20.05)


def test_one_mode_is_one() -> None:
    assert modes([10, 10.1, 9.9, 10.05, 9.95, 10.2, 10.15]) is None
    assert modes([1, 2, 3]) is None
