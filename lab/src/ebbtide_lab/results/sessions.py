# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sessions that the checkout keeps: results/sessions.toml, and a summary for each."""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.results import journal, summary
from ebbtide_lab.results.summary import Summary

LIST = "sessions.toml"


@dataclass(frozen=True)
class Session:
    folder: Path
    subject: str
    summary: Summary


def read_all(results: Path) -> list[Session]:
    """Each kept session with its summary, made anew from its report."""
    path = results / LIST
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["session"]
        return [_session(results / each["folder"], each) for each in entries]
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise LabError(f"cannot read {path}: {error}") from error


def _session(folder: Path, entry: dict[str, str]) -> Session:
    report = summary.of_report((folder / summary.REPORT).read_text(encoding="utf-8"))
    made = replace(report, series=_series(folder), allocators=_versions(folder), how=entry["how"])
    return Session(folder, entry["subject"], made)


def _series(folder: Path) -> dict[str, summary.Series]:
    """From the runs, or, where they are not kept, from the summary that was made with them."""
    if journal.has_runs(folder):
        return summary.series_of(journal.load(folder))
    return summary.load(folder).series if (folder / summary.SUMMARY).is_file() else {}


def _versions(folder: Path) -> dict[str, str]:
    _, arms = journal.load_machine(folder)
    return {arm.name: arm.version for arm in arms}
