# SPDX-License-Identifier: MIT OR Apache-2.0
"""Made-up heaps, and a program whose heap grows when it is told to."""

import os
import signal
from dataclasses import replace
from typing import Any

from ebbtide_lab.inspect.heap import Heap, SizeClass, Totals
from ebbtide_lab.inspect.labels import Label

GROWS = """
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *sleeps(void *none) { for (;;) pause(); return none; }
int main(void)
{
    pthread_t thread;
    sigset_t one;
    int number;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigprocmask(SIG_BLOCK, &one, NULL);
    pthread_create(&thread, NULL, sleeps, NULL);
    puts("ready");
    fflush(stdout);
    sigwait(&one, &number);
    for (int i = 0; i < 300; i++) {
        char *volatile block = malloc(48000);
        block[0] = 1;
    }
    for (;;) pause();
}
"""


def label(name: str, held: int, is_domain: bool = False, **others: Any) -> Label:  # noqa: ANN401
    numbers = dict.fromkeys(("open", "opened", "closed", "drained", "released", "slabs"), 0)
    numbers |= dict.fromkeys(("demoted", "late", "refused"), 0)
    facts: dict[str, Any] = {"drain_share": None, "live_bytes": None, "oldest_ms": None}
    return Label(
        **(
            {"label": name, "is_domain": is_domain, "held_bytes": held, "peak_bytes": held}
            | numbers
            | facts
            | others
        )
    )


def totals(**numbers: int) -> Totals:
    names = Totals.__dataclass_fields__
    return Totals(**{name: numbers.get(name, 0) for name in names})


def heap(*classes: SizeClass, labels: list[Label] | None = None, **others: Any) -> Heap:  # noqa: ANN401
    """Totals that are given as `totals` are added to those of the classes."""
    sums = totals(
        live_bytes=sum(each.live_bytes for each in classes),
        cached_bytes=sum(each.cached_blocks * each.block_bytes for each in classes),
        free_bytes=sum(each.free_blocks * each.block_bytes for each in classes),
        slabs=sum(each.slabs for each in classes),
        class_count=len(classes),
    )
    more = others.pop("totals", totals())
    added = {name: getattr(sums, name) + getattr(more, name) for name in sums.__dict__}
    found = Heap(
        pid=7,
        name="server",
        library="/lib/libebbtide.so.0.1.0",
        version="0.1.0",
        taken=1000.0,
        resident_bytes=64 << 20,
        threads=3,
        minor_faults=10,
        major_faults=1,
        totals=Totals(**added),
        classes=list(classes),
        labels=labels or [],
        start_ticks=99,
    )
    return replace(found, **others)


def grow(pid: int) -> None:
    """Returns when it may be growing."""
    os.kill(pid, signal.SIGUSR1)
