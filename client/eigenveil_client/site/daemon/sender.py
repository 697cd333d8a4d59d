"""Sending a reply: with the next request for work, alone, or in chunks that survive a lost connection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypeGuard

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, EigenveilError
from eigenveil.numerics.encoding import to_memoryview
from eigenveil_client.connection.channel import CALL_SECONDS, backoff_seconds, call
from eigenveil_client.site.daemon.answers import MaskedAnswer, Ready
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import Sendable
from eigenveil_common.files import failpoint
from eigenveil_common.rpc import CHUNK_BYTES, INLINE_BYTES, WITH_NEXT_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

MAX_REOPENS = 5
MAX_WAITS = 60  # of about ten seconds each, while the coordinator serves others
COMMIT_SECONDS = 300.0  # the coordinator checks a large answer: some 10 s for 5,000 columns
REOPEN_CODES = (Code.NOT_FOUND, Code.NOT_READY)
PARALLEL_CHUNKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLimits:
    """The smaller of this program's limits and the coordinator's, in bytes."""

    inline: int = INLINE_BYTES
    chunk: int = CHUNK_BYTES


def fits_with_request(
    reply: Sendable | None, limits: TransferLimits
) -> TypeGuard[Contribution | MaskedAnswer | Ready]:
    """True if one call has room for the reply and the next request for work [R27]."""
    max_inline = min(WITH_NEXT_BYTES, limits.inline)
    match reply:
        case Ready():
            return True
        case MaskedAnswer(contribution=answer) | (Contribution() as answer):
            return answer.values.nbytes <= max_inline
        case _:
            return False


async def send(
    stub: rpc.CoordinatorAsyncStub,
    reply: Sendable,
    limits: TransferLimits,
    next_request: pb.NextWorkRequest | None,
    poll_seconds: float,
) -> pb.NextWorkResponse | None:
    """Deliver a reply, and return when the coordinator has it.

    A reply that `fits_with_request` may carry `next_request`. Then return its response, for which each
    attempt waits up to `poll_seconds`. Raises the coordinator's refusal, or code `unreachable`."""
    seconds = CALL_SECONDS if next_request is None else poll_seconds
    failpoint("reply-sending")
    plan, round = bytes.fromhex(reply.plan_digest), reply.round
    match reply:
        case Refusal(reason=reason, text=text, rule=rule):
            refusal = pb.DeclineRequest(plan_digest=plan, round=round, reason=reason, text=text, rule=rule)
            await call(stub.Decline, refusal)
            failpoint("refusal-sent")
            return None
        case Ready():
            key = pb.SignedStudyKey(signed_json=reply.key.signed_json, signature=reply.key.signature)
            query = bytes.fromhex(reply.query)
            request = pb.ReadyRequest(
                plan_digest=plan, round=round, query_digest=query, study_key=key, next=next_request
            )
            failpoint("ready-sending")
            found = (await call(stub.Ready, request, seconds=seconds)).next
            failpoint("ready-sent")
            return found
        case MaskedAnswer(contribution=answer) | (Contribution() as answer):
            return await _contribute(stub, answer, limits, next_request, seconds)


async def _contribute(
    stub: rpc.CoordinatorAsyncStub,
    answer: Contribution,
    limits: TransferLimits,
    next_request: pb.NextWorkRequest | None,
    seconds: float,
) -> pb.NextWorkResponse | None:
    data, found = to_memoryview(answer.values), None
    if len(data) <= limits.inline:
        digests = _digest_fields(answer, answer.digest)
        request = pb.ContributeRequest(values=bytes(data), next=next_request, **digests)
        found = (await call(stub.Contribute, request, seconds=seconds)).next
    else:
        await _upload(stub, answer, data, limits.chunk)
    failpoint("reply-sent")
    return found


def _digest_fields(contribution: Contribution, digest: str) -> dict[str, Any]:
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
    """Send in chunks. Open the upload again if the coordinator lost it (after a restart, or because it
    stalled). Wait while the coordinator serves other uploads."""
    digest = await asyncio.to_thread(lambda: contribution.digest)
    open_request = pb.OpenUploadRequest(total_bytes=len(data), **_digest_fields(contribution, digest))
    reopened = waited = 0
    while True:
        try:
            upload = await call(stub.OpenUpload, open_request)
            await _put_missing(stub, upload, data, chunk)
            await call(stub.Commit, pb.CommitRequest(upload=upload.upload), seconds=COMMIT_SECONDS)
        except EigenveilError as problem:
            reopened += problem.code is Code.NOT_FOUND
            waited += problem.code is Code.NOT_READY
            if problem.code not in REOPEN_CODES or reopened == MAX_REOPENS or waited == MAX_WAITS:
                raise
            await asyncio.sleep(backoff_seconds(reopened + waited))
        else:
            return


async def _put_missing(
    stub: rpc.CoordinatorAsyncStub, upload: pb.OpenUploadResponse, data: memoryview, chunk: int
) -> None:
    slots = asyncio.Semaphore(PARALLEL_CHUNKS)

    async def put_chunk(index: int) -> None:
        async with slots:
            piece = bytes(data[index * chunk : (index + 1) * chunk])
            await call(stub.PutChunk, pb.PutChunkRequest(upload=upload.upload, index=index, data=piece))
            failpoint("chunk-sent")

    missing = sorted(set(range(-(-len(data) // chunk))) - set(upload.received_chunks))
    tasks = [asyncio.create_task(put_chunk(index)) for index in missing]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
