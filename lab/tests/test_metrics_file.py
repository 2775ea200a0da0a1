# SPDX-License-Identifier: MIT OR Apache-2.0
"""EBB_METRICS_FILE: the library's own file says what `ebb export` says, by the same names."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from heap_data import GROWS
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as of_prometheus
from test_profile_live import under_ebbtide

from ebbtide_lab.inspect.scraping import Watch
from ebbtide_lab.show.metrics import METRICS, registry_of

# What only a look from outside knows.
OUTSIDE = {"ebbtide_resident_bytes", "ebbtide_page_faults", "ebbtide_threads"}
# A label that is no ASCII and has what ends a value.
REGIONS = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
typedef void *opens(const void *), *takes(void *, unsigned long);
void *volatile kept;
int main(void)
{
    opens *open = (opens *)dlsym(RTLD_DEFAULT, "ebb_region_open");
    takes *take = (takes *)dlsym(RTLD_DEFAULT, "ebb_region_alloc");
    struct { const char *label; unsigned long more[8]; } options = {"a\\"b\\\\c%\\xc3\\xa9", {0}};
    void *region = open ? open(&options) : NULL;
    kept = region ? take(region, 100) : NULL;
    kept = malloc(5000000);
    puts("ready");
    fflush(stdout);
    for (;;) { sleep(1); free(malloc(300000)); }
}
"""


@contextmanager
def writing(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[int, Path]]:
    options = {"EBB_METRICS_FILE": f"{folder}/m.%p.prom", "EBB_METRICS_MS": "1000"}
    with under_ebbtide(source, folder, monkeypatch, **options) as pid:
        yield pid, folder / f"m.{pid}.prom"


def next_text(path: Path) -> str:
    """Of a file that is written from now on."""
    with path.open() as held:  # else the next one might have its number
        before = os.fstat(held.fileno()).st_ino
        while path.stat().st_ino == before:
            time.sleep(0.05)
    return path.read_text()


def families(text: str) -> dict[str, Metric]:
    return {each.name: each for each in text_string_to_metric_families(text)}


def test_it_says_what_an_export_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(GROWS, tmp_path, monkeypatch) as (pid, path):
        next_text(path)
        written = families(next_text(path))
        watch = Watch(pid)
        try:
            exported = {each.name: each for each in registry_of(watch.round).collect()}
        finally:
            watch.close()
    exported = {name: each for name, each in exported.items() if name != "ebbtide_scrape_failures"}
    assert exported.keys() - written.keys() == OUTSIDE
    assert written.keys() <= exported.keys()
    assert len(written) == len(METRICS) - len(OUTSIDE)
    for name, mine in written.items():
        theirs = exported[name]
        assert (mine.type, mine.documentation) == (theirs.type, theirs.documentation)
        keys = [
            {(each.name, *sorted(each.labels.items())) for each in of.samples}
            for of in (mine, theirs)
        ]
        assert keys[0] == keys[1]
    for name in (
        "ebbtide_live_bytes",
        "ebbtide_heaps",
        "ebbtide_slabs",
        "ebbtide_class_live_bytes",
    ):
        assert [each.value for each in written[name].samples] == [
            each.value for each in exported[name].samples
        ]


def test_labels_and_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(REGIONS, tmp_path, monkeypatch) as (_, path):
        text = next_text(path)
    found = families(text)
    (held,) = found["ebbtide_label_held_bytes"].samples
    assert held.labels["label"] == 'a"b\\c%25%C3%A9'
    assert (held.labels["kind"], held.value) == ("region", 65536)
    (spans,) = found["ebbtide_spans_bytes"].samples
    assert spans.value > 5000000
    assert text.endswith("# EOF\n")
    older = {each.name for each in of_prometheus(text)}  # as node_exporter reads it
    assert found.keys() <= older | {
        "ebbtide_returned_bytes",
        "ebbtide_return_calls",
        "ebbtide_label_live_bytes",
    }
