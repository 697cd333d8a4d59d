"""Quotas of a gateway's clients: connections, open streams, and rate limits as token buckets. Connections and
streams have limits in all, reserved for sites, and of one client."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from eigenveil.identity import Identity, Role


class TokenBucket:
    """Token bucket: it starts with `burst` units and gains `rate` a second, up to `burst`. A caller may
    overdraw a bucket that is not empty, and then waits until the debt is repaid."""

    def __init__(self, *, burst: float, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = burst
        self._at = time.monotonic()

    def spend(self, cost: float) -> bool:
        """Take `cost` if any unit is left. Return False if none is."""
        if self.left <= 0:
            return False
        self._left -= cost
        return True

    def penalise(self, cost: float) -> None:
        """Take `cost` in any case. The debt never exceeds the largest single cost."""
        self._left = min(self.left, max(self.left - cost, -cost))

    @property
    def seconds(self) -> float:
        """Seconds until any unit is left."""
        return max(0.0, -self.left / self._rate)

    @property
    def full(self) -> bool:
        return self.left >= self._burst

    @property
    def left(self) -> float:
        """Units left now; a debt is negative."""
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
    """Connection as the quota sees it: its client, its number of open streams, and its end with a reason."""

    info: ConnectionInfo

    @property
    def streams(self) -> int: ...

    def end(self, why: str = "") -> None: ...


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
        if due := now - self.logged_at.get(what, -LOG_INTERVAL_SECONDS) >= LOG_INTERVAL_SECONDS:
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
    """Connection as the interceptor sees it: the address `peer` and PEM `certificate` (or empty) of the other
    end, and its calls since."""

    peer: str
    certificate: bytes
    tls: str = TLS13
    client: GatewayClient
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
    `for_sites` of the connections and half of the calls are reserved for sites."""

    strangers: int
    connections: int
    calls: int
    for_sites: int

    @property
    def streams_per_client(self) -> int:
        return min(MAX_STREAMS_PER_CLIENT, max(MIN_STREAMS, self.calls // 4))

    @property
    def streams_of_non_sites(self) -> int:
        """Limit of open streams of all clients but sites. gRPC may still work on some that have ended."""
        most = self.calls // 2 if self.for_sites else self.calls - self.calls // 4
        return max(MIN_STREAMS, most)


@dataclass(eq=False)
class ConnectionQuota:
    """Quota of the clients of one gateway. `close` ends a connection with a reason."""

    _close: Callable[[QuotaConnection, str], None]
    _limits: ListenerLimits
    _clients: dict[str, GatewayClient] = field(default_factory=dict)
    _others: int = 0  # open streams of all clients but sites

    def client_of(self, who: Identity | None, network: str) -> GatewayClient:
        """Return the client with an identity, or the client of `network` without one."""
        name = f"anonymous {network}" if who is None else who.uri
        return self._clients.setdefault(
            name, GatewayClient(name=name, role=None if who is None else who.role)
        )

    def refusal(self, client: GatewayClient, taken: Collection[QuotaConnection]) -> str:
        """Return the reason to refuse one connection beside `taken`, or empty; an idle one may be closed."""
        if time.monotonic() < client.blocked_until:
            return "cut-off"
        if not client.connections.spend(1):
            return "too-often"
        if len(client.open) >= MOST_OF_ONE and not self._make_room(client.open):
            return "too-many-of-one"
        others = [one for one in taken if one.info.client.role is not Role.SITE]
        free = self._limits.connections - len(taken)
        if client.role is not Role.SITE:
            free = min(free, self._limits.connections - self._limits.for_sites - len(others))
        return "" if free > 0 or self._make_room(others) else "full"

    def _make_room(self, among: Collection[QuotaConnection]) -> bool:
        """Close the connection that has been idle for longest. Return False if none is idle."""
        idle = (one for one in among if not one.info.calls)
        if (latest := min(idle, key=lambda one: one.info.last, default=None)) is None:
            return False
        self._close(latest, "made-room")
        return True

    def may_open(self, client: GatewayClient) -> bool:
        """Return True if a client may open one more stream; otherwise its next call waits."""
        return client.streams < self._limits.streams_per_client

    def opened(self, client: GatewayClient) -> None:
        """Count one more open stream. Beyond the limit of all clients but sites, close the busiest one's
        connection with the most streams; of several the oldest."""
        client.streams += 1
        if client.role is not Role.SITE:
            self._others += 1
            if self._others > self._limits.streams_of_non_sites:
                others = (one for one in self._clients.values() if one.role is not Role.SITE)
                busiest = max(others, key=lambda one: one.streams)
                self._close(min(busiest.open, key=lambda one: (-one.streams, one.info.began)), "streams")

    def closed(self, client: GatewayClient, count: int) -> None:
        client.streams -= count
        self._others -= count * (client.role is not Role.SITE)

    def forget(self) -> None:
        """Forget clients that have been idle for long."""
        self._clients = {name: one for name, one in self._clients.items() if not one.idle_for_long}
