"""Handshake limiter: the order in which TLS handshakes begin, and their rate.

A handshake costs one or two milliseconds and about 50 KB of memory before the caller is known. So pending
connections wait here once their first record has come:

- Each address has a rate limit of handshakes.
- Of one address, the newest and the oldest waiting connection begin alternately. So a new caller does not
  wait for a whole crowd behind the same address, and no crowd delays an old one forever.
- One handshake begins in one pass of the event loop, so that calls are answered in between.
- Known networks come first, by turns: the one that began least recently is next. Of strangers, next is the
  address with the fewest failed handshakes since its last success; then the one with the fewest in progress;
  then the one that began least recently. So no member waits for strangers, whatever others behind its own
  address do. Strangers wait as long as known networks have handshakes to begin.
- `MOST_HANDSHAKES` are in progress at a time, of strangers `MOST_OF_STRANGERS`. Beyond that the oldest of the
  busiest address is ended, once it has taken `SLOW_SECONDS`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from eigenveil_server.front.known_networks import KnownNetworks
from eigenveil_server.front.quota import TokenBucket

HANDSHAKES, HANDSHAKES_A_SECOND = 64.0, 60.0  # of one address
MOST_HANDSHAKES = 384  # in progress
MOST_OF_STRANGERS = 192
SLOW_SECONDS = 0.5  # while others wait; a normal handshake takes one round trip
LEAST_WAIT = 0.001

Caller = TypeVar("Caller")


@dataclass(slots=True)
class _AddressQueue(Generic[Caller]):
    """Waiting callers of one address in their order, and the number in progress."""

    last: int  # number of its last start; of a new address, of the latest start of all
    allowance: TokenBucket = field(
        default_factory=lambda: TokenBucket(burst=HANDSHAKES, rate=HANDSHAKES_A_SECOND)
    )
    waiting: dict[Caller, asyncio.Future[None]] = field(default_factory=dict)
    begun: int = 0
    failed: int = 0  # since the last success
    newest: bool = False  # the newest was the last to begin


@dataclass(eq=False)
class HandshakeLimiter(Generic[Caller]):
    """Order and limits of handshakes, on one event loop. `end` is called to end one that is too slow."""

    _end: Callable[[Caller], None]
    _known: KnownNetworks
    _addresses: dict[str, _AddressQueue[Caller]] = field(default_factory=dict)
    # Each caller's queue and start time; the oldest first.
    _in_progress: dict[Caller, tuple[_AddressQueue[Caller], float]] = field(default_factory=dict)
    _start_number: int = 0
    _timer: asyncio.TimerHandle | None = None

    async def wait(self, caller: Caller, address: str) -> None:
        """Wait until `caller` may begin. Its handshake is in progress from then on, until `leave`."""
        queue = self._addresses.setdefault(address, _AddressQueue(last=self._start_number))
        started = queue.waiting[caller] = asyncio.get_running_loop().create_future()
        self._schedule(0.0)
        await started

    def succeeded(self, caller: Caller, address: str) -> None:
        """Record a successful handshake."""
        self.leave(caller, address)
        if (queue := self._addresses.get(address)) is not None:
            queue.failed = 0

    def leave(self, caller: Caller, address: str) -> None:
        """Remove a caller. A handshake that was in progress has failed."""
        if (queue := self._addresses.get(address)) is not None:
            queue.waiting.pop(caller, None)
        self._ended(caller)
        self._schedule(0.0)

    def forget(self) -> None:
        """Forget addresses that have been idle."""
        self._addresses = {
            address: queue
            for address, queue in self._addresses.items()
            if queue.waiting or queue.begun or not queue.allowance.full
        }

    def _ended(self, caller: Caller) -> None:
        if caller in self._in_progress:
            queue, _ = self._in_progress.pop(caller)
            queue.begun -= 1
            queue.failed += 1

    def _schedule(self, seconds: float) -> None:
        """Schedule the next start in so many seconds, unless an earlier one is scheduled."""
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer.when() > loop.time() + seconds:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(seconds, self._start_next)

    def _start_next(self) -> None:
        """Start one handshake if the limits allow it, and schedule the next."""
        self._timer = None
        waiting = {address: queue for address, queue in self._addresses.items() if queue.waiting}
        if not waiting:
            return
        ready = [address for address, queue in waiting.items() if queue.allowance.left > 0]
        if ready:
            first = min(ready, key=self._turn)
            wait = self._seconds_until_free(MOST_HANDSHAKES if first in self._known else MOST_OF_STRANGERS)
            if not wait:
                self._start_one(waiting[first])
        else:
            wait = max(LEAST_WAIT, min(queue.allowance.seconds for queue in waiting.values()))
        self._schedule(wait)

    def _turn(self, address: str) -> tuple[bool, int, int, int]:
        """Return the rank of an address; the lowest is next."""
        queue = self._addresses[address]
        if address in self._known:
            return False, 0, 0, queue.last
        return True, queue.failed, queue.begun, queue.last

    def _start_one(self, queue: _AddressQueue[Caller]) -> None:
        queue.allowance.spend(1)
        queue.newest = not queue.newest
        self._start_number += 1
        queue.last = self._start_number
        caller = next(reversed(queue.waiting) if queue.newest else iter(queue.waiting))
        started = queue.waiting.pop(caller)
        if not started.done():  # it was cancelled meanwhile
            queue.begun += 1
            self._in_progress[caller] = queue, time.monotonic()
            started.set_result(None)

    def _seconds_until_free(self, most: int) -> float:
        """Return the seconds until fewer than `most` are in progress, 0 if now. A slow one may be ended."""
        if len(self._in_progress) < most:
            return 0.0
        # The oldest of the busiest address.
        caller, (_, began) = max(self._in_progress.items(), key=lambda item: item[1][0].begun)
        wait = began + SLOW_SECONDS - time.monotonic()
        if wait > 0:
            return wait
        self._ended(caller)
        self._end(caller)
        return 0.0
