# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `ebb export` tells of each process, as metrics of Prometheus and OpenMetrics."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ebbtide_lab.inspect.accounts import Holding, accounts_of, holdings_of
from ebbtide_lab.inspect.scraping import Round, Seen

PROCESS = ("pid", "comm")
Family = CounterMetricFamily | GaugeMetricFamily
Samples = Iterable[tuple[tuple[str, ...], float]]  # values of the further labels, value


@dataclass(frozen=True)
class Metric:
    """`help` says the unit. Further labels come after those of the process."""

    name: str
    help: str
    of: Callable[[Seen], Samples]
    labels: tuple[str, ...] = ()

    def family(self) -> Family:
        is_counter = self.name.endswith("_total")
        kind = CounterMetricFamily if is_counter else GaugeMetricFamily
        return kind(self.name, self.help, labels=(*PROCESS, *self.labels))


def _one(number: Callable[[Seen], float]) -> Callable[[Seen], Samples]:
    return lambda seen: [((), number(seen))]


def _by_class(number: str) -> Callable[[Seen], Samples]:
    return lambda seen: [
        ((str(each.block_bytes),), getattr(each, number)) for each in seen.heap.classes
    ]


def _by_label(number: Callable[[Holding], int | None]) -> Callable[[Seen], Samples]:
    def samples(seen: Seen) -> Iterator[tuple[tuple[str, ...], float]]:
        for (label, is_domain), holding in holdings_of(seen.heap).items():
            value = number(holding)
            if value is not None:
                yield (label, "domain" if is_domain else "region"), value

    return samples


def _free(seen: Seen) -> Samples:
    accounts = accounts_of(seen.heap)
    states = ("dirty", "pinned", "clean")
    return [((state,), getattr(accounts, state)) for state in states]


def _faults(seen: Seen) -> Samples:
    return [(("minor",), seen.heap.minor_faults), (("major",), seen.heap.major_faults)]


LABEL = ("label", "kind")
METRICS = (
    Metric(
        "ebbtide_resident_bytes",
        "Resident memory of the process, in bytes.",
        _one(lambda seen: seen.heap.resident_bytes),
    ),
    Metric(
        "ebbtide_live_bytes",
        "Blocks of size classes in use, by their full size, in bytes.",
        _one(lambda seen: accounts_of(seen.heap).blocks),
    ),
    Metric(
        "ebbtide_spans_bytes",
        "Large objects, regions and the allocator's own data in use, in bytes of address space.",
        _one(lambda seen: accounts_of(seen.heap).spans),
    ),
    Metric(
        "ebbtide_huge_bytes",
        "Mappings of huge objects in use, in bytes of address space.",
        _one(lambda seen: accounts_of(seen.heap).huge),
    ),
    Metric(
        "ebbtide_huge_objects",
        "Huge objects in use, their number.",
        _one(lambda seen: seen.heap.totals.huge_count),
    ),
    Metric(
        "ebbtide_cached_bytes",
        "Free blocks in the caches of threads, in bytes.",
        _one(lambda seen: accounts_of(seen.heap).cached),
    ),
    Metric(
        "ebbtide_spare_bytes",
        "Freed large objects that threads keep, in bytes. Not in ebbtide_spans_bytes.",
        _one(lambda seen: accounts_of(seen.heap).spare),
    ),
    Metric(
        "ebbtide_free_bytes",
        "Free blocks in slabs, in bytes. State dirty: not yet returned to the system; pinned: on"
        " pages that blocks in use keep; clean: on pages that were returned or never touched.",
        _free,
        ("state",),
    ),
    Metric(
        "ebbtide_free_spans_bytes",
        "Free spans and kept mappings not yet returned to the system, in bytes.",
        _one(lambda seen: accounts_of(seen.heap).free_spans),
    ),
    Metric(
        "ebbtide_slab_bytes",
        "Slabs, in bytes of address space: blocks in use, cached and free ones, and headers.",
        _one(lambda seen: seen.heap.totals.slab_bytes),
    ),
    Metric(
        "ebbtide_slabs",
        "Slabs, their number.",
        _one(lambda seen: seen.heap.totals.slabs),
    ),
    Metric(
        "ebbtide_committed_bytes",
        "Address space of the arena made usable so far, in bytes.",
        _one(lambda seen: seen.heap.totals.committed_bytes),
    ),
    Metric(
        "ebbtide_reserved_bytes",
        "Address space of the arena, in bytes.",
        _one(lambda seen: seen.heap.totals.reserved_bytes),
    ),
    Metric(
        "ebbtide_huge_page_bytes",
        "Address space asked for as huge pages and not split since, in bytes.",
        _one(lambda seen: seen.heap.totals.asked_huge_bytes),
    ),
    Metric(
        "ebbtide_returned_bytes_total",
        "Memory returned to the system, in bytes.",
        _one(lambda seen: seen.heap.totals.purged_bytes),
    ),
    Metric(
        "ebbtide_return_calls_total",
        "System calls that returned spans, their number.",
        _one(lambda seen: seen.heap.totals.purges),
    ),
    Metric(
        "ebbtide_page_faults_total",
        "Page faults of the process, their number. Kind minor: without the disk; major: with it.",
        _faults,
        ("kind",),
    ),
    Metric(
        "ebbtide_threads",
        "Threads of the process, their number.",
        _one(lambda seen: seen.heap.threads),
    ),
    Metric(
        "ebbtide_heaps",
        "Heaps of threads, their number, those of ended threads included.",
        _one(lambda seen: seen.heap.totals.heaps),
    ),
    Metric(
        "ebbtide_class_live_bytes",
        "Blocks in use of one size class, in bytes.",
        _by_class("live_bytes"),
        ("block_bytes",),
    ),
    Metric(
        "ebbtide_class_idle_bytes",
        "Free blocks of one size class, in threads' caches and in slabs, in bytes.",
        _by_class("idle_bytes"),
        ("block_bytes",),
    ),
    Metric(
        "ebbtide_class_pinned_bytes",
        "Free blocks of one size class on pages that blocks in use keep, in bytes.",
        _by_class("pinned_bytes"),
        ("block_bytes",),
    ),
    Metric(
        "ebbtide_label_held_bytes",
        "Address space that the regions of one label, or a domain, hold, in bytes.",
        _by_label(lambda holding: holding.held_bytes),
        LABEL,
    ),
    Metric(
        "ebbtide_label_live_bytes",
        "Blocks in use in the regions of one label, or in a domain, in bytes. Left out where the"
        " process has not measured it.",
        _by_label(lambda holding: holding.live_bytes),
        LABEL,
    ),
    Metric(
        "ebbtide_label_open",
        "Open regions of one label, or open units of work of a domain, their number.",
        _by_label(lambda holding: holding.open),
        LABEL,
    ),
    Metric(
        "ebbtide_label_demoted_slabs",
        "Slabs that blocks which outlived their region or unit of work pin, their number.",
        _by_label(lambda holding: holding.demoted),
        LABEL,
    ),
    Metric(
        "ebbtide_oldest_pin_seconds",
        "For how long the oldest pin of reclamation lasts at least, in seconds. 0: no old one.",
        lambda seen: [((), seen.pins.oldest_ms / 1000)] if seen.pins else [],
    ),
    Metric(
        "ebbtide_retired_bytes",
        "Retired memory that waits for reclamation, in bytes.",
        lambda seen: [((), seen.pins.waiting_bytes)] if seen.pins else [],
    ),
)
FAILURES_NAME = "ebbtide_scrape_failures"
FAILURES_HELP = (
    "Processes left out of this scrape, their number. Reason ended, no_answer, too_slow,"
    " no_permission or unreadable."
)


class HeapCollector(Collector):
    """Looks at the processes whenever it is asked."""

    def __init__(self, look: Callable[[], Round]) -> None:
        self._look = look

    def describe(self) -> Iterable[Family]:
        return [*(each.family() for each in METRICS), _failures({})]

    def collect(self) -> Iterator[Family]:
        found = self._look()
        for metric in METRICS:
            family = metric.family()
            for seen in found.seen:
                process = (str(seen.heap.pid), seen.heap.name)
                for labels, value in metric.of(seen):
                    family.add_metric((*process, *labels), value)
            yield family
        yield _failures(found.failures)


def registry_of(look: Callable[[], Round]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(HeapCollector(look))
    return registry


def _failures(counts: dict[str, int]) -> Family:
    family = GaugeMetricFamily(FAILURES_NAME, FAILURES_HELP, labels=("reason",))
    for reason, count in counts.items():
        family.add_metric((reason,), count)
    return family
