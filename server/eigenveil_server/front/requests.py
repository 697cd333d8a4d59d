"""The bytes of requests that are not answered yet: bounded for each guest of a door, and for all together.

gRPC takes a message of 4 MiB for every stream before anybody is asked about its call, and keeps what came of
one that never ends: 100 streams on each of 16 connections would be 6 GiB for one certificate. A guest
reserves room in steps of one message, so that whoever has begun a message can end it, and waits while there
is none. Whoever then holds more than one message, or one for long, makes room.
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


@dataclass(slots=True, kw_only=True)
class _Held:
    """What one guest has sent and reserved, since when it has reserved anything."""

    guest: Guest
    sent: int = 0
    reserved: int = 0
    since: float = 0.0


class Requests:
    """Those of one door. `cut` ends all connections of a guest, which gives back what they hold at once."""

    def __init__(self, cut: Callable[[Guest], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._cut = cut
        self._clock = clock
        self._of: dict[str, _Held] = {}
        self._reserved = 0

    def take(self, guest: Guest, count: int) -> bool:
        """Whether so many more bytes of an unanswered request of `guest` may come now."""
        held = self._of.setdefault(guest.name, _Held(guest=guest))
        if held.sent + count > MOST_OF_ONE_BYTES:
            self._cut(guest)
            return False
        more = _room(held.sent + count) - held.reserved
        if more > 0 and not self._reserve(held, more):
            return False
        held.sent += count
        return True

    def give(self, guest: Guest, count: int) -> None:
        """So many bytes of `guest` are answered, or gone with their connection."""
        held = self._of.get(guest.name)
        if held is None:
            return
        held.sent -= count
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
        """Cut off who holds most, if that is more than one message or has taken long."""
        most = max(self._of.values(), key=lambda one: (one.reserved, -one.since))
        if most.reserved > MESSAGE_BYTES or self._clock() - most.since >= LONG_SECONDS:
            self._cut(most.guest)


def _room(sent: int) -> int:
    """Return the whole messages that so many bytes reserve."""
    return 0 if sent <= FREE_BYTES else -(-sent // MESSAGE_BYTES) * MESSAGE_BYTES
