"""Who may keep how many connections and open streams: some for everybody, some for sites alone, few for one
guest."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from eigenveil.identity import Identity, Role
from eigenveil_server.front.admission import Connected, Guest

MOST_OF_ONE = 16  # connections of one identity, or of one address without any
FOR_SITES = 1152  # of MOST_CONNECTIONS, kept free for sites: a study invites up to 1,000
# Open streams of one guest, at most. A site's daemon has ten (a long poll, chunks of uploads, a greeting), an
# analyst's program what it starts at once; twice what the interceptor admits, which refuses by a sentence.
MOST_STREAMS_OF_ONE = 128
FEW_STREAMS = 8  # of one guest in any case, however few calls gRPC takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one listener has at most: sockets before their handshake is over, connections, and calls that gRPC
    takes at a time; `for_sites` of the connections and half of the calls are kept for sites."""

    strangers: int
    connections: int
    calls: int
    for_sites: int

    @property
    def streams_of_one(self) -> int:
        """Open streams of one guest."""
        return min(MOST_STREAMS_OF_ONE, max(FEW_STREAMS, self.calls // 4))

    @property
    def streams_of_others(self) -> int:
        """Open streams of all who are no site; gRPC may still be at work on some that have ended."""
        most = self.calls // 2 if self.for_sites else self.calls - self.calls // 4
        return max(FEW_STREAMS, most)


class Places:
    """The guests of one door; `close` ends a connection and says why."""

    def __init__(self, close: Callable[[Connected, str], None], share: Share) -> None:
        self._close = close
        self._share = share
        self._guests: dict[str, Guest] = {}
        self._others = 0  # open streams of whoever is no site

    def guest(self, who: Identity | None, network: str) -> Guest:
        """An identity, or whoever calls from `network` without one."""
        name = f"anonymous {network}" if who is None else who.uri
        return self._guests.setdefault(name, Guest(name=name, role=None if who is None else who.role))

    def refusal(self, guest: Guest, taken: Collection[Connected]) -> str:
        """Why there is no place for one more beside those `taken`; empty if there is, maybe because another
        made room."""
        if time.monotonic() < guest.shut_until:
            return "cut-off"
        if not guest.connections.spend(1):
            return "too-often"
        if len(guest.open) >= MOST_OF_ONE and not self._make_room(guest.open):
            return "too-many-of-one"
        others = [one for one in taken if one.arrival is None or one.arrival.guest.role is not Role.SITE]
        free = self._share.connections - len(taken)
        if guest.role is not Role.SITE:
            free = min(free, self._share.connections - self._share.for_sites - len(others))
        return "" if free > 0 or self._make_room(others) else "full"

    def _make_room(self, among: Collection[Connected]) -> bool:
        """Close the one that has been without a call for longest, if any is."""
        idle = {one: one.arrival.last for one in among if one.arrival is not None and not one.arrival.calls}
        if not idle:
            return False
        self._close(min(idle, key=idle.__getitem__), "made-room")
        return True

    def may_open(self, guest: Guest) -> bool:
        """Whether one more stream of `guest` may be open now; its next call waits until one has ended."""
        return guest.streams < self._share.streams_of_one

    def opened(self, guest: Guest) -> None:
        """One more stream of `guest` is open. Where that is too many of all who are no site, the one with the
        most loses a connection."""
        guest.streams += 1
        if guest.role is not Role.SITE:
            self._others += 1
            if self._others > self._share.streams_of_others:
                others = (one for one in self._guests.values() if one.role is not Role.SITE)
                self._relieve(max(others, key=lambda one: one.streams))

    def closed(self, guest: Guest, count: int) -> None:
        """So many streams of `guest` have ended."""
        guest.streams -= count
        self._others -= count * (guest.role is not Role.SITE)

    def _relieve(self, guest: Guest) -> None:
        """End the connection with the most streams; of several the oldest."""
        busy = {one: (-one.streams, one.arrival.began) for one in guest.open if one.arrival is not None}
        self._close(min(busy, key=busy.__getitem__), "streams")

    def forget(self) -> None:
        """Keep nothing of guests who have gone."""
        self._guests = {name: guest for name, guest in self._guests.items() if not guest.gone}
