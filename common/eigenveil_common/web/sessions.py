"""Who is at a page: sessions that the server keeps, and links that let one in once.

A session's token is in a cookie that no script reads and no other site sends; the server keeps its digest.
Sessions end after half an hour without a page, after eight hours in any case, and with the process.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

IDLE_SECONDS = 30 * 60.0
LONGEST_SECONDS = 8 * 3600.0
LINK_SECONDS = 10 * 60.0
MOST_OF_ONE = 50  # of one person, who may keep no cookie
MOST = 1000  # sessions at once; the one that was idle for longest makes room


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """One person at one browser. `csrf` is what each of its forms carries, `token` what its cookie does."""

    owner: str
    opened: float
    seen: float
    language: str = ""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


class Sessions:
    """Every session of one server; `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[bytes, Session] = {}
        self._links: dict[bytes, tuple[str, float]] = {}

    def link(self, owner: str) -> str:
        """A secret that opens one session of `owner`, once and soon."""
        made = secrets.token_urlsafe(32)
        self._links[_digest(made)] = (owner, self._clock() + LINK_SECONDS)
        return made

    def enter(self, link: str) -> Session | None:
        """The session that `link` opens; none if it was used, is too old or was never made."""
        owner, ends = self._links.pop(_digest(link), ("", 0.0))
        return self.open(owner) if self._clock() < ends else None

    def open(self, owner: str) -> Session:
        """A new session."""
        now = self._clock()
        self._open = {key: one for key, one in self._open.items() if self._in_time(one)}
        own = [key for key, one in self._open.items() if one.owner == owner]
        crowded = own if len(own) >= MOST_OF_ONE else self._open if len(self._open) >= MOST else ()
        if crowded:
            del self._open[min(crowded, key=lambda key: self._open[key].seen)]
        made = Session(owner=owner, opened=now, seen=now)
        self._open[_digest(made.token)] = made
        return made

    def find(self, token: str) -> Session | None:
        """The session of a cookie, which this keeps alive; none if it ended or never was."""
        key = _digest(token)
        found = self._open.get(key)
        if found is None or not self._in_time(found):
            self._open.pop(key, None)
            return None
        found.seen = self._clock()
        return found

    def lives(self, session: Session) -> bool:
        """Whether it has not ended; to ask this is no sign of the person."""
        return _digest(session.token) in self._open and self._in_time(session)

    def close(self, session: Session) -> None:
        """End a session."""
        self._open.pop(_digest(session.token), None)

    def _in_time(self, session: Session) -> bool:
        now = self._clock()
        return now - session.seen < IDLE_SECONDS and now - session.opened < LONGEST_SECONDS


def _digest(secret: str) -> bytes:
    """What a secret is looked up by: how long that takes says nothing of it."""
    return hashlib.sha256(secret.encode()).digest()
