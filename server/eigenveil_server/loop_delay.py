"""How late the event loop is: what runs on it for long keeps every caller waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

EVERY_SECONDS = 0.05


class LoopDelay:
    """Tells `observe`, from `start` to `stop`, by how many seconds each turn began too late."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + EVERY_SECONDS
        self._timer = loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        self._observe(max(0.0, asyncio.get_running_loop().time() - due))
        self.start()

    def stop(self) -> None:
        self._timer.cancel()
