# SPDX-License-Identifier: MIT OR Apache-2.0
"""What ends a measurement early and keeps what is finished: Ctrl-C, SIGTERM, SIGHUP."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """Another signal than Ctrl-C's, `number`."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Interrupt:
    """`signal` is the one that ended the block, or 0."""

    signal = 0


@contextmanager
def kept() -> Iterator[Interrupt]:
    """Goes on behind the block when it is interrupted."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise Terminated(number)

    seen = Interrupt()
    taken = [each for each in ENDS if signal.getsignal(each) != signal.SIG_IGN]  # as under nohup
    before = [signal.signal(each, interrupt) for each in taken]
    try:
        yield seen
    except KeyboardInterrupt as error:
        seen.signal = error.number if isinstance(error, Terminated) else signal.SIGINT
    finally:
        for each, handler in zip(taken, before, strict=True):
            signal.signal(each, handler)
