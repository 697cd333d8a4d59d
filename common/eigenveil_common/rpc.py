"""gRPC settings of both ends: limits, and errors that retain their code across the wire."""

from __future__ import annotations

import grpc

from eigenveil.errors import Code, EigenveilError, PeerError, error

VERSION_MIN = 7  # the version before this one, from 1.0 on
VERSION_MAX = 8
MESSAGE_BYTES = 4 * 2**20
INLINE_BYTES = 2**20
WITH_NEXT_BYTES = 64 * 1024  # of an answer sent with a request for work; it is in memory until the reply
CHUNK_BYTES = 3 * 2**20  # a message with one chunk stays below MESSAGE_BYTES
METADATA_BYTES = 16 * 1024
LONG_POLL_SECONDS = 30.0
HANDSHAKE_MS = 10_000
MOST_CONNECTIONS = 1536  # per listener; a connection in its handshake takes about 85 KB, mostly TLS
IDLE_MS = 5 * 60_000  # a connection without a call

CODE_KEY = "eigenveil-code"

OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),  # the limit above is soft and not always enforced
    # No compression: integers do not compress, and a small message that expands is an attack.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER_OPTIONS = (
    *OPTIONS,
    ("grpc.http2.settings_timeout", HANDSHAKE_MS),  # limits apply once the peer has acknowledged them
    ("grpc.max_connection_idle_ms", IDLE_MS),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 2),
)


def error_from(problem: grpc.aio.AioRpcError) -> EigenveilError:
    """Return our error for a failed call: the peer's if it sent a code, else by gRPC status."""
    details = problem.details() or "no detail"
    for key, value in problem.trailing_metadata() or ():
        if key == CODE_KEY and isinstance(value, str):
            try:
                return error(Code(value), details)
            except ValueError:
                return PeerError(Code.PROTOCOL, f"the peer sent an unknown error code {value}: {details}")
    # CANCELLED without a code of ours: an overloaded server dropped the call before accepting it.
    unreachable = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
    code = Code.UNREACHABLE if problem.code() in unreachable else Code.PROTOCOL
    return PeerError(code, f"{problem.code().name.lower().replace('_', ' ')}: {details}")
