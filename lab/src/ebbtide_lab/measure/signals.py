# SPDX-License-Identifier: MIT OR Apache-2.0
"""Signals that are taken one by one instead of ending this tool, beside a command that runs."""

import os
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType

from ebbtide_lab.base.errors import RunError

# Python ignores them, a program is not to.
OURS = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass
class Child:
    """`status`: once it is over; as a shell has it, 128 + N for one that a signal ended."""

    pid: int
    status: int = 0
    _is_over: bool = False

    def is_over(self) -> bool:
        return self._is_over or self._wait(os.WNOHANG)

    def end_group(self, number: int) -> None:
        """Of one in a session of its own that is not over."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        self.end_group(signal.SIGKILL)
        self._wait(0)

    def _wait(self, options: int) -> bool:
        ended, found = os.waitpid(self.pid, options)
        if ended:
            code = os.waitstatus_to_exitcode(found)
            self.status, self._is_over = code if code >= 0 else 128 - code, True
        return self._is_over


class Signals:
    """From the beginning of the block to its end these wait until they are taken."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._numbers = numbers

    def __enter__(self) -> "Signals":
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        while self.take(0):
            pass  # too late for whom it was meant
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def take(self, within_s: float) -> signal.struct_siginfo | None:
        return signal.sigtimedwait(self._numbers, within_s)

    def start(
        self, command: Sequence[str], environment: dict[str, str], in_own_session: bool = False
    ) -> Child:
        """With the signals as they were before the block."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it loses us the status
        try:
            pid = os.posix_spawnp(
                command[0],
                list(command),
                environment,
                setsigmask=self._mask,
                setsigdef=OURS,
                setsid=in_own_session,
            )
        except OSError as error:
            raise RunError(f"cannot start {command[0]}: {error.strerror}") from error
        return Child(pid)
