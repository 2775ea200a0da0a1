# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where things are: the checkout, the library, the workload programs, the caches."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from ebbtide_lab.base.errors import LabError

PACKAGE = Path(__file__).resolve().parents[1]
SCENARIO_SETS = PACKAGE / "scenarios" / "sets"
WORKLOADS = PACKAGE / "workloads"
LIBRARY = "libebbtide.so"
CARRIED = PACKAGE / "lib"  # the library and the witness, in a wheel


def is_wheel() -> bool:
    """Installed with the library, without a checkout: for the verbs that need none."""
    return CARRIED.is_dir()


def find_root() -> Path:
    """The checkout that this package is part of."""
    root = PACKAGE.parents[2]
    if not (root / "lab" / "peers.toml").is_file():
        raise LabError(f"{root} is not a checkout of Ebbtide: it has no lab/peers.toml")
    return root


@dataclass(frozen=True)
class Layout:
    root: Path
    lib: Path
    programs: Path

    @classmethod
    def of(cls, lib: Path | None, programs: Path | None) -> "Layout":
        if is_wheel():
            given = programs.absolute() if programs else CARRIED
            return cls(CARRIED, lib or CARRIED / LIBRARY, given)
        root = find_root()
        release = root / "build" / "release"
        # Programs are started elsewhere: a place that the user gave must not depend on it.
        given = programs.absolute() if programs else release / "bench"
        return cls(root, lib or release / LIBRARY, given)

    @property
    def build(self) -> Path:
        return self.root / "build"

    @property
    def is_lib_given(self) -> bool:
        return self.lib != self.build / "release" / LIBRARY

    def program(self, name: str) -> Path:
        """A workload program or helper; builds all of them when one is missing."""
        path = self.programs / name
        if not path.is_file():
            self._build_programs()
        if not path.is_file():
            raise LabError(f"{path} is missing; is {name} a program of bench/?")
        return path

    def _build_programs(self) -> None:
        if self.programs != self.build / "release" / "bench":
            return
        commands = (
            ["cmake", "--preset", "release", "--log-level=WARNING"],
            ["cmake", "--build", "--preset", "release", "--target", "bench_programs"],
        )
        for command in commands:
            try:
                done = subprocess.run(
                    command, cwd=self.root, capture_output=True, text=True, check=False
                )
            except OSError as error:
                raise LabError(f"cannot build the workload programs: {error}") from error
            if done.returncode != 0:
                tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
                raise LabError(f"cannot build the workload programs:\n{tail}")
