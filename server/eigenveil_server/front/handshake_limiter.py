"""Handshake limiter: the order in which TLS handshakes begin, and their rate.

A handshake costs one or two milliseconds and about 50 KB of memory before the caller is known. So pending
connections wait here once their first record has come:

- Each address has a rate limit of handshakes.
- Of one address, the newest and the oldest waiting connection begin alternately. So a new caller does not
  wait for a whole crowd behind the same address, and no crowd delays an old one forever.
- One handshake begins in one pass of the event loop, so that calls are answered in between.
- While both wait, one of `STRANGERS_EVERY` handshakes is a stranger's, the others are of known networks. So
  neither delays the other for long, even if one certificate makes many networks known. Of known networks,
  next is the one that began least recently, whatever others behind its address do. Of strangers, next is the
  address with the fewest failed handshakes since its last success; then the one with the fewest in progress;
  then the one that began least recently.
- `MOST_HANDSHAKES` of known networks are in progress at a time, and as many of strangers. Beyond that the
  oldest of the busiest address is ended, once it has taken `SLOW_SECONDS`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from eigenveil_server.front.known_networks import KnownNetworks
from eigenveil_server.front.quota import TokenBucket

HANDSHAKES, HANDSHAKES_A_SECOND = 64.0, 60.0  # of one address
MOST_HANDSHAKES = 256  # in progress, of known networks and of strangers each
STRANGERS_EVERY = 4
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


@dataclass(frozen=True, slots=True)
class _Handshake(Generic[Caller]):
    queue: _AddressQueue[Caller]
    began: float
    known: bool  # from a known network when it began


@dataclass(eq=False)
class HandshakeLimiter(Generic[Caller]):
    """Order and limits of handshakes, on one event loop. `end` is called to end one that is too slow."""

    _end: Callable[[Caller], None]
    _known: KnownNetworks
    _addresses: dict[str, _AddressQueue[Caller]] = field(default_factory=dict)
    _in_progress: dict[Caller, _Handshake[Caller]] = field(default_factory=dict)  # the oldest first
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
            queue = self._in_progress.pop(caller).queue
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
            wait = self._start_first(ready)
        else:
            wait = max(LEAST_WAIT, min(queue.allowance.seconds for queue in waiting.values()))
        self._schedule(wait)

    def _start_first(self, ready: list[str]) -> float:
        """Start the first handshake that the limits allow. Return the seconds until the next may begin."""
        known = [address for address in ready if address in self._known]
        strangers = [address for address in ready if address not in self._known]
        waits = []
        for group in (known, strangers) if self._start_number % STRANGERS_EVERY else (strangers, known):
            if group:
                wait = self._seconds_until_free(known=group is known)
                if not wait:
                    self._start_one(self._addresses[min(group, key=self._turn)], known=group is known)
                    return 0.0
                waits.append(wait)
        return min(waits)

    def _turn(self, address: str) -> tuple[int, int, int]:
        """Return the rank of an address among its group; the lowest is next."""
        queue = self._addresses[address]
        if address in self._known:
            return 0, 0, queue.last
        return queue.failed, queue.begun, queue.last

    def _start_one(self, queue: _AddressQueue[Caller], *, known: bool) -> None:
        queue.allowance.spend(1)
        queue.newest = not queue.newest
        self._start_number += 1
        queue.last = self._start_number
        caller = next(reversed(queue.waiting) if queue.newest else iter(queue.waiting))
        started = queue.waiting.pop(caller)
        if not started.done():  # it was cancelled meanwhile
            queue.begun += 1
            self._in_progress[caller] = _Handshake(queue, time.monotonic(), known)
            started.set_result(None)

    def _seconds_until_free(self, *, known: bool) -> float:
        """Return the seconds until one more of its kind may be in progress. A slow one may be ended."""
        group = [caller for caller, one in self._in_progress.items() if one.known == known]
        if len(group) < MOST_HANDSHAKES:
            return 0.0
        # The oldest of the busiest address.
        caller = max(group, key=lambda caller: self._in_progress[caller].queue.begun)
        wait = self._in_progress[caller].began + SLOW_SECONDS - time.monotonic()
        if wait > 0:
            return wait
        self._ended(caller)
        self._end(caller)
        return 0.0
