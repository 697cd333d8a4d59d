"""Who may upload next: places for bytes, in the order in which sites asked, and for nobody who is slow.

A place is lost to whoever waits once less has come than at a least rate, half of that each time, so that slow
lines get through in the end and whoever means to hold a place only holds up the others once, for a time that
does not depend on how the chunks of an answer are spread over it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from eigenveil.errors import Code, RequestError
from eigenveil_server.studies.signal import Signal

PLACE_BYTES = 64 * 2**20  # of answers on their way at once, or one that is larger
STALLED_SECONDS = 10.0  # without a new chunk: until then nobody asks for the answer again
GRACE_SECONDS = 10.0  # in which whoever has a place need not have sent anything
LEAST_RATE = 4 * 2**20  # bytes a second from then on, if others wait
TURN_SECONDS = 10.0  # that one call waits for its turn
AWAY_SECONDS = 15.0  # in which whoever waits has to ask again, or loses its turn
PRESENT_SECONDS = 2.0  # without a call that waits: the place is free for the next one meanwhile
GLANCE_SECONDS = 1.0  # how often to look whether somebody is too slow
Key = tuple[str, int, int, str]  # study, round, attempt at it, site
IsOpen = Callable[[str, int, int], bool]


@dataclass(slots=True, kw_only=True)
class Turns:
    """Who waits, first come, first served: when each was heard last, never while a call of it waits."""

    place_bytes: int = PLACE_BYTES
    clock: Callable[[], float] = time.monotonic
    _heard: dict[Key, float] = field(default_factory=dict)
    _lost: dict[Key, int] = field(default_factory=dict)  # how often each has lost its place
    _changed: Signal = field(default_factory=Signal)

    def __contains__(self, key: Key) -> bool:
        return key in self._heard

    def __len__(self) -> int:
        return len(self._heard)

    async def wait(self, key: Key, is_here: Callable[[], bool], has_place: Callable[[], bool]) -> None:
        """Return once nobody is before `key` and it `has_place`, or it is here: whoever asks twice holds no
        second turn.

        Raises:
            RequestError: code `not-ready`, not in `TURN_SECONDS`.
        """
        until = self.clock() + TURN_SECONDS
        try:
            while True:
                self._heard[key] = self.clock()
                if is_here() or (self._is_next(key) and has_place()):
                    self._heard.pop(key, None)
                    break
                left = until - self.clock()
                if left <= 0:
                    raise RequestError(
                        Code.NOT_READY, "other sites upload their answers; ask again, your turn will come"
                    )
                await self._changed.wait(min(left, GLANCE_SECONDS))
        finally:
            self.ring()

    def _is_next(self, key: Key) -> bool:
        """Whether nobody is before it who is there now."""
        for other in list(self._heard):
            if other == key:
                return True
            away = self.clock() - self._heard[other]
            if away <= PRESENT_SECONDS:
                return False
            if away > AWAY_SECONDS:
                del self._heard[other]
        return False

    def fits(self, wanted: int, held: int) -> bool:
        """Whether there is a place for so many bytes beside those `held`."""
        return not held or held + wanted <= self.place_bytes

    def still(self, moved_at: float) -> bool:
        """Whether nothing has come since, for so long that it should be asked for again."""
        return self.clock() - moved_at >= STALLED_SECONDS

    def loses(self, key: Key, since: float, here_bytes: int) -> bool:
        """Whether whoever holds a place `since` then, and has sent so much, loses it to another; noted, if
        so."""
        lost = self._lost.get(key, 0)
        if self.clock() - since < (GRACE_SECONDS + here_bytes / LEAST_RATE) * 2**lost:
            return False
        self._lost[key] = self._lost.get(key, 0) + 1
        return True

    def forget(self, is_open: IsOpen) -> None:
        """Keep nothing of rounds and attempts that are over."""
        for kept in (self._heard, self._lost):
            for key in tuple(kept):
                if not is_open(*key[:3]):
                    del kept[key]

    def ring(self) -> None:
        """A place may be free."""
        self._changed.ring()
