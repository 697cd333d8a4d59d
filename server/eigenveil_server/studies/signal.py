"""Waking whoever waits for something to change."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


class Signal:
    """Look, then `wait`, then look again: no ring between the look and the wait is missed, because
    both happen without giving up the event loop in between."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], str] = {}

    def ring(self, whom: str = "") -> None:
        """Wake everybody who waits now, or those who wait as `whom`."""
        for waiter, who in self._waiting.items():
            if whom in ("", who):
                _wake(waiter)

    async def wait(self, seconds: float, who: str = "") -> None:
        """Return at the next ring, or after `seconds`."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _wake, waiter)
        self._waiting[waiter] = who
        try:
            await waiter
        finally:
            timer.cancel()
            del self._waiting[waiter]


@dataclass(frozen=True, slots=True)
class Signals:
    """`work` rings for sites, `news` for whoever watches."""

    work: Signal = field(default_factory=Signal)
    news: Signal = field(default_factory=Signal)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
