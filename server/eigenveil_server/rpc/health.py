"""grpc.health.v1 on a listener of its own, in plain text and with nothing else behind it.

A load balancer or an orchestrator has no certificate of the federation, and the listener with
certificates serves nobody without one. So a probe has its own port, off unless configured, whose
server knows no other service.
"""

from __future__ import annotations

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import OVERALL_HEALTH, aio

from eigenveil.errors import Code, RequestError
from eigenveil_server.rpc.listener import listening

PROBES = 32
HEAR_SECONDS = 0.2  # for watchers to hear of the end
PROBE_BYTES = 1024
CONNECTIONS = 64
SILENT_MS, IDLE_MS = 5_000, 60_000  # before the first frame, and without a call
SERVICE = "eigenveil.v1.Coordinator"
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", PROBE_BYTES),
    ("grpc.max_metadata_size", 4096),
    ("grpc.max_concurrent_streams", 4),
    # Its share of descriptors, however many sockets come: the other listeners' are not its to take.
    ("grpc.max_allowed_incoming_connections", CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", SILENT_MS),
    ("grpc.http2.settings_timeout", SILENT_MS),
    ("grpc.max_connection_idle_ms", IDLE_MS),
)


class Health:
    """Says SERVING from `start` to `stop`."""

    def __init__(self, address: str) -> None:
        self._servicer = aio.HealthServicer()
        self._server = listening(options=OPTIONS, maximum_concurrent_rpcs=PROBES)
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, self._server)
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError as problem:
            raise RequestError(Code.BAD_CONFIG, f"cannot listen on {address} for health probes") from problem

    async def start(self) -> None:
        """Answer probes, with SERVING: the other listeners accept already."""
        for name in (OVERALL_HEALTH, SERVICE):
            await self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    async def stop(self) -> None:
        """Tell watchers NOT_SERVING, then close."""
        await self._servicer.enter_graceful_shutdown()
        await self._server.stop(HEAR_SECONDS)
