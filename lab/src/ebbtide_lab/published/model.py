# SPDX-License-Identifier: MIT OR Apache-2.0
"""Published tables are data: this reads and checks the TOML files that hold them.

A line of a table has the figures as they were published, and names the
scenario and the figure that measure the same today; or the reason why nothing can.
Remarks and reasons have names and are shown as numbered notes.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ebbtide_lab.base.errors import LabError

DOCUMENTS = Path(__file__).resolve().parent
SCENARIO_SET = "published"
HOURS_SET = "hours"  # what takes an hour for each arm; not of the one run
SETS = (SCENARIO_SET, HOURS_SET)
AGAINST = ("change", "share")  # of two scenarios
AT = ("run", "percentile", "below")  # which run; which percentile of a histogram, which bound
STATISTICS = ("median", "mean", "min", "max", "stddev", "cv", "count", *AGAINST, *AT)
NOT_MEASURED = "Cannot be measured here: "
DIRECTIONS = ("more", "less", "neither")
# What a line takes from its table unless it says otherwise.
INHERITED = (
    *("scenario", "figure", "statistic", "scale", "better", "against", "relative_to", "reason"),
)


@dataclass(frozen=True)
class Line:
    """One row. `change` and `share` are in percent of the scenario `against`; a figure
    `relative_to` an arm is in percent of that arm's; `also`: the mean over these scenarios
    too; `count`: of the runs that ended well; `at` tells which run, or where in the
    histogram that `figure` names; `better` tells in which direction."""

    label: str
    published: list[str]
    scenario: str = ""
    figure: str = ""
    statistic: str = "median"
    scale: float = 1.0
    better: str = "more"
    at: float = 0.0
    against: str = ""
    relative_to: str = ""
    also: list[str] = field(default_factory=list)
    reason: str = ""
    remarks: list[str] = field(default_factory=list)

    @property
    def measured(self) -> list[str]:
        """Every scenario whose figures the line is made of."""
        return [name for name in (self.scenario, *self.also, self.against) if name]

    @property
    def notes(self) -> list[str]:
        return [*self.remarks, *([self.reason] if self.reason else [])]

    def check(self, where: str, columns: int, remarks: set[str], reasons: set[str]) -> None:
        where = f"{where}, {self.label}"
        if len(self.published) != columns:
            raise LabError(
                f"{where}: {len(self.published)} published figures for {columns} columns"
            )
        if bool(self.scenario) == bool(self.reason):
            raise LabError(f"{where}: either a scenario or the reason why there is none")
        if self.reason and self.reason not in reasons:
            raise LabError(f"{where}: no reason is called {self.reason}")
        if self.scenario:
            self._check_figure(where)
        check_remarks(where, self.remarks, remarks)

    def _check_figure(self, where: str) -> None:
        if not self.figure:
            raise LabError(f"{where}: the figure is missing")
        if self.statistic not in STATISTICS or self.better not in DIRECTIONS:
            raise LabError(f"{where}: unknown statistic or direction")
        if (self.statistic in AGAINST) != bool(self.against):
            raise LabError(f"{where}: `against` belongs to change and share, and only there")
        if (self.statistic in AT) != bool(self.at):
            raise LabError(f"{where}: `at` belongs to run, percentile and below, and only there")


@dataclass(frozen=True)
class Table:
    title: str
    unit: str
    columns: list[str]
    lines: list[Line]
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Document:
    number: str
    title: str
    remarks: dict[str, str]
    reasons: dict[str, str]
    tables: list[Table]

    def note(self, name: str) -> str:
        """What a remark or a reason of this name says."""
        if name in self.reasons:
            return NOT_MEASURED + self.reasons[name]
        return self.remarks[name]


def check_remarks(where: str, names: list[str], known: set[str]) -> None:
    unknown = set(names) - known
    if unknown:
        raise LabError(f"{where}: no remark is called {', '.join(sorted(unknown))}")


def _table(data: dict[str, Any], where: str, remarks: set[str], reasons: set[str]) -> Table:
    defaults = {name: data.pop(name) for name in INHERITED if name in data}
    where = f"{where}, {data.get('title', '(no title)')}"
    try:
        lines = [Line(**{**defaults, **each}) for each in data.pop("line", [])]
        table = Table(lines=lines, **data)
    except TypeError as error:
        raise LabError(f"{where}: {error}") from error
    check_remarks(where, table.remarks, remarks)
    for each in lines:
        each.check(where, len(table.columns), remarks, reasons)
    return table


def load(path: Path) -> Document:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        remarks: dict[str, str] = data["remarks"]
        reasons: dict[str, str] = data.get("reasons", {})
        if set(remarks) & set(reasons):
            raise LabError(f"{path.name}: a remark and a reason have the same name")
        tables = [_table(each, path.name, set(remarks), set(reasons)) for each in data["table"]]
        return Document(path.stem, data["title"], remarks, reasons, tables)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}") from error
    except KeyError as error:
        raise LabError(f"{path.name}: {error} is missing") from error


def load_all() -> list[Document]:
    return [load(path) for path in sorted(DOCUMENTS.glob("*.toml"))]
