# SPDX-License-Identifier: MIT OR Apache-2.0
import random

import numpy as np
import pytest

from ebbtide_lab.judge.stats import MEDIAN, beyond_noise, modes, ratio, resampled


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


@pytest.mark.parametrize("runs", [1, 2])
def test_fewer_than_three_runs_on_either_side_give_no_interval(runs: int) -> None:
    many, few = [10.0, 10.1, 9.9], [20.0, 20.1][:runs]
    for found in (ratio(few, many), ratio(many, few)):
        assert not found.has_interval
        assert found.contains(1.0)
    assert ratio(many, many).has_interval


def test_ratio_repeats() -> None:
    assert ratio([1, 2, 3], [2, 3, 4]) == ratio([1, 2, 3], [2, 3, 4])


def test_two_modes_are_told_apart() -> None:
    assert modes([10, 10.1, 9.9, 20, 20.1, 19.9, 20.2]) == (10, 20.05)


def test_one_mode_is_one() -> None:
    assert modes([10, 10.1, 9.9, 10.05, 9.95, 10.2, 10.15]) is None
    assert modes([1, 2, 3]) is None


def test_rounds_are_drawn_for_all_arms_alike() -> None:
    arms = {"a": [1.0, 2.0, 3.0], "b": [10.0, 20.0, 30.0]}
    draws = resampled(np.random.default_rng(1), arms, MEDIAN)
    assert (draws["b"] == 10 * draws["a"]).all()
    assert set(draws["a"]) == {1.0, 2.0, 3.0}


def test_arms_with_unequal_runs_are_drawn_apart() -> None:
    arms = {"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0]}
    draws = resampled(np.random.default_rng(1), arms, MEDIAN)
    assert ((draws["a"] == 3.0) & (draws["b"] == 1.0)).any()


def test_values_apart_beyond_noise() -> None:
    assert beyond_noise([0.0, 0.1, -0.1], noise=0.02) == 0
    assert beyond_noise([0.0, 1.0, -1.0], noise=0.0) == pytest.approx(1.48, abs=0.01)
    assert beyond_noise([0.0, 0.0, 0.0, 9.0], noise=0.0) == 0  # one far out is none
