# SPDX-License-Identifier: MIT OR Apache-2.0
"""`ebb trace info --html`: a recording as one page, style and drawings inside."""

from dataclasses import dataclass

from markupsafe import Markup

from ebbtide_lab.measure.tracing import Info
from ebbtide_lab.show import templates
from ebbtide_lab.show.recordings import lifetime_rows, sentences, size_rows
from ebbtide_lab.show.report import charts
from ebbtide_lab.show.report.charts import Line, Scales

MIB = 1 << 20


@dataclass(frozen=True)
class Histogram:
    title: str
    unit: str
    rows: list[tuple[str, int]]

    @property
    def most(self) -> int:
        return max((count for _, count in self.rows), default=1)

    @property
    def total(self) -> int:
        return max(sum(count for _, count in self.rows), 1)


def render(info: Info) -> str:
    environment = templates.environment(autoescape=True)
    histograms = [
        Histogram("Sizes", "objects made or resized", size_rows(info)),
        Histogram("Lifetimes in events", "objects that ended", lifetime_rows(info)),
    ]
    return (
        environment.get_template("recording.html.j2")
        .render(info=info, sentences=sentences(info), histograms=histograms, live=_draw_live(info))
        .lstrip()
    )


def _draw_live(info: Info) -> Markup:
    """The drawing comes from charts.py, which escapes."""
    steps = _steps(info.live)
    seconds = [at_us * 1e-6 for at_us, _ in steps]
    mebibytes = [live / MIB for _, live in steps]
    scales = Scales("seconds since the first event", "MiB live")
    return Markup(charts.lines([Line("live", seconds, mebibytes, None)], scales))


def _steps(live: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is live stays so until the next sample: no slope through a pause."""
    steps = live[:1]
    for at_us, value in live[1:]:
        steps += [(at_us, steps[-1][1]), (at_us, value)]
    return steps
