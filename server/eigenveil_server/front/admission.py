"""Who has connections here, and how much each may do with all of them together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from eigenveil.identity import Role
from eigenveil_server.front.allowance import Allowance

# Units a second of one guest, and at once: a call costs CALL, any other small frame 1. With what flow control
# says a call comes to some 13, so this is 300 calls a second. What a gRPC server in Python answers is some
# 1,500, so one certificate never takes them all; and what it may send at once waits in fewer places than gRPC
# has for calls that nobody has taken yet.
CALL = 10
BURST, RATE = 600.0, 4_000.0
CONNECTIONS, CONNECTIONS_A_SECOND = 64.0, 10.0
RESETS, RESETS_A_SECOND = 100, 1.0  # calls taken back before they were answered
SHUT_SECONDS = 15.0  # nobody who was cut off is served before
TELL_AGAIN_SECONDS = 60.0
TLS13 = "TLSv1.3"


class Connected(Protocol):
    """A connection, as far as it matters whose it is."""

    arrival: Arrival | None

    @property
    def streams(self) -> int:
        """How many streams are open."""

    def end(self, why: str = "") -> None:
        """Close both ends."""


@dataclass(slots=True, kw_only=True)
class Guest:
    """One identity, or one address of nobody in particular. `name` is for logs."""

    name: str
    role: Role | None
    allowance: Allowance = field(default_factory=lambda: Allowance(burst=BURST, rate=RATE))
    connections: Allowance = field(
        default_factory=lambda: Allowance(burst=CONNECTIONS, rate=CONNECTIONS_A_SECOND)
    )
    resets: Allowance = field(default_factory=lambda: Allowance(burst=RESETS, rate=RESETS_A_SECOND))
    open: set[Connected] = field(default_factory=set)
    streams: int = 0  # that are open, of all its connections
    shut_until: float = 0.0
    told: dict[str, float] = field(default_factory=dict)  # when the log last said what of this guest

    def tells(self, what: str) -> bool:
        """Whether the log should say this: once in a while, so that nobody fills the disk."""
        now = time.monotonic()
        due = now - self.told.get(what, -TELL_AGAIN_SECONDS) >= TELL_AGAIN_SECONDS
        if due:
            self.told[what] = now
        return due

    @property
    def gone(self) -> bool:
        """Whether nothing need be remembered of it."""
        latest = max(self.shut_until, *(at + TELL_AGAIN_SECONDS for at in self.told.values()), 0.0)
        idle = (
            self.allowance.full and self.resets.full and self.connections.full and time.monotonic() > latest
        )
        return idle and not self.open


@dataclass(slots=True, kw_only=True)
class Arrival:
    """A connection as the interceptor sees it: what TLS has found out, and the calls it has made since.
    `peer` is the other end's address, `certificate` its PEM or nothing."""

    peer: str
    certificate: bytes
    tls: str = TLS13
    guest: Guest
    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)
    admitted: bool = False
    calls: int = 0

    @contextmanager
    def call(self) -> Iterator[None]:
        """One admitted call, from its admission to its end."""
        self.admitted, self.calls = True, self.calls + 1
        try:
            yield
        finally:
            self.calls -= 1
            self.last = time.monotonic()
