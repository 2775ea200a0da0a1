# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows of samples: one row for each scenario, one sample for each run of an arm."""

from dataclasses import dataclass, field, replace

from ebbtide_lab.arms.allocators import Allocator
from ebbtide_lab.scenarios.model import Scenario

Figures = dict[str, float]


@dataclass(frozen=True)
class Histogram:
    """Recorded values in HdrHistogram's bucket layout: counts by index of the bucket."""

    lowest: int
    highest: int
    significant_figures: int
    counts: list[tuple[int, int]]


@dataclass(frozen=True)
class Sample:
    """What one run told. `figures` always has cpu, wall and peak_rss_kb, but for runs
    under a counting tool, whose times mean nothing. A series has one value per
    `series_step_s` seconds."""

    figures: Figures
    series: dict[str, list[float]] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    series_step_s: float = 1.0


@dataclass(frozen=True)
class Refusal:
    """Instead of a sample: the program says that its scheme cannot do this work."""

    reason: str


@dataclass
class Row:
    """All that is known of one scenario, by arm: samples, why a run failed, and why an arm
    cannot run it at all, by what its program said."""

    group: str
    scenario: Scenario
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    @property
    def not_run(self) -> dict[str, str]:
        """Arms that this row is not for, with the reason."""
        return {**self.scenario.without, **self.refusals}

    def costs(self, arm: str, name: str | None = None) -> list[float]:
        """What the scenario is judged by, or another figure; less is better."""
        return self.figure(arm, name or self.scenario.cost)

    def figure(self, arm: str, name: str) -> list[float]:
        """The figure of each run; empty when one of the runs does not have it."""
        samples = self.samples.get(arm, [])
        if any(name not in each.figures for each in samples):
            return []
        return [each.figures[name] for each in samples]


@dataclass
class Results:
    rows: list[Row]
    arms: list[Allocator]
    facts: dict[str, object]
    interrupted: int = 0  # the signal that ended the session early


def same_work(one: Scenario, other: Scenario) -> bool:
    """Whether samples of both may stand in one row: how often it runs, how long that
    is thought to take, which arms are asked, scoped ones or not, and which bars it must meet
    do not change what is measured."""
    return _work(one) == _work(other)


def _work(scenario: Scenario) -> Scenario:
    return replace(scenario, runs=1, estimate_s=0, scoped=False, arms=[], bars=[])
