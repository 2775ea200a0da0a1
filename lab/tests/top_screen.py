# SPDX-License-Identifier: MIT OR Apache-2.0
"""Drives the screen of ebb top: presses keys, waits, reads it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from textual.pilot import Pilot
from top_data import (
    Source,
    screen,
    unsampled,
)

from ebbtide_lab.inspect.heap import Heap
from ebbtide_lab.show.top.app import Top
from ebbtide_lab.show.top.feed import News

PATIENCE = 1500  # looks of 0.02 s: for a machine that is busy
Play = Callable[[Top, Pilot[None]], Coroutine[Any, Any, None]]


def play(app: Top, steps: Play, size: tuple[int, int] = (80, 24), told: bool = False) -> None:
    async def run() -> None:
        async with app.run_test(size=size, notifications=told) as pilot:
            await pilot.pause()
            await steps(app, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    for _ in range(PATIENCE):
        if holds():
            return
        await pilot.pause(0.02)
    raise AssertionError(screen(pilot.app))


def app_of(*several: Heap, source: Source | None = None) -> Top:
    """Which the feed tells the first of them, and the test the others."""
    return Top(several[0], source or Source(several[:1]), unsampled, 3600)


async def tell(app: Top, pilot: Pilot[None], news: News) -> None:
    app.post_message(Top.Told(news))
    await pilot.pause()
    await pilot.pause()


def shows(app: Top, text: str) -> bool:
    return any(text in line for line in screen(app))


def rows(app: Top, lines: list[str] | None = None) -> list[str]:
    """Of the table, without its headings."""
    lines = lines or screen(app)
    at = next(at for at, line in enumerate(lines) if "▼" in line or "▲" in line)
    return [line.strip() for line in lines[at + 1 : -1] if line.strip()]
