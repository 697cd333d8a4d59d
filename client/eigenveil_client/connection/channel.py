"""Calls to the coordinator: errors with their code, idempotent calls repeated.

Every unary call of the protocol is idempotent, so a lost reply is answered by asking again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from eigenveil.errors import Code, PeerError, spoken
from eigenveil.planning.dry_run import MAX_NUMBERS
from eigenveil_common.rpc import VERSION_MAX, VERSION_MIN, error_from
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

Request = TypeVar("Request")
Response = TypeVar("Response")

CALL_SECONDS = 20.0
ATTEMPTS = 6
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
MOST_VALUES = 8 * MAX_NUMBERS  # bytes of one release


async def greet(
    stub: rpc.CoordinatorAsyncStub,
    software: str,
    seconds: float = CALL_SECONDS,
    also: pb.HelloRequest | None = None,
) -> pb.HelloResponse:
    """The first call of a connection: agree on a version of the protocol, and say what is in `also`.

    Raises:
        EigenveilError: code `version`, if there is none that both speak; or as `call`.
    """
    asked = pb.HelloRequest(version_min=VERSION_MIN, version_max=VERSION_MAX, software=software)
    if also is not None:
        asked.MergeFrom(also)
    hello = await call(stub.Hello, asked, attempts=1, seconds=seconds)
    if not VERSION_MIN <= hello.version <= VERSION_MAX:
        raise PeerError(
            Code.VERSION,
            f"the coordinator speaks version {hello.version}, this program {VERSION_MIN} to {VERSION_MAX}; "
            "update the older of the two",
        )
    return hello


async def call(
    method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
    request: Request,
    *,
    seconds: float = CALL_SECONDS,
    attempts: int = ATTEMPTS,
) -> Response:
    """Make an idempotent call; repeat it while the coordinator cannot be reached.

    `seconds` is the time limit of one attempt.

    Raises:
        EigenveilError: the coordinator's own error, or code `unreachable` after the last attempt.
    """
    for attempt in range(attempts):
        try:
            return await method(request, timeout=seconds)
        except grpc.aio.AioRpcError as problem:
            failure = error_from(problem)
            if failure.code is not Code.UNREACHABLE or attempt + 1 == attempts:
                raise failure from problem
        await asyncio.sleep(pause(attempt))
    raise PeerError(Code.UNREACHABLE, "no attempt was allowed")


async def fetch_round(
    query: Callable[[pb.GetRoundRequest], Awaitable[pb.GetRoundResponse]], plan_digest: bytes, round: int
) -> pb.SealedRound:
    """The signed release of a round, in as many calls as it takes. [R21]

    Raises:
        EigenveilError: as `ask`; or code `protocol`, there is less or more than was announced.
    """
    release, values, total = pb.SealedRound(), bytearray(), 1
    while len(values) < total:
        part = await query(pb.GetRoundRequest(plan_digest=plan_digest, round=round, offset=len(values)))
        if not values:
            release.CopyFrom(part.release)
            total = part.total_bytes
        values += part.release.values
        if not part.release.values or total > MOST_VALUES:
            raise PeerError(Code.PROTOCOL, f"{spoken(round)} came in other pieces than it has")
    release.values = bytes(values)
    return release


def pause(attempt: int) -> float:
    """Seconds to wait after the attempt of this number: exponential, bounded, full jitter.

    The jitter comes from the operating system, like every random number here: a seedable generator
    is not importable beside code that talks about privacy.
    """
    ceiling = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempt, 30))
    return ceiling * int.from_bytes(os.urandom(4), "little") / 2**32
