"""gRPC plumbing shared by both ends: limits, and errors that keep their code across the wire."""

from __future__ import annotations

import grpc

from eigenveil.errors import Code, EigenveilError, PeerError, error

VERSION_MIN = 1
VERSION_MAX = 1
MESSAGE_BYTES = 4 * 2**20
INLINE_BYTES = 2**20
CHUNK_BYTES = 2**20
LONG_POLL_SECONDS = 30.0

CODE_KEY = "eigenveil-code"

OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


def status_of(problem: EigenveilError) -> grpc.StatusCode:
    """The gRPC status of one of our errors."""
    return grpc.StatusCode[problem.status]


def error_from(problem: grpc.aio.AioRpcError) -> EigenveilError:
    """Our error for a failed call: the peer's own if it sent a code, else by status."""
    details = problem.details() or "no detail"
    for key, value in problem.trailing_metadata() or ():
        if key == CODE_KEY and isinstance(value, str):
            try:
                return error(Code(value), details)
            except ValueError:
                return PeerError(Code.PROTOCOL, f"the peer sent an unknown error code {value}: {details}")
    unreachable = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    code = Code.UNREACHABLE if problem.code() in unreachable else Code.PROTOCOL
    return PeerError(code, f"{problem.code().name.lower().replace('_', ' ')}: {details}")
