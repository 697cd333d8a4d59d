"""Waking whoever waits for something to change."""

from __future__ import annotations

import asyncio
import contextlib


class Bell:
    """Look, then `wait`, then look again: no ring between the look and the wait is missed, because
    both happen without giving up the event loop in between."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake everybody who waits now."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float | None) -> None:
        """Return at the next ring, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
