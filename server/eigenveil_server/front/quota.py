"""Quotas of a gateway's clients: connections, open streams, and rate limits as token buckets.

Connections and streams have limits in all, reserved for sites, and of one client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from eigenveil.identity import Identity, Role


class TokenBucket:
    """Token bucket: it starts with `burst` units and gains `rate` a second, up to `burst`.

    A caller may overdraw a bucket that is not empty, and then waits until the debt is repaid.
    """

    def __init__(self, *, burst: float, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = burst
        self._at = time.monotonic()

    def spend(self, cost: float) -> bool:
        """Take `cost` if any unit is left. Return False if none is."""
        left = self._now()
        if left <= 0:
            return False
        self._left = left - cost
        return True

    def penalise(self, cost: float) -> None:
        """Take `cost` in any case. The debt never exceeds the largest single cost."""
        self._left = min(self._now(), max(self._now() - cost, -cost))

    @property
    def left(self) -> float:
        """Units left; a debt is negative."""
        return self._now()

    @property
    def seconds(self) -> float:
        """Seconds until any unit is left."""
        return max(0.0, -self._now() / self._rate)

    @property
    def full(self) -> bool:
        """True if the bucket is full."""
        return self._now() >= self._burst

    def _now(self) -> float:
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        return self._left


# Units of one client: a burst, then so many a second. A call costs CALL, any other small frame 1. With its
# flow-control frames a call costs about 13 units, so RATE allows 300 calls a second. A gRPC server in Python
# answers about 1,500, so one certificate cannot use them all. BURST is below gRPC's queue of pending calls.
CALL = 10
BURST, RATE = 600.0, 4_000.0
CONNECTIONS, CONNECTIONS_A_SECOND = 64.0, 10.0
RESETS, RESETS_A_SECOND = 100, 1.0  # calls cancelled before their answer
BLOCK_SECONDS = 15.0  # during which a client that was cut off is refused
LOG_INTERVAL_SECONDS = 60.0
TLS13 = "TLSv1.3"


class QuotaConnection(Protocol):
    """Connection as the quota sees it."""

    connection_info: ConnectionInfo | None

    @property
    def streams(self) -> int:
        """Number of open streams."""

    def end(self, why: str = "") -> None:
        """Close both ends."""


@dataclass(slots=True, kw_only=True)
class GatewayClient:
    """Client of a gateway: an identity, or an address without one. `name` is for logs."""

    name: str
    role: Role | None
    allowance: TokenBucket = field(default_factory=lambda: TokenBucket(burst=BURST, rate=RATE))
    connections: TokenBucket = field(
        default_factory=lambda: TokenBucket(burst=CONNECTIONS, rate=CONNECTIONS_A_SECOND)
    )
    resets: TokenBucket = field(default_factory=lambda: TokenBucket(burst=RESETS, rate=RESETS_A_SECOND))
    open: set[QuotaConnection] = field(default_factory=set)
    streams: int = 0  # open streams of all its connections
    blocked_until: float = 0.0
    logged_at: dict[str, float] = field(default_factory=dict)  # time of the last log line, by reason

    def should_log(self, what: str) -> bool:
        """Return True once a minute for each reason, so that a client cannot fill the log."""
        now = time.monotonic()
        due = now - self.logged_at.get(what, -LOG_INTERVAL_SECONDS) >= LOG_INTERVAL_SECONDS
        if due:
            self.logged_at[what] = now
        return due

    @property
    def idle_for_long(self) -> bool:
        """True if the client is idle and all its limits are full again, so that it can be forgotten."""
        latest = max(self.blocked_until, *(at + LOG_INTERVAL_SECONDS for at in self.logged_at.values()), 0.0)
        idle = (
            self.allowance.full and self.resets.full and self.connections.full and time.monotonic() > latest
        )
        return idle and not self.open


@dataclass(slots=True, kw_only=True)
class ConnectionInfo:
    """Connection as the interceptor sees it: the result of TLS, and its calls since.
    `peer` is the address of the other end, `certificate` its PEM or empty."""

    peer: str
    certificate: bytes
    tls: str = TLS13
    gateway_client: GatewayClient
    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)
    admitted: bool = False
    calls: int = 0

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count an admitted call until its end."""
        self.admitted, self.calls = True, self.calls + 1
        try:
            yield
        finally:
            self.calls -= 1
            self.last = time.monotonic()


MOST_OF_ONE = 16  # connections of one identity, or of one address without an identity
FOR_SITES = 1152  # of MOST_CONNECTIONS, reserved for sites: a study invites up to 1,000
# Open streams of one client, at most. A site's daemon needs ten (a long poll, chunks of uploads, a greeting).
# This is twice the interceptor's limit, which refuses with an error message.
MAX_STREAMS_PER_CLIENT = 128
MIN_STREAMS = 8  # of one client, even if gRPC takes very few calls


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Limits of one listener: pending sockets (`strangers`), connections, and concurrent calls of gRPC.

    `for_sites` of the connections and half of the calls are reserved for sites.
    """

    strangers: int
    connections: int
    calls: int
    for_sites: int

    @property
    def streams_per_client(self) -> int:
        """Limit of open streams of one client."""
        return min(MAX_STREAMS_PER_CLIENT, max(MIN_STREAMS, self.calls // 4))

    @property
    def streams_of_non_sites(self) -> int:
        """Limit of open streams of all clients but sites. gRPC may still work on some that have ended."""
        most = self.calls // 2 if self.for_sites else self.calls - self.calls // 4
        return max(MIN_STREAMS, most)


class ConnectionQuota:
    """Quota of the clients of one gateway. `close` ends a connection with a reason."""

    def __init__(self, close: Callable[[QuotaConnection, str], None], limits: ListenerLimits) -> None:
        self._close = close
        self._limits = limits
        self._guests: dict[str, GatewayClient] = {}
        self._others = 0  # open streams of all clients but sites

    def gateway_client(self, who: Identity | None, network: str) -> GatewayClient:
        """Return the client with an identity, or the client of `network` without one."""
        name = f"anonymous {network}" if who is None else who.uri
        return self._guests.setdefault(name, GatewayClient(name=name, role=None if who is None else who.role))

    def refusal(self, gateway_client: GatewayClient, taken: Collection[QuotaConnection]) -> str:
        """Return the reason to refuse one more connection beside those `taken`; empty if it is admitted.

        An idle connection is closed if that makes room.
        """
        if time.monotonic() < gateway_client.blocked_until:
            return "cut-off"
        if not gateway_client.connections.spend(1):
            return "too-often"
        if len(gateway_client.open) >= MOST_OF_ONE and not self._make_room(gateway_client.open):
            return "too-many-of-one"
        others = [
            one
            for one in taken
            if one.connection_info is None or one.connection_info.gateway_client.role is not Role.SITE
        ]
        free = self._limits.connections - len(taken)
        if gateway_client.role is not Role.SITE:
            free = min(free, self._limits.connections - self._limits.for_sites - len(others))
        return "" if free > 0 or self._make_room(others) else "full"

    def _make_room(self, among: Collection[QuotaConnection]) -> bool:
        """Close the connection that has been idle for longest. Return False if none is idle."""
        idle = {
            one: one.connection_info.last
            for one in among
            if one.connection_info is not None and not one.connection_info.calls
        }
        if not idle:
            return False
        self._close(min(idle, key=idle.__getitem__), "made-room")
        return True

    def may_open(self, gateway_client: GatewayClient) -> bool:
        """Return True if a client may open one more stream; otherwise its next call waits."""
        return gateway_client.streams < self._limits.streams_per_client

    def opened(self, gateway_client: GatewayClient) -> None:
        """Count one more open stream. Beyond the limit of all clients but sites, close a connection of the
        busiest."""
        gateway_client.streams += 1
        if gateway_client.role is not Role.SITE:
            self._others += 1
            if self._others > self._limits.streams_of_non_sites:
                others = (one for one in self._guests.values() if one.role is not Role.SITE)
                self._close_busiest(max(others, key=lambda one: one.streams))

    def closed(self, gateway_client: GatewayClient, count: int) -> None:
        """Count `count` streams less."""
        gateway_client.streams -= count
        self._others -= count * (gateway_client.role is not Role.SITE)

    def _close_busiest(self, gateway_client: GatewayClient) -> None:
        """Close the connection with the most streams; of several the oldest."""
        busy = {
            one: (-one.streams, one.connection_info.began)
            for one in gateway_client.open
            if one.connection_info is not None
        }
        self._close(min(busy, key=busy.__getitem__), "streams")

    def forget(self) -> None:
        """Forget clients that have been idle for long."""
        self._guests = {
            name: gateway_client
            for name, gateway_client in self._guests.items()
            if not gateway_client.idle_for_long
        }
