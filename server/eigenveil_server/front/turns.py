"""Whose handshake begins: of each address so many a second, in the order in which they came.

A handshake costs the coordinator a millisecond or two before it knows who calls, so whoever begins them
without end would take all its time. Of the places before a handshake, the last waits for two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field

from eigenveil_server.front.allowance import Allowance

HANDSHAKES, HANDSHAKES_A_SECOND = 64.0, 120.0  # of one address


@dataclass(slots=True)
class _Queue:
    """Those of one address who wait, in their order."""

    allowance: Allowance = field(
        default_factory=lambda: Allowance(burst=HANDSHAKES, rate=HANDSHAKES_A_SECOND)
    )
    waiting: dict[Hashable, asyncio.Future[None]] = field(default_factory=dict)
    timed: bool = False


class Turns:
    """Used from one event loop."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    async def wait(self, who: Hashable, address: str) -> None:
        """Until `who` may begin, or is told to `leave`."""
        queue = self._queues.setdefault(address, _Queue())
        if not queue.waiting and queue.allowance.spend(1):
            return
        self._time(queue)
        turn = queue.waiting[who] = asyncio.get_running_loop().create_future()
        try:
            await turn
        finally:
            queue.waiting.pop(who, None)

    def leave(self, who: Hashable, address: str) -> None:
        """Wait no longer, if it does."""
        queue = self._queues.get(address)
        turn = queue.waiting.pop(who, None) if queue is not None else None
        if turn is not None and not turn.done():
            turn.set_result(None)

    def forget(self) -> None:
        """Keep nothing of addresses that were quiet lately."""
        self._queues = {
            address: queue
            for address, queue in self._queues.items()
            if queue.waiting or not queue.allowance.full
        }

    def _time(self, queue: _Queue) -> None:
        if not queue.timed:
            queue.timed = True
            asyncio.get_running_loop().call_later(queue.allowance.seconds, self._next, queue)

    def _next(self, queue: _Queue) -> None:
        queue.timed = False
        while queue.waiting and queue.allowance.spend(1):
            turn = queue.waiting.pop(next(iter(queue.waiting)))
            if not turn.done():
                turn.set_result(None)
        if queue.waiting:
            self._time(queue)
