# SPDX-License-Identifier: MIT OR Apache-2.0
"""The accounts of a heap as a file, to be compared with later ones."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from types import UnionType
from typing import TypeVar, get_type_hints

from ebbtide_lab.base.errors import LabError
from ebbtide_lab.base.text import shown
from ebbtide_lab.inspect.heap import Heap, SizeClass, ThreadHeap, Totals
from ebbtide_lab.inspect.labels import NO_REST, Label

SCHEMA = 2
MARK = "ebbtide_heap_snapshot"  # its value is the schema
SUFFIX = ".ebb.json"
LEFT_OUT = ("rest", "others")  # a file has all labels
MOST = 1 << 64  # no number of a process is as large

Record = TypeVar("Record", Heap, Totals, SizeClass, ThreadHeap, Label)


def file_names(heap: Heap) -> Iterator[Path]:
    """PID-DATE-TIME, and where others have that, the same with 1, 2 and so on behind it."""
    name = f"{heap.pid}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(heap.taken))}"
    yield Path(f"{name}{SUFFIX}")
    for number in count(1):
        yield Path(f"{name}-{number}{SUFFIX}")


def to_text(heap: Heap) -> str:
    facts = {name: value for name, value in asdict(heap).items() if name not in LEFT_OUT}
    return json.dumps({MARK: SCHEMA, **facts}, indent=1) + "\n"


def read(path: Path) -> Heap:
    """LabError: there is no such file, it is none, or one that a later version wrote."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise LabError(f"{path} is no snapshot of ebb: it is not JSON") from error
    schema = facts.pop(MARK, None) if isinstance(facts, dict) else None
    if not isinstance(schema, int):
        raise LabError(f"{path} is no snapshot of ebb: it has no {MARK}")
    if schema != SCHEMA:
        what = "update it" if schema > SCHEMA else "take the snapshot anew"
        raise LabError(f"{path} has schema {schema}, and this ebb reads {SCHEMA}: {what}")
    try:
        totals = _made(Totals, facts["totals"])
        classes = [_made(SizeClass, each) for each in facts["classes"]]
        heaps = [_made(ThreadHeap, each) for each in facts["heaps"]]
        labels = [_made(Label, each) for each in facts["labels"]]
        made = {"totals": totals, "classes": classes, "heaps": heaps, "labels": labels}
        return _made(Heap, facts | dict.fromkeys(LEFT_OUT), **made, rest=NO_REST, others=[])
    except KeyError as error:
        raise LabError(f"{path} is a damaged snapshot: it has no {error.args[0]}") from error
    except TypeError as error:
        raise LabError(f"{path} is a damaged snapshot: {error}") from error


def _made(kind: type[Record], facts: object, **made: object) -> Record:
    """TypeError: a field is missing, unknown, or of another type. `made` stands for its own."""
    hints = get_type_hints(kind)
    if not isinstance(facts, dict) or facts.keys() != hints.keys():
        raise TypeError(f"the fields of a {kind.__name__} are other ones")
    for name, value in facts.items():
        if name not in made and not _fits(value, hints[name]):
            raise TypeError(f"{name} cannot be {value!r:.40}")
    texts = {name: shown(each) for name, each in facts.items() if isinstance(each, str)}
    return kind(**{**facts, **texts, **made})


def _fits(value: object, hint: type | UnionType) -> bool:
    if isinstance(value, bool):
        return hint is bool
    if isinstance(value, int | float):
        is_kind = isinstance(value, hint) or isinstance(0.0, hint)  # 1 is a float, too
        return is_kind and 0 <= value < MOST
    return isinstance(value, hint)
