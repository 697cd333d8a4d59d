"""gRPC servers that serve registered methods only, and the services of enrolment and health. The main
listener requires a certificate of the federation. Enrolment has a listener without client certificates [R2],
and health (grpc.health.v1) a plain-text one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc._cython import cygrpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import OVERALL_HEALTH, aio

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.protocol.wire import lists_to_proto
from eigenveil_common import log
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import EnrolmentServicer
from eigenveil_server.config import Config
from eigenveil_server.front.quota import RATE, TokenBucket
from eigenveil_server.pki.keys import Keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.rpc.interceptor import CONNECTION_INFO, Context

# Pending calls of one method, or of unregistered ones: beyond the first number some are refused, beyond the
# second all. The gateway passes 60 calls of one certificate at once. So neither a few busy certificates nor a
# thousand sites that answer at the same time fill this queue.
PENDING = (("grpc.server.max_pending_requests", 2048), ("grpc.server.max_pending_requests_hard_limit", 2560))
# Seconds that a pending call may wait. Calls of registered methods wait only for those of other sites; a call
# that is dropped costs its site a new connection.
UNTAKEN = ("grpc.server_max_unrequested_time_in_server", 10)


class _RegisteredMethodsServer(cygrpc.AioServer):  # type: ignore[misc]  # Cython tells no types
    """gRPC server that accepts calls of registered methods only. grpcio 1.84 and 1.85 stop a whole `grpc.aio`
    server, sometimes by a segmentation fault, when a peer sends a method name that is not UTF-8: the server
    loop decodes the name of every unregistered method. Any client of the enrolment listener could do that. So
    calls of unregistered methods are never accepted: gRPC's core queues a bounded number of them and drops
    them."""

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[Any]:
        if method is None:  # an unregistered method: this future never completes
            return asyncio.get_running_loop().create_future()
        future: asyncio.Future[Any] = super()._make_request_call_future(method)
        return future


def registered_methods_server(
    *interceptors: grpc.aio.ServerInterceptor,
    options: Sequence[tuple[str, int | str]],
    maximum_concurrent_rpcs: int,
) -> grpc.aio.Server:
    """Return a server as `grpc.aio.server` does. Its methods must be registered, as generated code does."""
    server = grpc.aio.server()
    server._server = _RegisteredMethodsServer(  # type: ignore[attr-defined]
        asyncio.get_running_loop(),
        None,
        (),
        interceptors,
        (*options, *PENDING, UNTAKEN),
        maximum_concurrent_rpcs,
    )
    return server


PROBES = 32
STOP_NOTICE_SECONDS = 0.2  # for watchers to receive NOT_SERVING
PROBE_BYTES = 1024
CONNECTIONS = 64
FIRST_FRAME_MS, IDLE_MS = 5_000, 60_000  # before the first frame, and without a call
SERVICE = "eigenveil.v1.Coordinator"
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", PROBE_BYTES),
    ("grpc.max_metadata_size", 4096),
    ("grpc.max_concurrent_streams", 4),
    # Limits its share of descriptors, so that the other listeners keep theirs.
    ("grpc.max_allowed_incoming_connections", CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", FIRST_FRAME_MS),
    ("grpc.http2.settings_timeout", FIRST_FRAME_MS),
    ("grpc.max_connection_idle_ms", IDLE_MS),
)


class Health:
    """Report SERVING from `start` to `stop`. A load balancer or an orchestrator has no certificate of the
    federation. So probes have their own port, off unless configured, whose server offers no other service."""

    def __init__(self, address: str) -> None:
        self._servicer = aio.HealthServicer()
        self._server = registered_methods_server(options=OPTIONS, maximum_concurrent_rpcs=PROBES)
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, self._server)
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError as problem:
            raise RequestError(Code.BAD_CONFIG, f"cannot listen on {address} for health probes") from problem

    async def start(self) -> None:
        """Answer probes with SERVING; the other listeners already accept connections."""
        for name in (OVERALL_HEALTH, SERVICE):
            await self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    async def stop(self) -> None:
        """Tell watchers NOT_SERVING, then close."""
        await self._servicer.enter_graceful_shutdown()
        await self._server.stop(STOP_NOTICE_SECONDS)


WRONG_TOKEN_RATE = {"burst": 20.0, "rate": 5.0}  # wrong tokens of all addresses together
# For the address: one second, or five while WRONG_TOKEN_RATE is used up.
PENALTY, LARGE_PENALTY = RATE, 5 * RATE


@dataclass(eq=False)
class Enrolment(EnrolmentServicer):
    """Issue certificates for one-time tokens."""

    _config: Config
    _keys: Keys
    _registry: Registry
    _wrong_tokens: TokenBucket = field(default_factory=lambda: TokenBucket(**WRONG_TOKEN_RATE))

    async def Enrol(self, request: pb.EnrolRequest, context: Context) -> pb.EnrolResponse:
        """Return the certificate for a token. The same request again gets the same certificate."""
        arguments = (request.token, request.csr_der, self._keys.authority, self._config.days)
        try:
            issued = await asyncio.to_thread(self._registry.enrol, *arguments)
        except PeerError:
            # Wrong tokens delay only their own address: a right token elsewhere is never refused.
            penalty = PENALTY if self._wrong_tokens.spend(1) else LARGE_PENALTY
            CONNECTION_INFO.get().client.allowance.penalise(penalty)
            raise
        log.event("enrolled", peer=issued.identity.uri, print=issued.key)
        return pb.EnrolResponse(
            certificate_pem=issued.pem,
            federation=self._config.federation,
            authorities=lists_to_proto(self._keys.authorities.since(request.authorities_version)),
        )
