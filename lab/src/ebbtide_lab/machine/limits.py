# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the control groups of this process allow it, of version 2 or of version 1.

A limit of a group binds all groups below, so the least on the way to the root counts.
"""

from collections.abc import Iterator
from pathlib import Path

from ebbtide_lab.machine import kernel

MOUNT = "sys/fs/cgroup"
NO_LIMIT_BYTES = 1 << 60  # version 1 writes "no limit" as a huge number


def memory_bytes(root: Path) -> int | None:
    texts = [kernel.read(folder, "memory.max") for folder in _folders(root, "")]
    texts += [kernel.read(folder, "memory.limit_in_bytes") for folder in _folders(root, "memory")]
    found = [limit for limit in map(kernel.number, texts) if limit is not None]
    return min((limit for limit in found if limit < NO_LIMIT_BYTES), default=None)


def cpu_cores(root: Path) -> float | None:
    """The processor time allowed, in cores."""
    pairs = [kernel.read(folder, "cpu.max") for folder in _folders(root, "")]
    for folder in _folders(root, "cpu"):
        quota, period = (kernel.read(folder, f"cpu.cfs_{n}_us") for n in ("quota", "period"))
        pairs.append(f"{quota} {period}")
    return min((share for share in map(_share, pairs) if share is not None), default=None)


def _share(pair: str) -> float | None:
    """Quota over period; a quota that is no positive number is no limit."""
    quota, _, period = pair.partition(" ")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """This process' group of a controller and those above; "" is version 2."""
    for line in kernel.read(root, "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            mount = root / MOUNT / controller
            own = mount / path.lstrip("/")
            yield from (each for each in (own, *own.parents) if each.is_relative_to(mount))
