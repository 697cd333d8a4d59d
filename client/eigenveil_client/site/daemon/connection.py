"""The work of one connection: ask for work, answer it, deliver the answer, until it is lost or old.

An answer and the question for the next round go in one call, so a round costs one trip there and one back; a
large answer has calls of its own, and the question is on its way before them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, EigenveilError, PeerError
from eigenveil_client.connection.channel import MOST_VALUES, call, fetch_round, pause
from eigenveil_client.site.daemon.masked import Masked, Ready
from eigenveil_client.site.daemon.metrics import Contact
from eigenveil_client.site.daemon.refusals import Refusal
from eigenveil_client.site.daemon.sender import Limits, goes_along, send
from eigenveil_client.site.daemon.worker import Later, Reply, Sendable, SiteWorker
from eigenveil_common.log import alarm, event
from eigenveil_common.rpc import CHUNK_BYTES, INLINE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

POLL_SLACK_SECONDS = 15.0
LONGEST_POLL_SECONDS = 60.0
DECISION_SECONDS = 1.0  # how often to look whether a person has decided
QUICK_SECONDS = 1.0  # a long-poll that ends sooner with nothing is answered by a pause
CONNECTION_SECONDS = 6 * 3600.0  # then a new connection, which finds a renewed certificate on either side
MOST_ANSWERED = 64  # plans
STRANGE = (pb.DECLINE_REASON_PROTOCOL, pb.DECLINE_REASON_FAILURE)

T = TypeVar("T")
Place = tuple[int, int]  # a round, and the number of the attempt at it; 0 before any, or where there are none
NOWHERE: Place = (-1, 0)


class Lost(Exception):
    """A call to the coordinator failed: this connection is over, the process is not."""

    def __init__(self, problem: EigenveilError) -> None:
        super().__init__(str(problem))
        self.problem = problem


async def remote(awaitable: Awaitable[T]) -> T:
    """Tell the coordinator's errors (even its `storage`) from our own, which end the process."""
    try:
        return await awaitable
    except EigenveilError as problem:
        raise Lost(problem) from problem


class SiteConnection:
    """The work of one connection. `answered` starts empty: what the last one left open is asked again."""

    def __init__(
        self, worker: SiteWorker, stub: rpc.CoordinatorAsyncStub, limits: pb.Limits, contact: Contact
    ) -> None:
        self._worker = worker
        self._contact = contact
        self._stub = stub
        self._limits = Limits(
            inline=min(INLINE_BYTES, limits.inline_bytes or INLINE_BYTES),
            chunk=min(CHUNK_BYTES, limits.chunk_bytes or CHUNK_BYTES),
        )
        self._poll = min(limits.long_poll_ms / 1000, LONGEST_POLL_SECONDS) + POLL_SLACK_SECONDS
        self._answered: dict[str, Place] = {}  # the latest of each plan
        self._said: tuple[frozenset[str], dict[str, bool]] = (
            frozenset(),
            {},
        )  # plans that wait, or are agreed to
        # Goes with the next question, until it has arrived.
        self._going: Contribution | Masked | Ready | None = None
        self._odd = 0

    async def run(self, over: Callable[[], bool]) -> None:
        """Work until the connection is lost, old or `over`. Raises `Lost`, or what the worker raised."""
        began = time.monotonic()
        self._pending = await self._ask()
        try:
            while time.monotonic() - began < CONNECTION_SECONDS and not over():
                response = await self._word()
                known = self._worker.known_plans()
                fetched = await self._missed(response)
                made = await asyncio.to_thread(self._worker.work, response, fetched)
                idle = response.ByteSize() == 0 or self._worker.known_plans() != known
                await self._slow_down(made, idle)
                reply = None if isinstance(made, Later) else made
                if reply is not None and await self._held_back(reply):
                    reply = None
                self._going = reply if goes_along(reply, self._limits) else None
                self._pending = await self._ask()
                if reply is not None and self._going is None:
                    await self._deliver(reply)
            if (last := self._going) is not None:  # the call that it was to go in never begins
                await self._give_up()
                await self._deliver(last)
        finally:
            await self._give_up()

    async def _word(self) -> pb.NextWorkResponse:
        """The coordinator's word; asked anew when a person has decided about a study."""
        while True:
            seconds = DECISION_SECONDS if self._worker.known_plans() else None
            done, _ = await asyncio.wait({self._pending}, timeout=seconds)
            if done:
                return self._pending.result()
            if await asyncio.to_thread(self._words) != self._said:
                await self._give_up()
                if self._going is not None and await self._held_back(self._going):
                    self._going = None
                self._pending = await self._ask()

    async def _give_up(self) -> None:
        self._pending.cancel()
        with suppress(asyncio.CancelledError, Lost):
            await self._pending

    def _words(self) -> tuple[frozenset[str], dict[str, bool]]:
        agreed = self._worker.agreed()  # first: a plan that is approved in between is in neither, not in both
        return self._worker.awaiting(), agreed

    async def _ask(self) -> asyncio.Task[pb.NextWorkResponse]:
        """The next question, on its way; what it names is read beside the event loop."""
        self._said = awaiting, agreed = await asyncio.to_thread(self._words)
        known, checkpoint = await asyncio.to_thread(self._named)
        request = pb.NextWorkRequest(
            awaiting=[bytes.fromhex(plan) for plan in sorted(awaiting)],
            agreed=[
                pb.Agreed(plan_digest=bytes.fromhex(plan), person=person) for plan, person in agreed.items()
            ],
            known_plans=[bytes.fromhex(plan) for plan in known],
            held=list(known.values()),
            answered=[
                pb.Answered(plan_digest=bytes.fromhex(plan), round=round, attempt=number)
                for plan, (round, number) in self._answered.items()
            ],
            checkpoint_digest=checkpoint,
        )
        return asyncio.create_task(self._next_work(request))

    def _named(self) -> tuple[dict[str, int], bytes]:
        return self._worker.held_of_known(), self._worker.store.checkpoints.digest()

    async def _next_work(self, request: pb.NextWorkRequest) -> pb.NextWorkResponse:
        began = time.monotonic()
        response = await self._delivered(self._going, request) if self._going is not None else None
        if response is None:
            response = await remote(call(self._stub.NextWork, request, seconds=self._poll, attempts=1))
        self._contact.last = time.time()
        if response.HasField("checkpoint"):
            self._hold(response)
            response.ClearField("checkpoint")
        if response.ByteSize() == 0 and time.monotonic() - began < QUICK_SECONDS:
            await asyncio.sleep(QUICK_SECONDS)
        return response

    def _hold(self, response: pb.NextWorkResponse) -> None:
        """Hold a checkpoint of the coordinator's ledger before anything of its answer is believed [R20]."""
        try:
            self._worker.take_checkpoint(response.checkpoint, response.parted)
        except PeerError as problem:
            alarm("checkpoint-refused", code=problem.code.value, detail=str(problem))
            raise Lost(problem) from problem

    async def _missed(self, response: pb.NextWorkResponse) -> list[pb.SealedRound]:
        """The releases of rounds that were missed, or that are too large to come with the question [R21]; no
        more than fit into memory. The worker keeps those, so that the next time goes on from there."""
        fetched: list[pb.SealedRound] = []
        plan, size = response.query.plan_digest, 0
        for round in self._worker.lacks(response):
            if size > MOST_VALUES:
                break
            fetched.append(
                await remote(fetch_round(lambda asked: call(self._stub.GetRound, asked), plan, round))
            )
            size += fetched[-1].ByteSize()
        return fetched

    async def _slow_down(self, reply: Reply | None, idle: bool) -> None:
        """Remember the reply. Work that no honest coordinator hands out is taken ever more slowly: what is
        named as answered already, what had to be refused as a breach or a bug, what led to nothing.

        `idle`: there was no work, or the plans in hand have changed.
        """
        if reply is None:
            odd = not idle
        else:
            latest, place = self._answered.pop(reply.plan_digest, NOWHERE), _place(reply)
            odd = (isinstance(reply, Refusal) and reply.reason in STRANGE) or place <= latest
            self._answered[reply.plan_digest] = max(place, latest)
            if len(self._answered) > MOST_ANSWERED:
                del self._answered[next(iter(self._answered))]
        self._odd = self._odd + 1 if odd else 0
        if self._odd > 1:
            await asyncio.sleep(pause(self._odd))

    async def _held_back(self, reply: Sendable) -> bool:
        return not await asyncio.to_thread(self._worker.stands, reply)

    async def _delivered(self, reply: Sendable, wish: pb.NextWorkRequest) -> pb.NextWorkResponse | None:
        """What `wish` was answered once `reply` had arrived; None if that was refused."""
        try:
            found = await send(self._stub, reply, self._limits, wish, self._poll)
        except EigenveilError as problem:
            self._refused(reply, problem)
            found = None
        self._going = None
        return found

    async def _deliver(self, reply: Sendable) -> None:
        try:
            await send(self._stub, reply, self._limits)
        except EigenveilError as problem:
            self._refused(reply, problem)

    def _refused(self, reply: Sendable, problem: EigenveilError) -> None:
        if problem.code in (Code.UNREACHABLE, Code.IDENTITY):
            raise Lost(problem) from problem
        event(
            "reply-refused", logging.WARNING,
            study=reply.plan_digest, round=reply.round, code=problem.code.value,
        )  # fmt: skip


def _place(reply: Reply) -> Place:
    return (reply.round, reply.number if isinstance(reply, Masked) else 0)
