"""Calls to the coordinator: a secure channel, errors with their code, idempotent calls repeated.

Every unary call of the protocol is idempotent, so a lost reply is answered by asking again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import grpc

from eigenveil.errors import Code, PeerError, spoken
from eigenveil.identity import Identity
from eigenveil.planning.dry_run import MAX_NUMBERS
from eigenveil_client.connection.proxy import ProxyRule
from eigenveil_client.connection.tls import KeyPair, verified_channel
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


class Certified(Protocol):
    """What a caller must hold: its name, its key and certificate, whom it calls and whom it trusts."""

    @property
    def identity(self) -> Identity:
        """Who calls."""

    @property
    def coordinator(self) -> str:
        """host:port."""

    @property
    def ca_pem(self) -> bytes:
        """The federation's certificate authority."""

    @property
    def pair(self) -> KeyPair:
        """The caller's key and certificate."""

    @property
    def proxy(self) -> ProxyRule:
        """Which proxy to go through, if any."""


async def open_channel(caller: Certified) -> grpc.aio.Channel:
    """A mutually authenticated channel to the coordinator of the caller's federation.

    The channel trusts the one certificate the coordinator has now; open a new one after it changed
    (calls then fail as `unreachable`).

    Raises:
        PeerError: code `unreachable` or `identity` (see `tls.verified_channel`).
        RequestError: the proxy's credentials cannot be used.
    """
    federation = caller.identity.federation
    return await verified_channel(caller.coordinator, federation, caller.ca_pem, caller.pair, caller.proxy)


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
