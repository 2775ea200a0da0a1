# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables that earlier systems published, each with today's figures beside them.

`tables` makes them of plain text, for whoever draws them; here they become a
terminal's tables and Markdown.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape as escape_markup
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from ebbtide_lab.arms.allocators import EBBTIDE, EBBTIDE_AGAIN
from ebbtide_lab.published.model import SETS, Document, Line, Table, load_all
from ebbtide_lab.results.model import Results
from ebbtide_lab.show import published_figures
from ebbtide_lab.show.fit import Grid
from ebbtide_lab.show.published_figures import FAILED, Rows
from ebbtide_lab.show.report.grid import escape, grid
from ebbtide_lab.show.units import ABSENT, DIRECTION

BEST = "*"  # marks the best peer of a row
RATIO = "to best"
LEGEND = (
    f"{BEST} is the best peer of the row; '{RATIO}' is Ebbtide's cost over that one's: of a "
    "rate, that one's over Ebbtide's."
)
GAP_COLUMNS = 2  # between two columns of the terminal's table


@dataclass(frozen=True)
class PublishedTable:
    """One table as text. The first column is the label, the next `published_columns` are the
    published; then Ebbtide, the ratio, and the peers. Labels hold the numbers of notes."""

    number: str
    document: str
    title: str
    unit: str
    published_columns: int
    headings: list[str]
    rows: list[list[str]]
    notes: list[str]
    runs: str
    noise: str


def _label(line: Line, numbers: dict[str, int]) -> str:
    told = ",".join(map(str, sorted(numbers[name] for name in line.notes)))
    return f"{line.label} [{told}]" if told else line.label


def _cells(line: Line, rows: Rows, peers: list[str]) -> Iterator[str]:
    best = published_figures.best(line, rows, peers)
    ratio = published_figures.ratio(line, rows, EBBTIDE, best)
    yield published_figures.cell(line, rows, EBBTIDE)
    yield ABSENT if ratio is None else f"{ratio:.2f}"
    for peer in peers:
        yield published_figures.cell(line, rows, peer) + (BEST if peer == best else "")


# --- one table --------------------------------------------------------------------


def _numbers(table: Table) -> dict[str, int]:
    """Remarks of the table first, then the notes of its lines, in the order of their use."""
    names = [*table.remarks, *(name for line in table.lines for name in line.notes)]
    return {name: number for number, name in enumerate(dict.fromkeys(names), 1)}


def _measured(table: Table, rows: Rows) -> set[str]:
    """The arms that ran in any line of the table, with success or without."""
    names = {name for line in table.lines for name in line.measured}
    found = [row for name, row in rows.items() if name in names]
    return {arm for row in found for arm in (*row.samples, *row.failures)}


def _runs(table: Table, rows: Rows) -> str:
    counts = {
        len(samples)
        for line in table.lines
        if line.scenario in rows
        for samples in rows[line.scenario].samples.values()
    }
    if not counts:
        return ""
    return f"{min(counts)}..{max(counts)}" if len(counts) > 1 else str(*counts)


def _noise(table: Table, rows: Rows) -> str:
    """Ebbtide against itself, lowest and highest of the rows; spreads say nothing here."""
    lines = [line for line in table.lines if line.statistic in ("median", "mean")]
    judged = [line for line in lines if line.better != "neither" and not line.relative_to]
    found = (published_figures.ratio(line, rows, EBBTIDE_AGAIN, EBBTIDE) for line in judged)
    ratios = [ratio for ratio in found if ratio is not None]
    return f"{min(ratios):.2f}..{max(ratios):.2f}" if ratios else ""


def _make(document: Document, table: Table, rows: Rows, arms: list[str]) -> PublishedTable:
    numbers = _numbers(table)
    measured = _measured(table, rows)
    peers = [arm for arm in arms if arm in measured - {EBBTIDE, EBBTIDE_AGAIN}]
    return PublishedTable(
        document.number,
        document.title,
        table.title,
        table.unit,
        len(table.columns),
        ["", *(f"published: {name}" for name in table.columns), "Ebbtide", RATIO, *peers],
        [
            [_label(line, numbers), *line.published, *_cells(line, rows, peers)]
            for line in table.lines
        ],
        [document.note(name) for name in numbers],
        _runs(table, rows),
        _noise(table, rows),
    )


def tables(results: Results) -> list[PublishedTable]:
    """The published tables of which something was measured. Of the documents that are shown
    also those tables of which nothing can be measured. Empty when nothing of the sets was
    measured."""
    rows = {row.scenario.name: row for row in results.rows if row.group in SETS}
    arms = [arm.name for arm in results.arms]
    return [
        _make(document, table, rows, arms)
        for document in load_all()
        if any(_measured(table, rows) for table in document.tables)
        for table in document.tables
        if _measured(table, rows) or not _measurable(table)
    ]


def _measurable(table: Table) -> bool:
    return any(line.scenario for line in table.lines)


def _caption(table: PublishedTable) -> str:
    parts = [table.unit]
    parts += [f"runs of each arm: {table.runs}"] if table.runs else []
    parts += [f"A/A by row: {table.noise}"] if table.noise else []
    return "; ".join(parts)


def _missing(results: Results) -> list[str]:
    return [f"missing: {arm.name}: {arm.problem}" for arm in results.arms if arm.problem]


def _by_document(found: list[PublishedTable]) -> Iterator[tuple[str, list[PublishedTable]]]:
    for number in dict.fromkeys(table.number for table in found):
        own = [table for table in found if table.number == number]
        yield f"Published {number}: {own[0].document}", own


# --- a terminal -------------------------------------------------------------------


def print_tables(results: Results, console: Console) -> None:
    """Prints nothing when nothing of the set was measured."""
    found = tables(results)
    for heading, own in _by_document(found):
        console.print(Text(f"\n{heading}", style="bold underline"))
        for table in own:
            _print_table(table, console)
    if found:
        console.print(Text("\n".join(["", LEGEND, *_missing(results)]), style="dim"))


def _print_table(table: PublishedTable, console: Console) -> None:
    console.print(Text(f"\n{table.title}", style="bold"))
    console.print(Text(_caption(table), style="dim"))
    blocks = split(table, console.width)
    if all(_width(table, columns) <= console.width for columns in blocks):
        for columns in blocks:
            console.print(_drawn(table, columns))
    else:
        _stacked(table).print(console)
    console.print(Text(DIRECTION, style="dim"))
    for number, note in enumerate(table.notes, 1):
        console.print(Padding(Text(f"[{number}] {note}", style="dim"), (0, 0, 0, 2), expand=False))


def split(table: PublishedTable, width: int) -> list[list[int]]:
    """Columns by block, so that each block fits the width; every block has the label."""
    blocks = [[0]]
    for at in range(1, len(table.headings)):
        if len(blocks[-1]) > 1 and _width(table, [*blocks[-1], at]) > width:
            blocks.append([0])
        blocks[-1].append(at)
    return blocks


def _width(table: PublishedTable, columns: list[int]) -> int:
    every = (table.headings, *table.rows)
    return sum(max(len(row[at]) for row in every) + GAP_COLUMNS for at in columns)


def _stacked(table: PublishedTable) -> Grid:
    """For a window that is narrower than a label and one column."""
    rows = [[escape_markup(cell) for cell in row] for row in table.rows]
    return Grid("", table.headings, rows=rows)


def _drawn(table: PublishedTable, columns: list[int]) -> RichTable:
    drawn = RichTable(box=None, pad_edge=False, padding=(0, GAP_COLUMNS, 0, 0))
    for at in columns:
        style = "cyan" if 0 < at <= table.published_columns else None
        drawn.add_column(
            Text(table.headings[at]), "", justify="right" if at else "left", style=style
        )
    for row in table.rows:
        drawn.add_row(*(_coloured(row[at]) for at in columns))
    return drawn


def _coloured(cell: str) -> Text:
    style = "red" if cell == FAILED else "bold" if cell.endswith(BEST) else ""
    return Text(cell, style=style)


# --- Markdown ---------------------------------------------------------------------


def markdown(results: Results) -> str:
    """The same tables as Markdown; an empty text when nothing was measured."""
    found = tables(results)
    parts: list[str] = []
    for heading, own in _by_document(found):
        parts += [f"## {heading}", *(_markdown_of(table) for table in own)]
    parts += [escape(LEGEND), *map(escape, _missing(results))] if found else []
    return "\n\n".join(parts) + "\n" if parts else ""


def _markdown_of(table: PublishedTable) -> str:
    headings = [escape(each) for each in table.headings]
    drawn = grid(headings, (map(escape, row) for row in table.rows))
    lines = [
        f"### {escape(table.title)}",
        "",
        escape(_caption(table)),
        "",
        drawn,
        "",
        DIRECTION,
        "",
    ]
    lines += [f"{number}. {escape(note)}" for number, note in enumerate(table.notes, 1)]
    return "\n".join(lines).rstrip()
