# SPDX-License-Identifier: MIT OR Apache-2.0
"""How well a replay ranks allocators as the program itself does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

FIGURES = {"cpu": "CPU time", "peak_rss_kb": "peak memory"}
# Of a time the least run: what disturbs a run only adds to it, and a program's times differ by
# less between allocators than by that.
TYPICAL: dict[str, Callable[[list[float]], float]] = {"cpu": min, "peak_rss_kb": median}
ENOUGH = 0.8

Runs = Mapping[str, Sequence[Mapping[str, float]]]  # by arm: figures of each run


@dataclass(frozen=True)
class Agreement:
    """Of one figure: Spearman's coefficient, and the arms from the least to the most."""

    figure: str
    spearman: float
    program: list[str]
    replay: list[str]
    typical: dict[str, tuple[float, float]]  # of the program, of the replay


def agree(program: Runs, replay: Runs) -> list[Agreement]:
    """Over the arms that both have."""
    return [_agree(figure, program, replay) for figure in FIGURES]


def _agree(figure: str, program: Runs, replay: Runs) -> Agreement:
    arms = [arm for arm in program if arm in replay]
    typical = TYPICAL[figure]
    ran = {arm: typical([run[figure] for run in program[arm]]) for arm in arms}
    replayed = {arm: typical([run[figure] for run in replay[arm]]) for arm in arms}
    return Agreement(
        figure,
        spearman([ran[arm] for arm in arms], [replayed[arm] for arm in arms]),
        sorted(arms, key=ran.__getitem__),
        sorted(arms, key=replayed.__getitem__),
        {arm: (ran[arm], replayed[arm]) for arm in arms},
    )


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """The correlation of ranks; equal values share the mean of theirs."""
    one, other = _ranks(left), _ranks(right)
    middle = (len(one) + 1) / 2
    above = sum((a - middle) * (b - middle) for a, b in zip(one, other, strict=True))
    spread = sum((a - middle) ** 2 for a in one) * sum((b - middle) ** 2 for b in other)
    return above / spread**0.5 if spread > 0 else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    first = {value: at + 1 for at, value in reversed(list(enumerate(ordered)))}
    return [first[value] + (ordered.count(value) - 1) / 2 for value in values]
