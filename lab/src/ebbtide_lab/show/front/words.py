# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the README and the page of figures say about a summary, in sentences and tables."""

import re
from dataclasses import dataclass

from ebbtide_lab.arms.allocators import EBBTIDE, FLOOR, is_peer
from ebbtide_lab.results.summary import ALONE, LOSES, NOISE, Ratio, Summary, Workload
from ebbtide_lab.show.report.grid import grid
from ebbtide_lab.show.units import ABSENT

VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
MARKS = {LOSES: "▼ ", NOISE: "≈ ", ALONE: "? "}
FAMILIES = {"ebbtide": "Ebbtide", "glibc": "glibc"}


@dataclass(frozen=True)
class Best:
    """The peer that is the hardest to beat in one figure of one workload."""

    arm: str
    ratio: Ratio


def name_of(summary: Summary, arm: str) -> str:
    """With its version; the digits in an arm's own name are a lab's shorthand for one."""
    if arm == EBBTIDE:
        return FAMILIES[arm]
    version = VERSION.search(summary.allocators.get(arm, ""))
    return f"{re.sub(r'[0-9]+$', '', arm)} {version[0]}" if version else arm


def peers(summary: Summary) -> list[str]:
    return [arm for arm in summary.allocators if is_peer(arm) and arm != FLOOR]


def best(ratios: dict[str, Ratio]) -> Best | None:
    """By the ratio, whether or not it is beyond noise."""
    compared = [arm for arm in ratios if is_peer(arm) and arm != "A/A"]
    if not compared:
        return None
    hardest = max(compared, key=lambda arm: ratios[arm].value)
    return Best(hardest, ratios[hardest])


def worst_loss(ratios: dict[str, Ratio]) -> Best | None:
    """The largest that is beyond noise."""
    return best({arm: each for arm, each in ratios.items() if each.state == LOSES})


def counts(summary: Summary, kind: str) -> dict[str, int]:
    """Comparisons with a peer by their state."""
    found: dict[str, int] = {}
    for workload in summary.workloads:
        ratios: dict[str, Ratio] = getattr(workload, kind)
        for arm, each in ratios.items():
            if is_peer(arm) and arm != "A/A":
                found[each.state] = found.get(each.state, 0) + 1
    return found


def number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def ratio(found: Best | None, summary: Summary) -> str:
    """As in `▼ 1.54 [1.28..1.75] glibc 2.36`."""
    if found is None:
        return ABSENT
    each = found.ratio
    span = f" [{number(each.low)}..{number(each.high)}]" if each.low and each.high else ""
    return f"{MARKS.get(each.state, '')}{number(each.value)}{span} {name_of(summary, found.arm)}"


def losses(summary: Summary, kind: str) -> list[tuple[Workload, Best]]:
    """Workloads that lose beyond noise, the worst first."""
    found = [(each, worst_loss(getattr(each, kind))) for each in summary.workloads]
    lost = [(workload, loss) for workload, loss in found if loss]
    return sorted(lost, key=lambda each: -each[1].ratio.value)


def table(heads: list[str], rows: list[list[str]]) -> str:
    return grid(heads, rows)
