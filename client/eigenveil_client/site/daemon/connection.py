"""Work of one connection: request work, answer it, send the answer, until the connection is lost or old. An
answer and the next request go in one call, so a round takes one round trip; a large answer has its own
calls. A query that is answered in milliseconds is answered on the event loop, in one step; other work runs in
a thread, because the loop also notes progress every second [0045]."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, EigenveilError, PeerError
from eigenveil_client.connection.channel import MAX_RELEASE_BYTES, backoff_seconds, call, fetch_round
from eigenveil_client.site.daemon.answers import MaskedAnswer, Ready
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.metrics import Contact
from eigenveil_client.site.daemon.sender import TransferLimits, fits_with_request, send
from eigenveil_client.site.daemon.worker import Consent, Postponed, Reply, Sendable, SiteWorker
from eigenveil_common.log import event, log_error
from eigenveil_common.rpc import CHUNK_BYTES, INLINE_BYTES
from eigenveil_common.storage.sqlite import WouldWait
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

POLL_SLACK_SECONDS = 15.0
MAX_POLL_SECONDS = 60.0
DECISION_POLL_SECONDS = 1.0  # interval of polling for a person's decision
QUICK_SECONDS = 1.0  # an empty long poll that ends sooner is followed by a pause
CONNECTION_SECONDS = 6 * 3600.0  # then reconnect, so that renewed certificates are used
MAX_ANSWERED_PLANS = 64  # plans
BREACH_REASONS = (pb.DECLINE_REASON_PROTOCOL, pb.DECLINE_REASON_FAILURE)

T = TypeVar("T")
RoundAttempt = tuple[int, int]  # a round and its attempt; 0 before the first, or without attempts
BEFORE_ANY: RoundAttempt = (-1, 0)


Decisions = tuple[Consent, frozenset[str]]


class ConnectionLost(Exception):
    """A failed call to the coordinator: this connection ends, the process continues."""

    def __init__(self, problem: EigenveilError) -> None:
        super().__init__(str(problem))
        self.problem = problem


async def remote(awaitable: Awaitable[T]) -> T:
    """Raise the coordinator's errors (also `storage`) as ConnectionLost: only our own end the process."""
    try:
        return await awaitable
    except EigenveilError as problem:
        raise ConnectionLost(problem) from problem


def _notify(loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
    """Set an event of the loop from another thread; nothing if the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(changed.set)


class SiteConnection:
    """Work of one connection. `answered` starts empty: the coordinator repeats open queries."""

    def __init__(
        self, worker: SiteWorker, stub: rpc.CoordinatorAsyncStub, limits: pb.Limits, contact: Contact
    ) -> None:
        self._worker = worker
        self._contact = contact
        self._stub = stub
        self._limits = TransferLimits(
            inline=min(INLINE_BYTES, limits.inline_bytes or INLINE_BYTES),
            chunk=min(CHUNK_BYTES, limits.chunk_bytes or CHUNK_BYTES),
        )
        self._poll = min(limits.long_poll_ms / 1000, MAX_POLL_SECONDS) + POLL_SLACK_SECONDS
        self._answered: dict[str, RoundAttempt] = {}  # the latest of each plan
        # With the accepted plans whose records are being loaded; none before the first request.
        self._sent_decisions: Decisions | None = None
        self._load_ended = asyncio.Event()
        # Sent with the next request, until it has arrived.
        self._queued_reply: Contribution | MaskedAnswer | Ready | None = None
        self._suspicious = 0

    async def run(self, stop_requested: Callable[[], bool]) -> None:
        """Work until the connection is lost, old or `stop_requested`. Raises ConnectionLost, or as
        `SiteWorker.work`."""
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        self._worker.ahead.ended = partial(_notify, loop, self._load_ended)
        self._pending_call = self._start_call()
        try:
            while time.monotonic() - began < CONNECTION_SECONDS and not stop_requested():
                response = await self._next_response()
                reply = await self._reply_to(response)
                self._queued_reply = reply if fits_with_request(reply, self._limits) else None
                self._pending_call = self._start_call()
                if reply is not None and self._queued_reply is None:
                    await self._deliver(reply)
            if self._queued_reply is not None:  # the call that should have carried it never starts
                unsent = self._queued_reply
                await self._cancel_pending()
                await self._deliver(unsent)
        finally:
            await self._cancel_pending()

    async def _reply_to(self, response: pb.NextWorkResponse) -> Sendable | None:
        """Work on a response; return the reply to send, if it may still be sent."""
        known = self._worker.known_plans()
        result = await self._work_on(response)
        await self._throttle(result, response.ByteSize() == 0 or self._worker.known_plans() != known)
        if result is None or isinstance(result, Postponed):
            return None
        return result if self._worker.may_send(result) else None

    async def _work_on(self, response: pb.NextWorkResponse) -> Reply | None:
        """Work on a response: at once, or in a thread if that takes longer or waits for another process."""
        with suppress(WouldWait):
            if self._worker.is_quick(response):
                return self._worker.work_at_once(response)
        fetched = await self._fetch_missing(response)
        keys = await self._fetch_keys(response)
        return await asyncio.to_thread(self._worker.work, response, fetched, keys)

    async def _next_response(self) -> pb.NextWorkResponse:
        """Return the coordinator's response; send a new request after a person's decision."""
        while True:
            seconds = DECISION_POLL_SECONDS if self._worker.known_plans() else None
            loaded = asyncio.create_task(self._load_ended.wait())
            waiting = {self._pending_call, loaded}
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            loaded.cancel()
            self._load_ended.clear()
            if self._pending_call.done():
                return self._pending_call.result()
            if self._current_decisions() != self._sent_decisions:
                await self._cancel_pending()
                if self._queued_reply is not None and not self._worker.may_send(self._queued_reply):
                    self._queued_reply = None
                self._pending_call = self._start_call()

    async def _cancel_pending(self) -> None:
        self._pending_call.cancel()
        with suppress(asyncio.CancelledError, ConnectionLost):
            await self._pending_call

    def _current_decisions(self) -> Decisions:
        consent = self._worker.consent()
        return consent, self._worker.load_ahead(consent.accepted) & consent.accepted.keys()

    def _start_call(self) -> asyncio.Task[pb.NextWorkResponse]:
        """Start the next request."""
        self._load_ended.clear()  # what ends from now on changes what is sent
        self._sent_decisions = consent, loading = self._current_decisions()
        known = self._worker.known_release_counts()
        request = pb.NextWorkRequest(
            awaiting_approval=[bytes.fromhex(plan) for plan in sorted(consent.waiting)],
            agreed=[
                pb.Agreed(plan_digest=bytes.fromhex(one), person=by) for one, by in consent.accepted.items()
            ],
            loading=[bytes.fromhex(plan) for plan in sorted(loading)],
            known_plans=[bytes.fromhex(plan) for plan in known],
            stored_releases=list(known.values()),
            answered=[
                pb.Answered(plan_digest=bytes.fromhex(plan), round=round, attempt=number)
                for plan, (round, number) in self._answered.items()
            ],
            checkpoint_digest=self._worker.store.checkpoints.digest(),
        )
        return asyncio.create_task(self._next_work(request))

    async def _next_work(self, request: pb.NextWorkRequest) -> pb.NextWorkResponse:
        began, response = time.monotonic(), None
        if self._queued_reply is not None:
            response = await self._deliver(self._queued_reply, request)
            self._queued_reply = None
        if response is None:
            response = await remote(call(self._stub.NextWork, request, seconds=self._poll, attempts=1))
        self._contact.last = time.time()
        if response.HasField("checkpoint"):
            self._accept_checkpoint(response)
            response.ClearField("checkpoint")
        if response.ByteSize() == 0 and time.monotonic() - began < QUICK_SECONDS:
            await asyncio.sleep(QUICK_SECONDS)
        return response

    def _accept_checkpoint(self, response: pb.NextWorkResponse) -> None:
        """Store the checkpoint of the coordinator's ledger before its response is used [R20]."""
        try:
            self._worker.take_checkpoint(response.checkpoint, response.ledger_diverged)
        except PeerError as problem:
            log_error("checkpoint-refused", code=problem.code.value, detail=str(problem))
            raise ConnectionLost(problem) from problem

    async def _fetch_missing(self, response: pb.NextWorkResponse) -> list[pb.SealedRound]:
        """Fetch the releases of rounds that were missed, or that are too large for the query's message [R21].

        No more than fit into memory. The worker stores them, so that the next call continues from there."""
        fetched: list[pb.SealedRound] = []
        plan, get_round = response.query.plan_digest, partial(call, self._stub.GetRound)
        for round in self._worker.missing_rounds(response):
            if sum(one.ByteSize() for one in fetched) > MAX_RELEASE_BYTES:
                break
            fetched.append(await remote(fetch_round(get_round, plan, round)))
        return fetched

    async def _fetch_keys(self, response: pb.NextWorkResponse) -> list[pb.SignedStudyKey]:
        """Fetch the keys of other sites for the masks of an answer [R36]. The coordinator sends some at a
        time; if it sends none, the answer is refused."""
        fetched: list[pb.SignedStudyKey] = []
        missing = await asyncio.to_thread(self._worker.missing_keys, response)
        while len(fetched) < len(missing):
            request = pb.GetStudyKeysRequest(
                plan_digest=response.query.plan_digest,
                digests=[bytes.fromhex(one) for one in missing[len(fetched) :]],
            )
            part = (await remote(call(self._stub.GetStudyKeys, request))).keys
            if not part:
                break
            fetched.extend(part)
        return fetched

    async def _throttle(self, reply: Reply | None, idle: bool) -> None:
        """Remember the reply, and back off for work that an honest coordinator does not send.

        Such work was answered before, was refused as a breach or a bug, or had no effect. `idle`: there was
        no work, or the known plans have changed."""
        if reply is None:
            suspicious = not idle
        else:
            previous = self._answered.pop(reply.plan_digest, BEFORE_ANY)
            position = (reply.round, reply.number if isinstance(reply, MaskedAnswer) else 0)
            breach = isinstance(reply, Refusal) and reply.reason in BREACH_REASONS
            suspicious = breach or position <= previous
            self._answered[reply.plan_digest] = max(position, previous)
            if len(self._answered) > MAX_ANSWERED_PLANS:
                del self._answered[next(iter(self._answered))]
        self._suspicious = self._suspicious + 1 if suspicious else 0
        if self._suspicious > 1:
            await asyncio.sleep(backoff_seconds(self._suspicious))

    async def _deliver(
        self, reply: Sendable, next_request: pb.NextWorkRequest | None = None
    ) -> pb.NextWorkResponse | None:
        """Send `reply`; return the response to `next_request`, or None if the reply was refused."""
        try:
            return await send(self._stub, reply, self._limits, next_request, self._poll)
        except EigenveilError as problem:
            if problem.code in (Code.UNREACHABLE, Code.IDENTITY):
                raise ConnectionLost(problem) from problem
            study, code = reply.plan_digest, problem.code.value
            event("reply-refused", logging.WARNING, study=study, round=reply.round, code=code)
            return None
