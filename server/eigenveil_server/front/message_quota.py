"""Quotas of messages that gRPC buffers: requests without an answer, and replies that are not read yet. gRPC
buffers up to 4 MiB for every stream before a call is admitted; 100 streams on each of 16 connections would
take 6 GiB for one certificate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from eigenveil.errors import Code, RequestError
from eigenveil_common.rpc import MESSAGE_BYTES, WITH_NEXT_BYTES
from eigenveil_server.front.quota import GatewayClient

FREE_BYTES = WITH_NEXT_BYTES  # of each client without a reservation: most requests have a few hundred bytes
MAX_BYTES_PER_CLIENT = 4 * MESSAGE_BYTES  # a site sends one chunk at a time, an analyst one study
MOST_REQUEST_BYTES = 48 * MESSAGE_BYTES  # of all clients; deploy/OPERATIONS.md sums up all limits
LONG_SECONDS = 20.0  # for one message while others wait; a slow line needs as long for 1 MiB
LOOK_SECONDS = 0.1  # between two searches for a client to cut off: each visits all clients


@dataclass(slots=True, kw_only=True)
class _ClientBytes:
    """Bytes of one client. `whole` bytes of `sent` are of complete requests; `since` is when it began the
    others or first reserved."""

    client: GatewayClient
    sent: int = 0
    whole: int = 0
    reserved: int = 0
    since: float = 0.0


class RequestQuota:
    """Quota of one gateway. `cut` closes all connections of a client, which releases their bytes at once. A
    client reserves bytes in steps of one message, so that it can finish a message that it has begun, and
    waits if none are free. Then a client that has reserved more than one message, or has been sending one for
    long, is cut off. A complete request stays reserved until its answer, since gRPC still buffers its bytes.
    It waits for the coordinator, so its client is not slow."""

    def __init__(
        self, cut: Callable[[GatewayClient], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cut = cut
        self._clock = clock
        self._of: dict[str, _ClientBytes] = {}
        self._reserved = 0
        self._looked = -LOOK_SECONDS

    def take(self, client: GatewayClient, count: int) -> bool:
        """Reserve `count` more bytes of an unanswered request. Return False if they must wait."""
        entry = self._of.setdefault(client.name, _ClientBytes(client=client))
        entry.client = client  # a new object of this name, if the gateway had forgotten the last
        if may := self._may_take(entry, count):
            if entry.sent == entry.whole:
                entry.since = self._clock()
            entry.sent += count
        elif not entry.sent and self._of.get(client.name) is entry:
            del self._of[client.name]
        return may

    def _may_take(self, entry: _ClientBytes, count: int) -> bool:
        if entry.sent + count > MAX_BYTES_PER_CLIENT:
            self._cut(entry.client)
            return False
        more = _bytes_to_reserve(entry.sent + count) - entry.reserved
        return more <= 0 or self._reserve(entry, more)

    def complete(self, client: GatewayClient, count: int) -> None:
        """Mark a request of `count` bytes as complete."""
        if (entry := self._of.get(client.name)) is not None:
            entry.whole += count

    def give_back(self, client: GatewayClient, count: int, *, whole: int = 0) -> None:
        """Release bytes, answered or closed with their connection; `whole` of them are of whole requests."""
        if (entry := self._of.get(client.name)) is None:
            return
        entry.sent -= count
        entry.whole -= whole
        less = entry.reserved - _bytes_to_reserve(entry.sent)
        entry.reserved -= less
        self._reserved -= less
        if not entry.sent:
            del self._of[client.name]

    def _reserve(self, entry: _ClientBytes, more: int) -> bool:
        if self._reserved + more > MOST_REQUEST_BYTES:
            self._make_room()
        if self._reserved + more > MOST_REQUEST_BYTES or self._of.get(entry.client.name) is not entry:
            return False
        if not entry.reserved:
            entry.since = self._clock()
        entry.reserved += more
        self._reserved += more
        return True

    def _make_room(self) -> None:
        """Cut off the client with the most bytes if these exceed one message, or else the slowest sender."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        most = max(self._of.values(), key=lambda one: (one.reserved, -one.since))
        if most.reserved > MESSAGE_BYTES:
            self._cut(most.client)
            return
        sending = [one for one in self._of.values() if one.reserved and one.sent > one.whole]
        slowest = min(sending, key=lambda one: one.since, default=None)
        if slowest is not None and now - slowest.since >= LONG_SECONDS:
            self._cut(slowest.client)


def _bytes_to_reserve(sent: int) -> int:
    """Return the reservation for so many bytes, in whole messages."""
    return 0 if sent <= FREE_BYTES else -(-sent // MESSAGE_BYTES) * MESSAGE_BYTES


# Reads of up to 4 MiB each; one caller may make so many at a time, and others wait. `ListStudies` has its
# own queue (`rpc.responses`): calls that waited here could not share an answer there.
READS = frozenset({"GetDictionary", "GetRelease", "GetRound", "GetStudyKeys", "ListSites"})
READS_AT_ONCE = 2
MOST_REPLY_BYTES = 8 * 2**20  # of one caller; each reply is up to three times in memory


def current_task() -> asyncio.Task[object]:
    """Return the task of a call, in which this runs."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a call runs in a task")
    return task


@dataclass(slots=True)
class _CallerReplies:
    """Unread replies of one caller. `users` counts the calls that refer to them."""

    read_slots: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, READS_AT_ONCE))
    size: int = 0
    users: int = 0


@dataclass(eq=False)
class UnreadReplies:
    """Unread replies of one listener. Use it on the event loop, in the task of a call. A handler returns long
    before its reply is sent: gRPC buffers the reply until the caller grants flow-control window for all of
    it. The task of the call ends then, or when the caller cancels the call or the gateway closes the
    connection, and releases all that the call reserved."""

    _of: dict[str, _CallerReplies] = field(default_factory=dict)

    async def wait_to_read(self, method: str, caller: str) -> None:
        """Wait until `caller` may make one more read, if the method is one of `READS`."""
        if method in READS:
            caller_replies = self._use(caller)
            await caller_replies.read_slots.acquire()
            current_task().add_done_callback(lambda task: caller_replies.read_slots.release())

    def add_unread(self, caller: str, size: int) -> None:
        """Count a reply of `size` bytes before it is sent."""
        caller_replies = self._use(caller)
        if caller_replies.size and caller_replies.size + size > MOST_REPLY_BYTES:
            raise RequestError(
                Code.NOT_READY,
                f"{caller_replies.size // 1024} KiB of answers to you were not read yet; read them, then "
                "try again",
            )
        caller_replies.size += size

        def taken(task: object) -> None:
            caller_replies.size -= size

        current_task().add_done_callback(taken)

    def _use(self, caller: str) -> _CallerReplies:
        caller_replies = self._of.setdefault(caller, _CallerReplies())
        caller_replies.users += 1
        current_task().add_done_callback(lambda task: self._left(caller, caller_replies))
        return caller_replies

    def _left(self, caller: str, caller_replies: _CallerReplies) -> None:
        caller_replies.users -= 1
        if not caller_replies.users:
            del self._of[caller]
