# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb charts: the README's charts and figures, from the kept sessions; the page of verbs."""

from pathlib import Path

import click

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.layout import find_root
from ebbtide_lab.cli import reference
from ebbtide_lab.results import sessions, summary
from ebbtide_lab.results.sessions import Session
from ebbtide_lab.show.front import charts, page, readme, words

COMMANDS = "docs/reference/cli.md"


@click.command("charts")
@click.option(
    "--check", is_flag=True, help="Write nothing; fail if a file is not what it should be."
)
def charts_command(check: bool) -> None:
    """Write the README's charts and figures, docs/figures.md, each session's summary, and the
    page of this command's verbs."""
    root = find_root()
    wanted = {**files(root), root / COMMANDS: reference.render(_verbs())}
    stale = {path: text for path, text in wanted.items() if _read(path) != text}
    if check and stale:
        names = ", ".join(str(path.relative_to(root)) for path in stale)
        raise LabError(f"not what the sessions say: {names}; run `ebb charts`")
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
        click.echo(path.relative_to(root))


def files(root: Path) -> dict[Path, str]:
    """What each file should hold."""
    kept = sessions.read_all(root / "results")
    drawn = {root / "docs" / "figures" / name: text for name, text in _charts(kept).items()}
    front = root / "README.md"
    return {
        **{each.folder / summary.SUMMARY: summary.text_of(each.summary) for each in kept},
        **drawn,
        front: readme.fill(_read(front), readme.blocks(kept)),
        root / "docs" / "figures.md": page.render(kept),
    }


def _verbs() -> click.Group:
    """The command that this is a verb of."""
    command = click.get_current_context().find_root().command
    if not isinstance(command, click.Group):
        raise LabError("`ebb charts` runs as a verb of `ebb`")
    return command


def _charts(kept: list[Session]) -> dict[str, str]:
    burst, corpus = (readme.of_set(kept, name).summary for name in (readme.BURST, readme.CORPUS))
    return {
        **charts.both(
            charts.tide(readme.burst_series(burst), lambda arm: words.name_of(burst, arm)), "tide"
        ),
        **charts.both(charts.means(corpus, lambda arm: words.name_of(corpus, arm)), "means"),
        **charts.both(charts.spread(corpus, lambda arm: words.name_of(corpus, arm)), "spread"),
    }


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
