# SPDX-License-Identifier: MIT OR Apache-2.0
"""What ends a measurement early and keeps what is finished: Ctrl-C, and SIGTERM taken as it is."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM."""


class Interrupt:
    """`signal` is the one that ended the block, or 0."""

    signal = 0


@contextmanager
def kept() -> Iterator[Interrupt]:
    """Goes on behind the block when it is interrupted."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    seen = Interrupt()
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield seen
    except KeyboardInterrupt as error:
        seen.signal = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
    finally:
        signal.signal(signal.SIGTERM, before)
