# SPDX-License-Identifier: MIT OR Apache-2.0
"""A command under callgrind: what it counted in all, and in the code of each object."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ebbtide_lab.base.errors import RunError
from ebbtide_lab.measure.process import TIMEOUT_S, ExitError, finish
from ebbtide_lab.results.model import Figures

# Of callgrind's events: Ir instructions, D data (r read, w written), I1 D1 LL first-level and
# last-level misses, B branches (c conditional, i indirect) and their mispredictions.
EVENTS = {
    "instructions": ("Ir",),
    "loads": ("Dr",),
    "load_misses": ("D1mr",),
    "d1_misses": ("D1mr", "D1mw"),
    "ll_references": ("I1mr", "D1mr", "D1mw"),
    "ll_misses": ("DLmr", "DLmw"),
    "branches": ("Bc", "Bi"),
    "mispredicts": ("Bcm", "Bim"),
}
COST = tuple("0123456789+-*")  # how the line of a cost begins: with its position


@dataclass(frozen=True)
class Profile:
    """`objects`: by the file that the instructions are in, what they call left out."""

    totals: Figures
    objects: dict[str, Figures]

    def of(self, file: Path) -> Figures:
        """Of one object; nothing when none of its code ran."""
        whole = file.resolve()
        found = [each for name, each in self.objects.items() if Path(name).resolve() == whole]
        return found[0] if found else dict.fromkeys(EVENTS, 0.0)


def count(
    command: list[str],
    settings: dict[str, str],
    scratch: Path,
    timeout_s: float | None = TIMEOUT_S,
) -> tuple[str, Profile]:
    """What a command prints under callgrind, and what callgrind counted. Caches and branches
    are simulated."""
    log, out = scratch / "callgrind.log", scratch / "callgrind.out"
    callgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
    callgrind += ["--cache-sim=yes", "--branch-sim=yes", f"--log-file={log}"]
    try:
        output = finish([*callgrind, *command], timeout_s, env=settings, cwd=scratch)
    except ExitError as error:
        raise RunError(f"{error}; {_last_words(log)}") from error
    return output, read_profile(out.read_text(encoding="utf-8"))


def _last_words(log: Path) -> str:
    """Whether valgrind itself died or the program under it."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return "callgrind ended with " + repr(lines[-1]) if lines else "callgrind wrote no line"


def read_profile(text: str) -> Profile:
    """From callgrind's own file: `ob=` begins an object, `calls=` stands before a line with
    the cost of what is called, which the called one has already."""
    events: list[str] = []
    names: dict[str, str] = {}
    objects: dict[str, Counter[str]] = {}
    own: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    is_of_call = False
    for line in text.splitlines():
        key, _, rest = line.partition("=")
        if line.startswith("events: "):
            events = line.split()[1:]
        elif line.startswith("totals: "):
            totals = _costs(line, events)
        elif key in ("ob", "cob"):
            name = _name(rest, names)
            own = objects.setdefault(name, Counter()) if key == "ob" else own
        elif line.startswith(COST):
            own.update({} if is_of_call else _costs(line, events))
        is_of_call = key == "calls"
    if not totals:
        raise RunError("callgrind did not tell what it counted")
    return Profile(_figures(totals), {name: _figures(each) for name, each in objects.items()})


def _name(text: str, names: dict[str, str]) -> str:
    """`(3) name` the first time, `(3)` from then on."""
    number, _, name = text.partition(" ")
    return names.setdefault(number, name)


def _costs(line: str, events: list[str]) -> Counter[str]:
    """Behind the position; zeros at the end are left out."""
    return Counter(dict(zip(events, map(int, line.split()[1:]), strict=False)))


def _figures(costs: Counter[str]) -> Figures:
    return {name: float(sum(costs[event] for event in EVENTS[name])) for name in EVENTS}
