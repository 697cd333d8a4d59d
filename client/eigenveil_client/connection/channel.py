"""Calls to the coordinator, with error codes and retries with backoff. Every unary call of the protocol is
idempotent, so a call whose reply was lost is retried."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from eigenveil.errors import Code, PeerError, round_label
from eigenveil.planning.choose import MAX_NUMBERS
from eigenveil_common.rpc import VERSION_MAX, VERSION_MIN, error_from
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

Request = TypeVar("Request")
Response = TypeVar("Response")

CALL_SECONDS = 20.0
ATTEMPTS = 6
FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 10.0
MAX_RELEASE_BYTES = 8 * MAX_NUMBERS  # bytes of one release


async def negotiate_version(
    stub: rpc.CoordinatorAsyncStub,
    software: str,
    seconds: float = CALL_SECONDS,
    extra: pb.HelloRequest | None = None,
) -> pb.HelloResponse:
    """Make the first call of a connection: agree on a protocol version, and send the fields of `extra`."""
    request = pb.HelloRequest(version_min=VERSION_MIN, version_max=VERSION_MAX, software=software)
    if extra is not None:
        request.MergeFrom(extra)
    hello = await call(stub.Hello, request, attempts=1, seconds=seconds)
    if not VERSION_MIN <= hello.version <= VERSION_MAX:
        ours = f"this program {VERSION_MIN} to {VERSION_MAX}; update the older of the two"
        raise PeerError(Code.VERSION, f"the coordinator uses protocol version {hello.version}, {ours}")
    return hello


async def call(
    method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
    request: Request,
    *,
    seconds: float = CALL_SECONDS,
    attempts: int = ATTEMPTS,
) -> Response:
    """Make an idempotent call, and retry it while the coordinator is unreachable. `seconds` is the time limit
    of one attempt."""
    for attempt in range(attempts):
        try:
            return await method(request, timeout=seconds)
        except grpc.aio.AioRpcError as problem:
            failure = error_from(problem)
            if failure.code is not Code.UNREACHABLE or attempt + 1 == attempts:
                raise failure from problem
        await asyncio.sleep(backoff_seconds(attempt))
    raise PeerError(Code.UNREACHABLE, "no attempt was allowed")


async def fetch_round(
    get_round: Callable[[pb.GetRoundRequest], Awaitable[pb.GetRoundResponse]], plan_digest: bytes, round: int
) -> pb.SealedRound:
    """Return the signed release of a round, fetched in as many calls as its size needs. [R21]"""
    release, values, total = pb.SealedRound(), bytearray(), 1
    while len(values) < total:
        request = pb.GetRoundRequest(plan_digest=plan_digest, round=round, offset=len(values))
        response = await get_round(request)
        if not values:
            release.CopyFrom(response.release)
            total = response.total_bytes
        values += response.release.values
        if not response.release.values or total > MAX_RELEASE_BYTES:
            raise PeerError(Code.PROTOCOL, f"{round_label(round)} has another size than was announced")
    release.values = bytes(values)
    return release


def backoff_seconds(attempt: int) -> float:
    """Return the seconds to wait after attempt `attempt`: exponential, bounded, full jitter. The jitter comes
    from the operating system: a seedable generator may not be imported here."""
    ceiling = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(attempt, 30))
    return ceiling * int.from_bytes(os.urandom(4), "little") / 2**32
