"""Listener of the console: TLS 1.3 as for the other listeners, and HTTP/1.1 with the client's certificate. It
has its own `PendingConnections` and `HandshakeLimiter`: a socket costs a descriptor and 2 KiB until its first
record has come, and no port can use up another port's descriptors."""

from __future__ import annotations

import asyncio
import logging
import ssl
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil_server.front.handshake_limiter import HandshakeLimiter
from eigenveil_server.front.known_networks import KnownNetworks
from eigenveil_server.front.pending_connections import PendingConnection, PendingConnections, network_of

MAX_PENDING_CONNECTIONS = 256  # before or in their handshake
MOST_CONNECTIONS = 256
MOST_OF_ONE = 32  # connections with one certificate; a browser opens six
MOST_OF_ADDRESS = 128  # connections from one address, which a hospital may share
HANDSHAKE_SECONDS = 10.0
IDLE_SECONDS = 20.0
REQUEST_SECONDS = 60.0  # from the earliest start of a request to its last byte
HEAD_BYTES = 32 * 1024  # of a request, with all its headers
Tls = Callable[[], ssl.SSLContext]
Refuse = Callable[[str], None]  # called with a refused address
Closed = Callable[[str, str], None]  # counts a closed connection by reason and client


class CertifiedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with the results of TLS: each request has `certificate` (PEM or empty) and `tls` in
    its state. Connections that `admits` refuses, and requests that never end, are closed."""

    def __init__(self, admits: Callable[[CertifiedProtocol], bool], **more: Any) -> None:
        super().__init__(**more)
        self._admits = admits
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        found: ssl.SSLObject = transport.get_extra_info("ssl_object")
        shown = found.getpeercert(binary_form=True)
        pem = ssl.DER_cert_to_PEM_cert(shown).encode() if shown else b""
        self.app_state = {"certificate": pem, "tls": found.version()}
        super().connection_made(transport)
        if not self._admits(self):
            transport.abort()
            return
        self._start_deadline()
        # uvicorn sets no timeout for the first request.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    @property
    def certificate(self) -> bytes:
        """Client certificate (PEM), or empty."""
        return bytes(self.app_state["certificate"])

    @property
    def idle(self) -> bool:
        """True while no byte of the next request has come."""
        return self.timeout_keep_alive_task is not None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._start_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        super().connection_lost(exc)

    def _start_deadline(self) -> None:
        """Set one deadline for an incomplete request; uvicorn's own timer ends with its first byte."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_deadline()
        elif self._due is None and not self.transport.is_closing():
            self._due = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop_deadline(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


class ConsoleListener:
    """Listener that serves from `serve` to `close`. `tls` is called at each handshake, so that certificates
    and authorities change without a restart. With `proxies`, other addresses are refused through `refuse`."""

    def __init__(self, tls: Tls, *, proxies: frozenset[str], refuse: Refuse, closed: Closed) -> None:
        self._tls = tls
        self._proxies = proxies
        self._refuse = refuse
        self._closed = closed
        self._state = ServerState()
        self._known = KnownNetworks()
        self._pending_connections = PendingConnections(
            self._start_handshake, self._on_too_many, self._known, most=MAX_PENDING_CONNECTIONS
        )
        self._handshakes = HandshakeLimiter(self._on_slow_handshake, self._known)
        self._handshake_tasks: set[asyncio.Task[None]] = set()
        self._serving = asyncio.Event()

    async def open(self, host: str, port: int) -> int:
        """Bind the address without answering yet. Return the port. Raises RequestError: it is taken."""
        try:
            return await self._pending_connections.open(host, port)
        except OSError as problem:
            raise RequestError(
                Code.BAD_CONFIG, f"cannot listen on {host}:{port} for the console; is the port in use?"
            ) from problem

    async def serve(self, app: ASGIApp) -> None:
        """Answer requests with `app` from now on."""
        # uvicorn would log every request; `app` logs what matters.
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())
        logging.getLogger("uvicorn").propagate = False
        self._config = Config(
            app,
            http=CertifiedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=2 * MOST_CONNECTIONS,  # `_admits` allows fewer, not counting closing ones
            timeout_keep_alive=int(IDLE_SECONDS),
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        self._config.load()
        self._serving.set()

    # ------------------------------------------------------------ coming

    def _start_handshake(self, pending: PendingConnection) -> asyncio.Task[None]:
        """Start the handshake of a connection whose first record has come."""
        task = asyncio.create_task(self._handshake(pending))
        self._handshake_tasks.add(task)
        task.add_done_callback(partial(self._handshake_done, pending))
        return task

    async def _handshake(self, pending: PendingConnection) -> None:
        await self._serving.wait()
        if self._proxies and pending.address not in self._proxies:
            self._refuse(pending.address)
            return
        await self._handshakes.wait(pending, pending.network)
        sock, pending.handed_over = pending.sock, True
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, sock, ssl=self._tls(),
                ssl_handshake_timeout=HANDSHAKE_SECONDS, ssl_shutdown_timeout=1.0,
            )  # fmt: skip
        except (OSError, EigenveilError) as problem:  # TLS informs the other end
            # asyncio's frames and this error reference each other and all of TLS (see the gateway).
            traceback.clear_frames(problem.__traceback__)
        else:
            self._handshakes.succeeded(pending, pending.network)

    def _handshake_done(self, pending: PendingConnection, task: asyncio.Task[None]) -> None:
        self._handshake_tasks.discard(task)
        self._pending_connections.left(pending)
        self._handshakes.leave(pending, pending.network)
        if not pending.handed_over:
            pending.sock.close()

    def _on_too_many(self) -> None:
        self._closed("console-handshakes", "")

    def _on_slow_handshake(self, pending: PendingConnection) -> None:
        self._on_too_many()
        self._pending_connections.end(pending)

    def _protocol(self) -> asyncio.Protocol:
        state: dict[str, Any] = {}
        return CertifiedProtocol(self._admits, config=self._config, server_state=self._state, app_state=state)

    def _admits(self, newest: CertifiedProtocol) -> bool:
        """Return True if a new connection is within the limits of its certificate, its address and in all."""
        here = [
            one
            for one in self._state.connections
            if isinstance(one, CertifiedProtocol) and not one.transport.is_closing()
        ]
        address = newest.client[0] if newest.client is not None else ""
        if newest.certificate:
            self._known.record(network_of(address))
        if not self._proxies:  # a proxy's connections are shared by all visitors, so they are not counted
            near = sum(one.client is not None and one.client[0] == address for one in here)
            if near > MOST_OF_ADDRESS or _count_by_certificate(here)[newest.certificate] > MOST_OF_ONE:
                return False
        return len(here) <= MOST_CONNECTIONS or self._make_room(here, newest)

    def _make_room(self, here: list[CertifiedProtocol], newest: CertifiedProtocol) -> bool:
        """Close a connection of the busiest certificate, idle ones first; of a proxy only an idle one."""
        count = _count_by_certificate(here)
        others = [one for one in here if one is not newest and (one.idle or not self._proxies)]
        if others:
            max(others, key=lambda one: (count[one.certificate], one.idle)).transport.abort()
        return bool(others)

    def sweep(self) -> None:
        """Forget addresses that have been idle."""
        self._handshakes.forget()
        self._known.forget()

    async def close(self) -> None:
        """Stop listening and close all connections."""
        self._pending_connections.close()
        for task in self._handshake_tasks:
            task.cancel()
        await asyncio.gather(*self._handshake_tasks, return_exceptions=True)
        for connection in tuple(self._state.connections):
            connection.transport.abort()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)


def _count_by_certificate(here: list[CertifiedProtocol]) -> Counter[bytes]:
    """Return the number of connections with each certificate."""
    return Counter(one.certificate for one in here)
