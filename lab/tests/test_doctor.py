# SPDX-License-Identifier: MIT OR Apache-2.0
"""Machines made of files, each with something wrong."""

import json
import os
import signal
from pathlib import Path

import pytest
from conftest import invoke

from ebbtide_lab.base.layout import Layout
from ebbtide_lab.machine import card, doctor, limits, noise
from ebbtide_lab.machine.doctor import Finding, Machine

CPU = "sys/devices/system/cpu"
HEALTHY = {
    "proc/cpuinfo": "processor : 0\nmodel name : Sandpiper 9\nflags : fpu sse2\n",
    "proc/meminfo": "MemAvailable: 9000000 kB\nSwapTotal: 2000 kB\nSwapFree: 2000 kB\n",
    "proc/loadavg": "0.02 0.10 0.20 1/100 99\n",
    "proc/stat": "cpu 100 0 100 800 0 0 0 0 0 0\n",
    "proc/1/cgroup": "0::/init.scope\n",
    "proc/self/cgroup": "0::/a/b\n",
    "proc/sys/vm/overcommit_memory": "0\n",
    "proc/sys/kernel/randomize_va_space": "2\n",
    "proc/sys/kernel/perf_event_paranoid": "1\n",
    "sys/bus/event_source/devices/cpu/type": "4\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    f"{CPU}/online": "0-1\n",
    f"{CPU}/intel_pstate/no_turbo": "1\n",
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
}


def lay_out(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def machine(root: Path, files: dict[str, str], **environment: str) -> Machine:
    return Machine(lay_out(root, files), environment, cores=2, steal_wait_s=0)


def findings(root: Path, files: dict[str, str], **environment: str) -> dict[str, Finding]:
    return {each.name: each for each in doctor.examine(machine(root, files, **environment))}


def test_ctrl_c_leaves_the_noise_out(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(noise, "measure", interrupted)
    done = invoke(layout, "doctor")
    assert done.exit_code == 128 + signal.SIGINT
    assert "governor" in done.output
    assert "Aborted" not in done.output
    facts = json.loads(invoke(layout, "doctor", "--json").output)
    assert facts["findings"]
    assert facts["noise"] is None


def test_a_healthy_machine_is_good(tmp_path: Path) -> None:
    found = findings(tmp_path, HEALTHY)
    tools = set(doctor.TOOLS)
    assert {name for name, each in found.items() if each.state != "good"} <= tools
    assert found["processor"].value == "Sandpiper 9"


def test_a_machine_that_tells_nothing_is_unknown_and_no_crash(tmp_path: Path) -> None:
    found = findings(tmp_path, {})
    for name in ("cores", "governor", "turbo", "steal time", "load", "huge pages", "swap"):
        assert found[name].state == "unknown"
    assert card.describe(card.card(tmp_path, {}))


@pytest.mark.parametrize("text", ["", "\x00\n", "cpu\n", "a b c d e f g h i\n", ":::\n", "-1\n"])
def test_files_of_nonsense_are_no_crash(tmp_path: Path, text: str) -> None:
    found = findings(tmp_path, dict.fromkeys(HEALTHY, text))
    assert found["steal time"].state == "unknown"
    assert limits.memory_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("wrong", "name", "state", "advice"),
    [
        ({f"{CPU}/online": "0-3"}, "cores", "note", "taskset"),
        ({f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave"}, "governor", "bad", "cpupower"),
        ({f"{CPU}/intel_pstate/no_turbo": "0"}, "turbo", "note", "echo 1 |"),
        ({"proc/cpuinfo": "flags : fpu hypervisor"}, "virtual machine", "note", "interleaved"),
        ({"proc/1/cgroup": "0::/docker/77"}, "container", "note", ""),
        ({"proc/loadavg": "3.5 1 1 1/1 1"}, "load", "bad", "top"),
        ({"proc/meminfo": "MemAvailable: 99 kB"}, "free memory", "bad", "ps aux"),
        ({"proc/meminfo": "SwapTotal: 2000 kB\nSwapFree: 0 kB"}, "swap", "bad", "swapoff"),
        ({"proc/sys/vm/overcommit_memory": "2"}, "overcommit", "bad", "sysctl"),
        ({"proc/sys/kernel/randomize_va_space": "0"}, "address randomisation", "bad", "sysctl"),
        ({"proc/sys/kernel/perf_event_paranoid": "4"}, "hardware counters", "note", "sysctl"),
        (
            {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never"},
            "huge pages",
            "note",
            "echo madvise",
        ),
        (
            {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"},
            "clock source",
            "bad",
            "echo tsc",
        ),
        ({"sys/fs/cgroup/a/cpu.max": "150000 100000"}, "limits of the group", "bad", "outside"),
        ({"sys/fs/cgroup/a/b/memory.max": "900000000"}, "limits of the group", "note", "outside"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(
    tmp_path: Path, wrong: dict[str, str], name: str, state: str, advice: str
) -> None:
    found = findings(tmp_path, {**HEALTHY, **wrong})[name]
    assert found.state == state
    assert advice in found.advice


def test_the_switch_of_other_drivers_is_the_other_way_round(tmp_path: Path) -> None:
    files = {**HEALTHY, f"{CPU}/cpufreq/boost": "1"}
    del files[f"{CPU}/intel_pstate/no_turbo"]
    found = findings(tmp_path, files)["turbo"]
    assert (found.value, found.advice[:8]) == ("on", "echo 0 |")


def test_variables_of_allocators_are_told(tmp_path: Path) -> None:
    found = findings(tmp_path, HEALTHY, MALLOC_ARENA_MAX="1", EBB_PURGE="0", HOME="/")
    assert found["environment"].value == "EBB_PURGE=0, MALLOC_ARENA_MAX=1"
    assert found["environment"].advice == "unset EBB_PURGE MALLOC_ARENA_MAX"


def test_steal_is_a_share_of_the_ticks_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pass_time(_: float) -> None:
        lay_out(tmp_path, {"proc/stat": "cpu 150 0 100 840 0 0 0 10 50 0\n"})

    monkeypatch.setattr("ebbtide_lab.machine.doctor.time.sleep", pass_time)
    found = findings(tmp_path, HEALTHY)["steal time"]
    assert (found.value, found.state) == ("10.0 %", "bad")


def test_limits_of_version_2_are_the_least_on_the_way_up(tmp_path: Path) -> None:
    lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/memory.max": "1000",
            "sys/fs/cgroup/a/b/memory.max": "max",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000",
            "sys/fs/cgroup/a/cpu.max": "50000 100000",
            "sys/fs/cgroup/other/memory.max": "5",
        },
    )
    assert limits.memory_bytes(tmp_path) == 1000
    assert limits.cpu_cores(tmp_path) == 0.5


def test_limits_of_version_1(tmp_path: Path) -> None:
    lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/job\n1:cpu,cpuacct:/job\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2000",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "250000",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
        },
    )
    assert limits.memory_bytes(tmp_path) == 2000
    assert limits.cpu_cores(tmp_path) == 2.5


def test_missing_tools_are_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = findings(tmp_path, HEALTHY)
    assert found["valgrind"].state == "bad"
    assert "install valgrind" in found["valgrind"].advice


def test_the_card_has_what_a_report_cites(tmp_path: Path) -> None:
    facts = card.card(lay_out(tmp_path, HEALTHY), {"EBB_PURGE": "0"})
    assert set(card.STABLE) <= set(facts)
    assert facts["thp"] == "madvise"
    assert facts["turbo"] == "off"
    assert facts["environment"] == {"EBB_PURGE": "0"}
    assert "NOT A RESULT" in card.describe({**facts, card.PLANTED: 3})
    assert "NOT A RESULT" not in card.describe({**facts, card.PLANTED: 0})


def test_noise_of_known_times() -> None:
    still = noise.judge(0, [0.001] * 80)
    slow = noise.judge(1, [0.001] * 40 + [0.0012] * 40)
    assert (still.median_ms, still.spread_percent, still.worst_percent) == (1.0, 0.0, 0.0)
    assert noise.level_percent([still]) == pytest.approx(0)
    assert noise.level_percent([still, slow]) == pytest.approx(20)


def test_one_slow_loop_is_the_worst_but_not_the_level() -> None:
    core = noise.judge(0, [0.001] * 79 + [0.002])
    assert core.worst_percent == pytest.approx(100)
    assert noise.level_percent([core]) == pytest.approx(0)


def test_measuring_noise_leaves_the_affinity_as_it_was() -> None:
    before = os.sched_getaffinity(0)
    measured = noise.measure(0.0)
    assert os.sched_getaffinity(0) == before
    assert {core.core for core in measured.cores} == before
    assert all(core.loops >= noise.MIN_LOOPS for core in measured.cores)


def test_ebb_doctor_examines_this_machine(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebbtide_lab.machine.doctor.time.sleep", lambda _: None)
    result = invoke(layout, "doctor", "--seconds", "0")
    assert result.exit_code == 0, result.output
    assert "mean nothing here" in result.output


def test_ebb_doctor_speaks_json(layout: Layout) -> None:
    facts = json.loads(invoke(layout, "doctor", "--seconds", "0", "--json").output)
    assert {"huge pages", "kernel", "steal time"} <= {each["name"] for each in facts["findings"]}
    assert facts["noise"]["level_percent"] >= 0
