"""Sending a reply: inline, or in chunks that survive a lost connection. Every call may be repeated."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, EigenveilError
from eigenveil.numerics.encoding import to_bytes
from eigenveil_client.connection.channel import call, pause
from eigenveil_client.site.daemon.refusals import Refusal
from eigenveil_client.site.daemon.worker import Reply
from eigenveil_common.failpoints import failpoint
from eigenveil_common.rpc import CHUNK_BYTES, INLINE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

REOPENINGS = 5
OPEN_AGAIN = (Code.NOT_FOUND, Code.NOT_READY)
CHUNKS_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The smaller of our limits and the coordinator's, in bytes."""

    inline: int = INLINE_BYTES
    chunk: int = CHUNK_BYTES


async def send(stub: rpc.CoordinatorAsyncStub, reply: Reply, limits: Limits) -> None:
    """Deliver a reply; return once the coordinator has it.

    Raises:
        EigenveilError: the coordinator's refusal, or code `unreachable`.
    """
    failpoint("reply-sending")
    if isinstance(reply, Refusal):
        refusal = pb.DeclineRequest(
            plan_digest=bytes.fromhex(reply.plan_digest),
            round=reply.round,
            reason=reply.reason,
            text=reply.text,
        )
        await call(stub.Decline, refusal)
        failpoint("refusal-sent")
        return
    data = to_bytes(reply.values)
    if len(data) <= limits.inline:
        await call(stub.Contribute, pb.ContributeRequest(values=data, **_named(reply)))
    else:
        await _upload(stub, reply, data, limits.chunk)
    failpoint("reply-sent")


def _named(contribution: Contribution) -> dict[str, Any]:
    return {
        "plan_digest": bytes.fromhex(contribution.plan_digest),
        "round": contribution.round,
        "query_digest": bytes.fromhex(contribution.query),
        "contribution_digest": bytes.fromhex(contribution.digest),
    }


async def _upload(
    stub: rpc.CoordinatorAsyncStub, contribution: Contribution, data: bytes, chunk: int
) -> None:
    """Send in chunks. A coordinator that forgot the upload (it restarted) or is full is asked anew."""
    opening = pb.OpenUploadRequest(total_bytes=len(data), **_named(contribution))
    for attempt in range(1, REOPENINGS + 1):
        try:
            opened = await call(stub.OpenUpload, opening)
            await _put_missing(stub, opened, data, chunk)
            await call(stub.Commit, pb.CommitRequest(upload=opened.upload))
        except EigenveilError as problem:
            if problem.code not in OPEN_AGAIN or attempt == REOPENINGS:
                raise
            await asyncio.sleep(pause(attempt))
        else:
            return


async def _put_missing(
    stub: rpc.CoordinatorAsyncStub, opened: pb.OpenUploadResponse, data: bytes, chunk: int
) -> None:
    turns = asyncio.Semaphore(CHUNKS_AT_ONCE)

    async def put(index: int) -> None:
        async with turns:
            piece = data[index * chunk : (index + 1) * chunk]
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
