"""Which handshake begins next.

A handshake costs the coordinator a millisecond or two of its time, and some 50 KB while it lasts, before it
knows who calls. So strangers wait here once their first record has come:

- One address begins so many handshakes at once, and so many a second from then on.
- Of one address, by turns the newest and the one that has waited longest begins. Whoever comes after a
  crowd of strangers behind the same address need not wait for all of them, and no crowd overtakes for ever.
- One begins in one pass of the event loop, so that calls are answered in between.
- The address with the fewest failed handshakes since its last good one is next; of several, the one with the
  fewest in progress, and of those the one whose last turn was longest ago. So whoever is known does not wait
  for a crowd of addresses whose handshakes all fail, and no crowd keeps anybody from a turn.
- `MOST_HANDSHAKES` are in progress at a time. Beyond that the oldest of the address with the most makes room,
  once it has taken `SLOW_SECONDS`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from eigenveil_server.front.allowance import Allowance

HANDSHAKES, HANDSHAKES_A_SECOND = 64.0, 60.0  # of one address
MOST_HANDSHAKES = 256  # in progress
SLOW_SECONDS = 0.5  # while others wait; an honest one takes one round trip
LEAST_WAIT = 0.001

Who = TypeVar("Who")


@dataclass(slots=True)
class _Address(Generic[Who]):
    """Of one address: who waits, in their order, and how many are in progress."""

    last: int  # number of its last turn; of a new address, of the latest turn of all
    allowance: Allowance = field(
        default_factory=lambda: Allowance(burst=HANDSHAKES, rate=HANDSHAKES_A_SECOND)
    )
    waiting: dict[Who, asyncio.Future[None]] = field(default_factory=dict)
    begun: int = 0
    failed: int = 0  # since the last that was good
    newest: bool = False  # whether the newest was the last to begin


class Turns(Generic[Who]):
    """Used from one event loop. `end` is told whose handshake has to make room."""

    def __init__(self, end: Callable[[Who], None]) -> None:
        self._end = end
        self._addresses: dict[str, _Address[Who]] = {}
        self._begun: dict[Who, tuple[_Address[Who], float]] = {}  # since when; the oldest first
        self._turn = 0
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, who: Who, address: str) -> None:
        """Until `who` may begin; its handshake is in progress from then on, until it is told to `leave`."""
        there = self._addresses.setdefault(address, _Address(last=self._turn))
        turn = there.waiting[who] = asyncio.get_running_loop().create_future()
        self._look(0.0)
        await turn

    def passed(self, who: Who, address: str) -> None:
        """The handshake was good."""
        self.leave(who, address)
        if (there := self._addresses.get(address)) is not None:
            there.failed = 0

    def leave(self, who: Who, address: str) -> None:
        """Neither wait nor be in progress any longer: a handshake that was in progress has failed."""
        if (there := self._addresses.get(address)) is not None:
            there.waiting.pop(who, None)
        self._ended(who)
        self._look(0.0)

    def forget(self) -> None:
        """Keep nothing of addresses that were quiet lately."""
        self._addresses = {
            address: there
            for address, there in self._addresses.items()
            if there.waiting or there.begun or not there.allowance.full
        }

    def _ended(self, who: Who) -> None:
        if who in self._begun:
            there, _ = self._begun.pop(who)
            there.begun -= 1
            there.failed += 1

    def _look(self, seconds: float) -> None:
        """See in so many seconds who may begin, or earlier if that is due already."""
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer.when() > loop.time() + seconds:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(seconds, self._begin)

    def _begin(self) -> None:
        """Let one begin, if one may, and look again when the next one may."""
        self._timer = None
        crowds = [there for there in self._addresses.values() if there.waiting]
        if not crowds:
            return
        ready = [there for there in crowds if there.allowance.left > 0]
        wait = self._room() if ready else max(LEAST_WAIT, min(there.allowance.seconds for there in crowds))
        if not wait:
            self._let_begin(min(ready, key=lambda there: (there.failed, there.begun, there.last)))
        self._look(wait)

    def _let_begin(self, there: _Address[Who]) -> None:
        there.allowance.spend(1)
        there.newest = not there.newest
        self._turn += 1
        there.last = self._turn
        who = next(reversed(there.waiting) if there.newest else iter(there.waiting))
        turn = there.waiting.pop(who)
        if not turn.done():  # it was called off, and has not said so yet
            there.begun += 1
            self._begun[who] = there, time.monotonic()
            turn.set_result(None)

    def _room(self) -> float:
        """Seconds until one more may be in progress; 0 if it may now, maybe because another was ended."""
        if len(self._begun) < MOST_HANDSHAKES:
            return 0.0
        who = max(self._begun, key=lambda who: self._begun[who][0].begun)  # the oldest of the address
        wait = self._begun[who][1] + SLOW_SECONDS - time.monotonic()
        if wait > 0:
            return wait
        self._ended(who)
        self._end(who)
        return 0.0
