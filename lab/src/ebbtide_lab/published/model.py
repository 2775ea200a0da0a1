# SPDX-License-Identifier: MIT OR Apache-2.0
"""Published tables are data: this reads and checks the TOML files that hold them.

A line of a table has the figures as they were published, and names the
scenario and the figure that measure the same today; or it says in `today` why there
is none. Remarks have names and are shown as numbered notes.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ebbtide_lab.base.errors import LabError

DOCUMENTS = Path(__file__).resolve().parent
SCENARIO_SET = "published"
STATISTICS = ("median", "mean", "min", "max", "stddev", "cv", "change")
DIRECTIONS = ("more", "less", "neither")
# What a line takes from its table unless it says otherwise.
INHERITED = ("figure", "statistic", "scale", "better")


@dataclass(frozen=True)
class Line:
    """One row. `change` is in percent of the scenario `against`; a figure `relative_to`
    an arm is in percent of that arm's; `better` tells in which direction."""

    label: str
    published: list[str]
    scenario: str = ""
    figure: str = ""
    statistic: str = "median"
    scale: float = 1.0
    better: str = "more"
    against: str = ""
    relative_to: str = ""
    today: str = ""
    remarks: list[str] = field(default_factory=list)

    def check(self, where: str, columns: int, known: set[str]) -> None:
        where = f"{where}, {self.label}"
        if len(self.published) != columns:
            raise LabError(
                f"{where}: {len(self.published)} published figures for {columns} columns"
            )
        if bool(self.scenario) == bool(self.today):
            raise LabError(f"{where}: either a scenario or why there is none today")
        if self.scenario and not self.figure:
            raise LabError(f"{where}: the figure is missing")
        if self.statistic not in STATISTICS or self.better not in DIRECTIONS:
            raise LabError(f"{where}: unknown statistic or direction")
        if (self.statistic == "change") != bool(self.against):
            raise LabError(f"{where}: `against` belongs to the statistic change, and only there")
        check_remarks(where, self.remarks, known)


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
    tables: list[Table]


def check_remarks(where: str, names: list[str], known: set[str]) -> None:
    unknown = set(names) - known
    if unknown:
        raise LabError(f"{where}: no remark is called {', '.join(sorted(unknown))}")


def _table(data: dict[str, Any], where: str, known: set[str]) -> Table:
    defaults = {name: data.pop(name) for name in INHERITED if name in data}
    where = f"{where}, {data.get('title', '(no title)')}"
    try:
        lines = [Line(**{**defaults, **each}) for each in data.pop("line", [])]
        table = Table(lines=lines, **data)
    except TypeError as error:
        raise LabError(f"{where}: {error}") from error
    check_remarks(where, table.remarks, known)
    for each in lines:
        each.check(where, len(table.columns), known)
    return table


def load(path: Path) -> Document:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        remarks: dict[str, str] = data["remarks"]
        tables = [_table(each, path.name, set(remarks)) for each in data["table"]]
        return Document(path.stem, data["title"], remarks, tables)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise LabError(f"cannot read {path}: {error}") from error
    except KeyError as error:
        raise LabError(f"{path.name}: {error} is missing") from error


def load_all() -> list[Document]:
    return [load(path) for path in sorted(DOCUMENTS.glob("*.toml"))]
