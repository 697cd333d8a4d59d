"""The bytes of requests that are not answered yet: bounded for each guest of a door, and for all together.

gRPC takes a message of 4 MiB for every stream before anybody is asked about its call, and keeps what came of
one that never ends: 100 streams on each of 16 connections would be 6 GiB for one certificate. A guest
reserves room in steps of one message, so that whoever has begun a message can end it, and waits while there
is none. Whoever then holds more than one message, or has taken long to send one, makes room. A request that
is complete keeps its room until its answer, since gRPC keeps its bytes; but it waits for the coordinator and
not for its guest, who is never cut as slow for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from eigenveil_common.rpc import MESSAGE_BYTES, WITH_NEXT_BYTES
from eigenveil_server.front.admission import Guest

FREE_BYTES = (
    WITH_NEXT_BYTES  # of each guest, beside all that is reserved: most requests have some hundred bytes
)
MOST_OF_ONE_BYTES = 4 * MESSAGE_BYTES  # a site sends one chunk at a time, an analyst one study
MOST_BYTES = 48 * MESSAGE_BYTES  # of all guests; deploy/OPERATIONS.md adds up what all limits come to
LONG_SECONDS = 20.0  # for one message, while others wait: a slow line takes as long for 1 MiB
LOOK_SECONDS = 0.1  # from one look for who makes room to the next: it visits all guests, for each that waits


@dataclass(slots=True, kw_only=True)
class _Held:
    """What one guest has sent and reserved; `whole` bytes of `sent` are of complete requests, and `since` is
    when it began the others or reserved anything."""

    guest: Guest
    sent: int = 0
    whole: int = 0
    reserved: int = 0
    since: float = 0.0


class Requests:
    """Those of one door. `cut` ends all connections of a guest, which gives back what they hold at once."""

    def __init__(self, cut: Callable[[Guest], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._cut = cut
        self._clock = clock
        self._of: dict[str, _Held] = {}
        self._reserved = 0
        self._looked = -LOOK_SECONDS

    def take(self, guest: Guest, count: int) -> bool:
        """Whether so many more bytes of an unanswered request of `guest` may come now."""
        held = self._of.setdefault(guest.name, _Held(guest=guest))
        held.guest = guest  # another object of this name, if the door had forgotten the last
        may = self._may(held, count)
        if may:
            if held.sent == held.whole:
                held.since = self._clock()
            held.sent += count
        elif not held.sent and self._of.get(guest.name) is held:
            del self._of[guest.name]
        return may

    def _may(self, held: _Held, count: int) -> bool:
        if held.sent + count > MOST_OF_ONE_BYTES:
            self._cut(held.guest)
            return False
        more = _room(held.sent + count) - held.reserved
        return more <= 0 or self._reserve(held, more)

    def complete(self, guest: Guest, count: int) -> None:
        """A request of `guest` with so many bytes has come to its end."""
        if (held := self._of.get(guest.name)) is not None:
            held.whole += count

    def give(self, guest: Guest, count: int, *, whole: int = 0) -> None:
        """So many bytes of `guest` are answered, or gone with their connection; `whole` of them were of
        complete requests."""
        held = self._of.get(guest.name)
        if held is None:
            return
        held.sent -= count
        held.whole -= whole
        less = held.reserved - _room(held.sent)
        held.reserved -= less
        self._reserved -= less
        if not held.sent:
            del self._of[guest.name]

    def _reserve(self, held: _Held, more: int) -> bool:
        if self._reserved + more > MOST_BYTES:
            self._make_room()
        if self._reserved + more > MOST_BYTES or self._of.get(held.guest.name) is not held:
            return False
        if not held.reserved:
            held.since = self._clock()
        held.reserved += more
        self._reserved += more
        return True

    def _make_room(self) -> None:
        """Cut off who holds most, if that is more than one message, or else who has long been sending one."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        most = max(self._of.values(), key=lambda one: (one.reserved, -one.since))
        if most.reserved > MESSAGE_BYTES:
            self._cut(most.guest)
            return
        sending = [one for one in self._of.values() if one.reserved and one.sent > one.whole]
        slowest = min(sending, key=lambda one: one.since, default=None)
        if slowest is not None and now - slowest.since >= LONG_SECONDS:
            self._cut(slowest.guest)


def _room(sent: int) -> int:
    """Return the whole messages that so many bytes reserve."""
    return 0 if sent <= FREE_BYTES else -(-sent // MESSAGE_BYTES) * MESSAGE_BYTES
