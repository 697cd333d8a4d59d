"""Sending a reply: with the next question for work, alone, or in chunks that survive a lost connection. Every
call may be repeated."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypeGuard

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, EigenveilError
from eigenveil.numerics.encoding import octets
from eigenveil_client.connection.channel import CALL_SECONDS, call, pause
from eigenveil_client.site.daemon.masked import Masked, Ready
from eigenveil_client.site.daemon.refusals import Refusal
from eigenveil_client.site.daemon.worker import Sendable
from eigenveil_common.failpoints import failpoint
from eigenveil_common.rpc import CHUNK_BYTES, INLINE_BYTES, WITH_NEXT_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

REOPENINGS = 5
TURNS = 60  # of ten seconds or so each, in which others are heard first
COMMIT_SECONDS = 300.0  # the coordinator checks what a large answer can be: some 10 s for 5,000 columns
OPEN_AGAIN = (Code.NOT_FOUND, Code.NOT_READY)
CHUNKS_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The smaller of our limits and the coordinator's, in bytes."""

    inline: int = INLINE_BYTES
    chunk: int = CHUNK_BYTES


def goes_along(reply: Sendable | None, limits: Limits) -> TypeGuard[Contribution | Masked | Ready]:
    """Whether one call has room for it and for the next question for work [R27]."""
    small = min(WITH_NEXT_BYTES, limits.inline)
    match reply:
        case Ready():
            return True
        case Masked(contribution=answer) | (Contribution() as answer):
            return answer.values.nbytes <= small
        case _:
            return False


async def send(
    stub: rpc.CoordinatorAsyncStub,
    reply: Sendable,
    limits: Limits,
    wish: pb.NextWorkRequest | None = None,
    seconds: float = CALL_SECONDS,
) -> pb.NextWorkResponse | None:
    """Deliver a reply; return once the coordinator has it. Beside one that `goes_along` there may be a
    `wish`: then return once that is answered, for which each attempt waits up to `seconds`.

    Raises:
        EigenveilError: the coordinator's refusal, or code `unreachable`.
    """
    failpoint("reply-sending")
    match reply:
        case Refusal():
            await _decline(stub, reply)
            return None
        case Ready():
            return await _say_ready(stub, reply, wish, seconds)
        case Masked(contribution=answer) | (Contribution() as answer):
            return await _contribute(stub, answer, limits, wish, seconds)


async def _decline(stub: rpc.CoordinatorAsyncStub, reply: Refusal) -> None:
    refusal = pb.DeclineRequest(
        plan_digest=bytes.fromhex(reply.plan_digest),
        round=reply.round,
        reason=reply.reason,
        text=reply.text,
    )
    await call(stub.Decline, refusal)
    failpoint("refusal-sent")


async def _say_ready(
    stub: rpc.CoordinatorAsyncStub, reply: Ready, wish: pb.NextWorkRequest | None, seconds: float
) -> pb.NextWorkResponse:
    said = pb.ReadyRequest(
        plan_digest=bytes.fromhex(reply.plan_digest),
        round=reply.round,
        query_digest=bytes.fromhex(reply.query),
        card_digest=bytes.fromhex(reply.card),
        next=wish,
    )
    failpoint("ready-sending")
    found = (await call(stub.Ready, said, seconds=seconds)).next
    failpoint("ready-sent")
    return found


async def _contribute(
    stub: rpc.CoordinatorAsyncStub,
    answer: Contribution,
    limits: Limits,
    wish: pb.NextWorkRequest | None,
    seconds: float,
) -> pb.NextWorkResponse | None:
    data, found = octets(answer.values), None
    if len(data) <= limits.inline:
        said = pb.ContributeRequest(values=bytes(data), next=wish, **_named(answer, answer.digest))
        found = (await call(stub.Contribute, said, seconds=seconds)).next
    else:
        await _upload(stub, answer, data, limits.chunk)
    failpoint("reply-sent")
    return found


def _named(contribution: Contribution, digest: str) -> dict[str, Any]:
    return {
        "plan_digest": bytes.fromhex(contribution.plan_digest),
        "round": contribution.round,
        "query_digest": bytes.fromhex(contribution.query),
        "contribution_digest": bytes.fromhex(digest),
        "attempt_digest": bytes.fromhex(contribution.attempt),
    }


async def _upload(
    stub: rpc.CoordinatorAsyncStub, contribution: Contribution, data: memoryview, chunk: int
) -> None:
    """Send in chunks. A coordinator that forgot the upload (it restarted, or others waited while nothing
    moved) is asked anew; one that has others to hear first, for as long as that takes."""
    digest = await asyncio.to_thread(lambda: contribution.digest)
    opening = pb.OpenUploadRequest(total_bytes=len(data), **_named(contribution, digest))
    reopened = waited = 0
    while True:
        try:
            opened = await call(stub.OpenUpload, opening)
            await _put_missing(stub, opened, data, chunk)
            await call(stub.Commit, pb.CommitRequest(upload=opened.upload), seconds=COMMIT_SECONDS)
        except EigenveilError as problem:
            reopened += problem.code is Code.NOT_FOUND
            waited += problem.code is Code.NOT_READY
            if problem.code not in OPEN_AGAIN or reopened == REOPENINGS or waited == TURNS:
                raise
            await asyncio.sleep(pause(reopened + waited))
        else:
            return


async def _put_missing(
    stub: rpc.CoordinatorAsyncStub, opened: pb.OpenUploadResponse, data: memoryview, chunk: int
) -> None:
    turns = asyncio.Semaphore(CHUNKS_AT_ONCE)

    async def put(index: int) -> None:
        async with turns:
            piece = bytes(data[index * chunk : (index + 1) * chunk])
            await call(stub.PutChunk, pb.PutChunkRequest(upload=opened.upload, index=index, data=piece))
            failpoint("chunk-sent")

    missing = sorted(set(range(-(-len(data) // chunk))) - set(opened.have))
    tasks = [asyncio.create_task(put(index)) for index in missing]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
