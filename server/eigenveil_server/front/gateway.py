"""Gateway: TLS, connection quotas and handshake limits in front of gRPC, which hides connections from its
server. The bytes of each connection are passed on through a private Unix socket, whose name gRPC reports as
the peer of a call. By this name a call is assigned to its connection and its certificate."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import ssl
import time
import traceback
from asyncio import sslproto
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from eigenveil.errors import Code, EigenveilError, PeerError
from eigenveil.identity import Identity, Role
from eigenveil_common import log
from eigenveil_common.rpc import HANDSHAKE_MS
from eigenveil_server.front.connection import GatewayConnection, Upstream
from eigenveil_server.front.handshake_limiter import HandshakeLimiter
from eigenveil_server.front.known_networks import KnownNetworks
from eigenveil_server.front.message_quota import RequestQuota
from eigenveil_server.front.pending_connections import PendingConnection, PendingConnections
from eigenveil_server.front.quota import (
    BLOCK_SECONDS,
    ConnectionInfo,
    ConnectionQuota,
    GatewayClient,
    ListenerLimits,
    QuotaConnection,
)

# Size of asyncio's read buffer for one TLS connection. A handshake needs no more: its largest message, a
# certificate, has 1 KiB. Admitted clients get a larger buffer.
sslproto.SSLProtocol.max_size = 4 * 1024
OTHERS_READ_BYTES = 32 * 1024
# Fewer pieces for the large answers of sites: each piece costs a pass of two event loops.
SITE_READ_BYTES = 128 * 1024
READ_BYTES = 256 * 1024  # for decrypted bytes, shared by all connections of a gateway
SITE_SEND_BUFFER_BYTES = 2**20  # send buffer to gRPC
CALL_SECONDS = 15.0  # until the first admitted call
LEAVE_SECONDS = 2.0  # in which a refused client can still read the reason
CLOSE_SECONDS = 2.0
CLOSE_REASONS = {
    "resets": "too many calls were cancelled before they were answered",
    "requests": "too many bytes of unanswered requests were sent",
    "no-call": "no call was admitted in time",
    "shut-out": "this certificate is refused",
    "streams": "too many calls are open at once",
    "unread": "an answer was not read in time",
    "unfinished": "a request was not sent in time",
    "misframed": "a frame is not valid HTTP/2",
}


class Gateway:
    """Listener in front of gRPC. gRPC's socket is `folder`/grpc; connections to it have numbers as names.
    `tls` returns the current context, `identify` the identity in a certificate. `check_admitted` raises
    PeerError if a client is no longer admitted. `closed` counts closed connections by reason and client."""

    def __init__(
        self,
        folder: Path,
        *,
        tls: Callable[[], ssl.SSLContext],
        identify: Callable[[bytes], Identity | None],
        check_admitted: Callable[[ConnectionInfo], object],
        closed: Callable[[str, str], None],
        limits: ListenerLimits,
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)  # left over if the last process was killed
        folder.mkdir(mode=0o700)
        self._opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._folder = folder
        self._short = f"/proc/self/fd/{self._opened}"  # a socket's name has at most 107 bytes
        self._tls, self._identify = tls, identify
        self._check_admitted, self._closed = check_admitted, closed
        self.quota = ConnectionQuota(self.cut, limits)
        self.requests = RequestQuota(partial(self.block, why="requests"))
        self._known = KnownNetworks()
        self._pending_connections = PendingConnections(
            self._start_handshake, partial(self._log_closed, "handshakes"), self._known, most=limits.strangers
        )
        self._connections: dict[str, GatewayConnection] = {}
        self._handshake_tasks: set[asyncio.Task[None]] = set()
        self._sockets: set[GatewayConnection] = set()
        self._empty = asyncio.Event()
        self._handshakes = HandshakeLimiter(self._on_slow_handshake, self._known)
        self._number = 0
        self.read_buffer = memoryview(bytearray(READ_BYTES))

    @property
    def grpc_address(self) -> str:
        return f"unix:{self._short}/grpc"

    async def open(self, host: str, port: int) -> int:
        """Accept connections. Return the port. Raises OSError if it is taken, or there is no such address."""
        return await self._pending_connections.open(host, port)

    async def close(self) -> None:
        """Stop listening and close all connections."""
        self._pending_connections.close()
        for task in self._handshake_tasks:
            task.cancel()
        await asyncio.gather(*self._handshake_tasks, return_exceptions=True)
        for connection in tuple(self._connections.values()):
            connection.end()
        self._empty.clear()
        with contextlib.suppress(TimeoutError):
            if self._sockets:
                await asyncio.wait_for(self._empty.wait(), CLOSE_SECONDS)
        os.close(self._opened)
        shutil.rmtree(self._folder, ignore_errors=True)

    def of(self, peer: str) -> ConnectionInfo:
        """Return the connection that gRPC calls `peer`."""
        connection = self._connections.get(peer.rpartition("/")[2])
        if connection is None:
            raise PeerError(Code.IDENTITY, "this connection has ended or did not come through the gateway")
        return connection.info

    def is_connected(self, peer: str) -> bool:
        """Return True if a connection from the address `peer` is open."""
        return any(one.info.peer == peer for one in self._connections.values())

    # ------------------------------------------------------------ coming

    def _start_handshake(self, pending: PendingConnection) -> asyncio.Task[None]:
        connection = GatewayConnection(self)
        task = asyncio.create_task(self._handshake(pending, connection))
        self._handshake_tasks.add(task)
        task.add_done_callback(partial(self._handshake_done, pending, connection))
        return task

    async def _handshake(self, pending: PendingConnection, connection: GatewayConnection) -> None:
        try:
            await self._handshakes.wait(pending, pending.network)
            connection.outer = await self._tls_handshake(pending, connection)
            if connection.ended:
                return
            info = self._connection_info(connection.outer, pending)
            if why := self.quota.refusal(info.client, self._connections.values()):
                # Stay pending for a while: a closed client comes again, and a handshake costs more.
                self._log_closed(why, info)
                connection.stop_reading()
                await asyncio.sleep(BLOCK_SECONDS)
            else:
                await self._connect_upstream(pending, connection, info)
        except (OSError, EigenveilError):  # TLS informs the other end; the watchdog reports ours
            return

    def _handshake_done(
        self, pending: PendingConnection, connection: GatewayConnection, task: asyncio.Task[None]
    ) -> None:
        """Release a connection that was not admitted, also if its task was cancelled before it began."""
        self._handshake_tasks.discard(task)
        self._pending_connections.left(pending)
        self._handshakes.leave(pending, pending.network)
        if connection.name:
            return
        if connection in self._sockets:
            connection.end()
            self.socket_closed(connection)  # asyncio does not report one whose handshake was not finished
        else:
            pending.sock.close()

    def _on_slow_handshake(self, pending: PendingConnection) -> None:
        self._log_closed("handshakes")
        self._pending_connections.end(pending)

    def arrived(self, connection: GatewayConnection) -> None:
        self._sockets.add(connection)

    async def _tls_handshake(
        self, pending: PendingConnection, connection: GatewayConnection
    ) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        plain, _ = await loop.connect_accepted_socket(lambda: connection, pending.sock)
        try:
            tls = await loop.start_tls(
                plain, connection, self._tls(), server_side=True,
                ssl_handshake_timeout=HANDSHAKE_MS / 1000, ssl_shutdown_timeout=CLOSE_SECONDS,
            )  # fmt: skip
        except BaseException as problem:
            # asyncio's frames and this error reference each other and all of TLS. Without this, hundreds of
            # failed handshakes would stay in memory until the next garbage collection.
            traceback.clear_frames(problem.__traceback__)
            raise
        if tls is None:
            raise ConnectionResetError("closed during the handshake")
        return tls

    def _connection_info(self, tls: asyncio.Transport, pending: PendingConnection) -> ConnectionInfo:
        channel = cast(ssl.SSLObject, tls.get_extra_info("ssl_object"))
        der = channel.getpeercert(binary_form=True)
        certificate = ssl.DER_cert_to_PEM_cert(der).encode() if der else b""
        who = self._identify(certificate) if certificate else None
        client = self.quota.client_of(who, pending.network)
        host = f"[{pending.address}]" if ":" in pending.address else pending.address
        peer, tls_version = f"{host}:{pending.port}", channel.version() or ""
        return ConnectionInfo(peer=peer, certificate=certificate, tls=tls_version, client=client)

    async def _connect_upstream(
        self, pending: PendingConnection, connection: GatewayConnection, info: ConnectionInfo
    ) -> None:
        """Connect to gRPC under a new name."""
        self._number += 1
        name = str(self._number)
        plain = socket.socket(socket.AF_UNIX)
        try:
            plain.setblocking(False)
            if site := info.client.role is Role.SITE:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SITE_SEND_BUFFER_BYTES)
            plain.bind(f"{self._short}/{name}")
            plain.connect(f"{self._short}/grpc")
            os.unlink(f"{self._short}/{name}")
        except OSError:
            plain.close()
            raise
        self._pending_connections.left(pending)
        self._handshakes.succeeded(pending, pending.network)
        tls = connection.outer._ssl_protocol  # type: ignore[attr-defined]
        tls.max_size = SITE_READ_BYTES if site else OTHERS_READ_BYTES
        self._connections[name] = connection
        connection.name, connection.info, connection.network = name, info, pending.network
        info.client.open.add(connection)
        loop = asyncio.get_running_loop()
        inner, _ = await loop.create_unix_connection(lambda: Upstream(connection), sock=plain)
        if connection.ended:
            inner.close()
        else:
            connection.begin(inner)

    def _record_network(self, connection: GatewayConnection) -> None:
        """Record the network of a member. A certificate that was denied has no admitted call."""
        if connection.info.client.role is not None and connection.info.admitted:
            self._known.record(connection.network)

    # ------------------------------------------------------------ going

    def left(self, connection: GatewayConnection) -> None:
        if connection.name:
            del self._connections[connection.name]
            self._record_network(connection)
            connection.info.client.open.discard(connection)

    def socket_closed(self, connection: GatewayConnection) -> None:
        self._sockets.discard(connection)
        if not self._sockets:
            self._empty.set()

    def block(self, client: GatewayClient, why: str) -> None:
        client.blocked_until = time.monotonic() + BLOCK_SECONDS
        for one in tuple(client.open):
            self.cut(one, why)

    def sweep(self) -> None:
        """Close connections without an admitted call, with an overdue call, or of a refused client."""
        now = time.monotonic()
        verdicts: dict[bytes, bool] = {}  # one check for all connections of a certificate
        for connection in tuple(self._connections.values()):
            self._record_network(connection)
            info = connection.info
            if why := connection.overdue():
                self.cut(connection, why)
            if info.calls or connection.ended:
                continue
            if not info.admitted and now - info.began > CALL_SECONDS:
                self.cut(connection, "no-call")
            elif now - info.last > LEAVE_SECONDS:
                shown = info.certificate
                if shown not in verdicts:
                    try:
                        self._check_admitted(info)
                        verdicts[shown] = False
                    except PeerError:
                        verdicts[shown] = True
                if verdicts[shown]:
                    self.cut(connection, "shut-out")
        self.quota.forget()
        self._handshakes.forget()
        self._known.forget()

    def cut(self, connection: QuotaConnection, why: str) -> None:
        """Close a connection. The caller can read the reason."""
        self._log_closed(why, connection.info)
        connection.end(CLOSE_REASONS.get(why, why))

    def _log_closed(self, why: str, info: ConnectionInfo | None = None) -> None:
        """Count a closed connection, and log it once a minute for each client and reason."""
        client = None if info is None else info.client
        self._closed(why, client.name if client is not None and client.role is not None else "")
        if info is not None and info.client.should_log(why):
            about = {"why": why, "peer": info.client.name, "address": info.peer}
            log.event("connection-closed", logging.WARNING, **about)
