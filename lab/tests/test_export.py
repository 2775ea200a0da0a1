# SPDX-License-Identifier: MIT OR Apache-2.0
"""ebb export: on made-up heaps, and on processes that answer, end, sleep, or have no Ebbtide."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner, Result
from heap_data import GROWS, heap, label, totals
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families
from test_profile_live import under_ebbtide
from test_stalls import WAITS, build, started
from verbs import fault_of

from ebbtide_lab.base.layout import find_root
from ebbtide_lab.cli import export
from ebbtide_lab.cli.main import main
from ebbtide_lab.inspect import control, processes, scraping
from ebbtide_lab.inspect.control import NoAnswer
from ebbtide_lab.inspect.heap import Heap, SizeClass
from ebbtide_lab.inspect.processes import Found, Listing
from ebbtide_lab.inspect.scraping import REASONS, Round, Seen, Watch
from ebbtide_lab.inspect.stalls import Stalls
from ebbtide_lab.show.metrics import FAILURES_NAME, METRICS, registry_of

PACKAGED = find_root() / "packaging" / "metrics"
PAGE = find_root() / "docs" / "metrics.md"
NAME = re.compile(r"\bebbtide_[a-z_]+\b")
EXPORTED = {each.name for each in METRICS} | {FAILURES_NAME}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def ebb(*arguments: object) -> Result:
    return CliRunner(env={"NO_COLOR": "1"}).invoke(main, ["export", *map(str, arguments)])


def fault(*arguments: object) -> str:
    return fault_of(ebb(*arguments))


def samples(text: str) -> Samples:
    """Fails when one is there twice, as Prometheus does."""
    found = [
        ((each.name, frozenset(each.labels.items())), each.value)
        for family in text_string_to_metric_families(text)
        for each in family.samples
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def one(found: Samples, name: str, **labels: str) -> float:
    """The value of the only sample with these labels, among others."""
    wanted = set(labels.items())
    (value,) = [each for key, each in found.items() if key[0] == name and wanted <= key[1]]
    return value


def registry(*found: Heap, pins: Stalls | None = None, **failures: int) -> Any:  # noqa: ANN401
    seen = [Seen(each, pins) for each in found]
    return registry_of(lambda: Round(seen, dict.fromkeys(REASONS, 0) | failures))


def text_of(*found: Heap, pins: Stalls | None = None, **failures: int) -> str:
    return generate_latest(registry(*found, pins=pins, **failures)).decode()


# --- metrics ------------------------------------------------------------------------

WHOLE = heap(
    SizeClass(64, 1, 10, 20, 30, 1000, 320),
    labels=[label('a"b\\c\nd', 9, open=2, demoted=3), label("orders", 8, True, live_bytes=4)],
    totals=totals(
        purged_bytes=77,
        cached_bytes=1 << 20,
        span_bytes=3 << 20,
        dirty_bytes=1000,
        pinned_bytes=320,
    ),
)


def test_every_number_is_in_its_place() -> None:
    found = samples(text_of(WHOLE, pins=Stalls(5, 123, 2, []), ended=2))
    assert one(found, "ebbtide_resident_bytes", pid="7", comm="server") == 64 << 20
    assert one(found, "ebbtide_live_bytes") == 640
    assert one(found, "ebbtide_cached_bytes") == 1280
    assert one(found, "ebbtide_spare_bytes") == 1 << 20
    assert one(found, "ebbtide_spans_bytes") == 2 << 20
    assert one(found, "ebbtide_free_bytes", state="dirty") == 1000
    assert one(found, "ebbtide_free_bytes", state="pinned") == 320
    assert one(found, "ebbtide_free_bytes", state="clean") == 600
    assert one(found, "ebbtide_returned_bytes_total") == 77
    assert one(found, "ebbtide_page_faults_total", kind="minor") == 10
    assert one(found, "ebbtide_page_faults_total", kind="major") == 1
    assert one(found, "ebbtide_class_live_bytes", block_bytes="64") == 640
    assert one(found, "ebbtide_class_idle_bytes", block_bytes="64") == 50 * 64
    assert one(found, "ebbtide_class_pinned_bytes", block_bytes="64") == 320
    assert one(found, "ebbtide_label_held_bytes", label='a"b\\c\nd', kind="region") == 9
    assert one(found, "ebbtide_label_live_bytes", label="orders", kind="domain") == 4
    assert one(found, "ebbtide_label_open", kind="region") == 2
    assert one(found, "ebbtide_label_demoted_slabs", kind="region") == 3
    assert one(found, "ebbtide_oldest_pin_seconds") == 0
    assert one(found, "ebbtide_retired_bytes") == 123
    assert one(found, FAILURES_NAME, reason="ended") == 2
    assert {key[0] for key in found} == EXPORTED


def test_openmetrics_is_read_by_its_own_parser() -> None:
    text = openmetrics.generate_latest(registry(WHOLE, heap(pid=8))).decode()
    families = list(openmetrics_parser.text_string_to_metric_families(text))
    assert {each.name for each in families} == {each.removesuffix("_total") for each in EXPORTED}


def test_nothing_seen_is_no_sample_but_the_failures() -> None:
    assert {key[0] for key in samples(text_of())} == {FAILURES_NAME}


def test_labels_of_one_text_are_one_sample() -> None:
    found = samples(text_of(heap(labels=[label("same", 1), label("same", 2)])))
    assert one(found, "ebbtide_label_held_bytes", label="same") == 3


def test_names_and_help_keep_to_the_conventions() -> None:
    for each in METRICS:
        assert re.fullmatch(r"ebbtide_[a-z]+(_[a-z]+)*", each.name)
        units = {"bytes": "_bytes", "seconds": "_seconds", "their number": ""}
        unit = next(unit for unit in units if unit in each.help)
        assert units[unit] in each.name
        assert each.help.endswith(".")


# --- dashboard, alerts, page --------------------------------------------------------


def expressions() -> Iterator[str]:
    dashboard = json.loads((PACKAGED / "ebbtide-dashboard.json").read_text())
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for panel in dashboard["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        yield from (each["expr"] for each in panel["targets"])
    yield from (each["query"]["query"] for each in variables.values() if each["type"] == "query")
    rules = yaml.safe_load((PACKAGED / "ebbtide-alerts.yml").read_text())["groups"][0]["rules"]
    assert [each["alert"] for each in rules] == ["EbbtideIdleMemory", "EbbtideOldPin"]
    for each in rules:
        assert each["annotations"].keys() == {"summary", "description"}
        yield each["expr"]


def test_dashboard_and_alerts_use_what_is_exported() -> None:
    used = list(expressions())
    assert len(used) > 10
    for each in used:
        assert NAME.findall(each), each
        assert each.count("(") == each.count(")")
        assert set(NAME.findall(each)) <= EXPORTED


def test_every_metric_is_documented_and_no_other() -> None:
    page = PAGE.read_text()
    table = page.partition("## The metrics")[2]
    rows = re.findall(r"^\| `(ebbtide_[a-z_]+)` \| ([^|]*)\|", table, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(EXPORTED)
    labels = {name: tuple(re.findall(r"`(\w+)`", more)) for name, more in rows}
    assert labels == {each.name: each.labels for each in METRICS} | {FAILURES_NAME: ("reason",)}
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) >= set(REASONS)
    for each in (path.name for path in PACKAGED.iterdir()):
        assert each in page


# --- rounds -------------------------------------------------------------------------


def listing(*pids: int, hidden: int = 0) -> Listing:
    return Listing([Found(pid, "program", 1, "/lib/libebbtide.so", "") for pid in pids], hidden)


def failures(found: Round) -> dict[str, int]:
    return {reason: count for reason, count in found.failures.items() if count}


def test_one_that_ends_or_has_no_ebbtide_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        under_ebbtide(GROWS, tmp_path, monkeypatch) as pid,
        started(build(WAITS, tmp_path / "plain")) as plain,
        closing(Watch(None)) as watch,
    ):
        monkeypatch.setattr(processes, "everywhere", lambda: listing(pid, plain, 4194400, hidden=5))
        first, second = watch.round(), watch.round()
    for found in (first, second):
        assert [each.heap.pid for each in found.seen] == [pid]
        assert failures(found) == {"unreadable": 1, "ended": 1, "no_permission": 5}


def test_one_that_has_ended_is_not_mistaken_for_the_next_of_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with under_ebbtide(GROWS, tmp_path, monkeypatch) as pid:
        watch = Watch(pid)
        assert [each.heap.pid for each in watch.round().seen] == [pid]
        watch._close_all_but(set())
        monkeypatch.setattr(scraping.heap, "start_ticks", lambda _: 1)
        again = watch.round()
    assert (again.seen, failures(again)) == ([], {"ended": 1})
    assert failures(watch.round()) == {"ended": 1}
    watch.close()
    assert watch.round().seen == []


def test_one_that_does_not_answer_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "silent").mkdir()
    with (
        under_ebbtide(GROWS, tmp_path, monkeypatch) as pid,
        under_ebbtide(WAITS, tmp_path / "silent", monkeypatch) as silent,
        closing(Watch(None)) as watch,
    ):
        monkeypatch.setattr(processes, "everywhere", lambda: listing(silent, pid))
        found = watch.round()
        assert [each.heap.pid for each in found.seen] == [pid]
        assert failures(found) == {"no_answer": 1}
        monkeypatch.setattr(control, "ANSWERS_WITHIN_S", 0.2)
        monkeypatch.setattr(scraping, "WITHIN_S", 0)
        assert failures(watch.round())["too_slow"] >= 1


def test_who_answers_is_seen_however_many_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, answering = set(range(1, 31)), {31, 32}
    looks: list[int] = []

    def look(pid: int) -> str:
        looks.append(pid)
        if pid in silent:
            time.sleep(0.3)
            raise NoAnswer(f"process {pid} does not answer")
        return f"process {pid}"

    monkeypatch.setattr(scraping, "MOST_AT_ONCE", 4)
    monkeypatch.setattr(scraping, "WITHIN_S", 0.45)
    monkeypatch.setattr(processes, "everywhere", lambda: listing(*silent, *answering))
    with closing(Watch(None)) as watch:
        monkeypatch.setattr(watch, "_target", lambda pid: pid)
        monkeypatch.setattr(scraping, "_seen", lambda pid: Seen(cast("Heap", look(pid)), None))
        rounds = []
        for _ in range(8):
            rounds.append([each.heap for each in watch.round().seen])
            while watch._looks:
                time.sleep(0.01)
    assert rounds[0] == []
    assert rounds[-3:] == [["process 31", "process 32"]] * 3
    assert silent <= set(looks), "those that never answer are asked, too"


def test_two_rounds_at_once_share_their_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, rounds = [], []
    both, is_looking = threading.Barrier(2, timeout=60), threading.Event()
    look = scraping._seen

    def counted(target: Any) -> Seen:  # noqa: ANN401
        looks.append(target)
        is_looking.set()
        both.wait()  # the second round has begun
        return look(target)

    with under_ebbtide(GROWS, tmp_path, monkeypatch) as pid, closing(Watch(pid)) as watch:
        monkeypatch.setattr(scraping, "_seen", counted)
        begin = watch._begin

        def begun(pids: set[int]) -> Any:  # noqa: ANN401
            rounds.append(pids)
            is_second = len(rounds) == 2
            found = begin(pids)
            if is_second:
                both.wait()
            return found

        monkeypatch.setattr(watch, "_begin", begun)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(watch.round)
            assert is_looking.wait(60)
            second = pool.submit(watch.round)
            found = first.result(), second.result()
    assert len(looks) == 1
    assert found[0].seen == found[1].seen != []


class SeesNothing:
    """In the place of a Watch."""

    def round(self) -> Round:
        return Round([], dict.fromkeys(REASONS, 0))

    def close(self) -> None:
        pass


# --- the command --------------------------------------------------------------------


@contextmanager
def exporting(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    code = "from ebbtide_lab.cli.main import main; main()"
    command = [sys.executable, "-c", code, "export", *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tool:
        try:
            assert tool.stdout is not None
            line = tool.stdout.readline()
            found = re.fullmatch(r"Metrics are at (http://\S+/metrics)\n", line)
            assert found, line
            yield tool, found[1]
        finally:
            tool.kill()


def scrape(url: str, accept: str = "") -> str:
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def test_a_process_is_served_until_and_after_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        under_ebbtide(GROWS, tmp_path, monkeypatch) as pid,
        exporting(pid, "--listen", "127.0.0.1:0") as (tool, url),
    ):
        with ThreadPoolExecutor(2) as pool:
            texts = list(pool.map(scrape, [url, url]))
        for text in texts:
            found = samples(text)
            assert one(found, "ebbtide_resident_bytes", pid=str(pid), comm="program") > 0
            assert sum(each for key, each in found.items() if key[0] == FAILURES_NAME) == 0
        newer = scrape(url, "application/openmetrics-text; version=1.0.0")
        assert list(openmetrics_parser.text_string_to_metric_families(newer))
        os.kill(pid, signal.SIGKILL)
        found = samples(scrape(url))
        assert one(found, FAILURES_NAME, reason="ended") == 1
        assert not [key for key in found if key[0] == "ebbtide_resident_bytes"]
        tool.send_signal(signal.SIGTERM)
        output, errors = tool.communicate(timeout=60)
    assert (tool.returncode, output, errors) == (0, "", "")


def test_one_path_is_served_and_its_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        under_ebbtide(GROWS, tmp_path, monkeypatch) as pid,
        exporting(pid, "--listen", "127.0.0.1:0") as (_, url),
    ):
        for path in ("/", "/metric", "/metrics/", "/favicon.ico"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                scrape(url.removesuffix("/metrics") + path)
        for method in ("OPTIONS", "POST", "DELETE"):
            with pytest.raises(urllib.error.HTTPError, match="405") as refused:
                urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60)
            assert refused.value.headers["Allow"] == "GET, HEAD"
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert int(answer.headers["Content-Length"]) > 1000
            assert answer.read() == b""


def test_ctrl_c_ends_it_well_and_ipv6_is_spoken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
    with (
        under_ebbtide(GROWS, tmp_path, monkeypatch) as pid,
        exporting(pid, "--listen", "[::1]:0") as (tool, url),
    ):
        assert url.startswith("http://[::1]:")
        assert one(samples(scrape(url)), "ebbtide_threads") > 0
        tool.send_signal(signal.SIGINT)
        assert tool.communicate(timeout=60) == ("", "")
    assert tool.returncode == 0


def test_the_text_file_is_there_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "collected"
    folder.mkdir()
    with under_ebbtide(GROWS, tmp_path, monkeypatch) as pid:
        for _ in range(2):
            done = ebb(pid, "--textfile", folder)
            assert (done.exit_code, done.output) == (0, "")
            assert [each.name for each in folder.iterdir()] == [export.FILE_NAME]
            found = samples((folder / export.FILE_NAME).read_text())
            assert one(found, "ebbtide_resident_bytes", pid=str(pid)) > 0
        assert (folder / export.FILE_NAME).stat().st_mode & 0o444
        assert "cannot write" in fault(pid, "--textfile", tmp_path / "none")
        assert "cannot write /proc/ebbtide.prom" in fault(pid, "--textfile", "/proc")
        assert "Not a directory" in fault(pid, "--textfile", folder / export.FILE_NAME)


def test_the_text_file_is_written_again_and_a_full_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second write fails, the third does not, the fourth wait is ended by Ctrl-C."""
    writes, waits, replace = [], [], Path.replace

    def full_once(path: Path, target: Path) -> Path:
        writes.append(target)
        if len(writes) == 2:
            raise OSError(28, "No space left on device")
        return replace(path, target)

    def sleep(seconds: float) -> None:
        if seconds != 60:
            return real(seconds)
        waits.append([each.name for each in tmp_path.glob("*.prom*")])
        if len(waits) == 3:
            raise KeyboardInterrupt
        return None

    real = time.sleep
    monkeypatch.setattr(export, "Watch", lambda _: SeesNothing())
    monkeypatch.setattr(Path, "replace", full_once)
    monkeypatch.setattr(time, "sleep", sleep)
    done = ebb("--all", "--textfile", tmp_path, "--every", 60)
    assert done.exit_code == 0
    assert done.output == (
        f"Warning: cannot write {tmp_path / export.FILE_NAME}: No space left on device\n"
    )
    assert waits == [[export.FILE_NAME]] * 3
    writes[:] = [tmp_path]
    assert "No space left on device" in fault("--all", "--textfile", tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [export.FILE_NAME]


def test_addresses_that_are_none_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "Watch", lambda _: SeesNothing())
    for address in ("", "9464", "localhost", "localhost:", ":65536", "[::1:9464", "::1:9464", ":x"):
        assert "is no address: give HOST:PORT" in fault("--all", "--listen", address)
    assert "cannot listen at 203.0.113.9:9464: " in fault("--all", "--listen", "203.0.113.9:9464")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot listen at {where}: Address already in use" in fault(
            "--all", "--listen", where
        )

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(export, "make_server", refuse)
    assert "cannot listen at 0.0.0.0:80: Permission denied" in fault("--all", "--listen", ":80")


def test_what_cannot_be_exported_is_told_at_once(tmp_path: Path) -> None:
    assert "no process has the number 4194400" in fault(4194400, "--listen", ":0")
    with started(build(WAITS, tmp_path / "plain")) as pid:
        assert f"process {pid} has no Ebbtide in it" in fault(pid, "--textfile", tmp_path)
    for wrong in (
        [],
        ["--all"],
        [1, "--all", "--listen", ":0"],
        ["--all", "--listen", ":0", "--textfile", tmp_path],
        ["--all", "--listen", ":0", "--every", 1],
        ["--all", "--textfile", tmp_path, "--every", 0],
    ):
        assert ebb(*wrong).exit_code == 2
