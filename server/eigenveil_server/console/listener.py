"""The console's listener: TLS 1.3 as the other listeners have it, and HTTP/1.1 that tells who called."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

import h11
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from eigenveil.errors import Code, RequestError

MOST_CONNECTIONS = 256
MOST_OF_ONE = 32  # connections that show one certificate: a browser opens six
MOST_OF_ADDRESS = 128  # connections from one address, which a whole hospital may share
HANDSHAKE_SECONDS = 10.0
IDLE_SECONDS = 20.0
REQUEST_SECONDS = 60.0  # from when a request could begin to the last byte of its body
HEAD_BYTES = 32 * 1024  # of a request, with all its headers
Tls = Callable[[], ssl.SSLContext]
Refuse = Callable[[str], None]  # tells of an address that was not heard


class CertifiedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, which hands an application what TLS has found out: `certificate` (PEM, or nothing)
    and `tls` are in the state of each request. It ends what `admits` refuses, and requests that never end."""

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
        self._bound()
        # uvicorn waits for a first request for ever.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._bound()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._bound()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unbound()
        super().connection_lost(exc)

    def _bound(self) -> None:
        """Keep one deadline while a request is not whole: uvicorn's own timer ends with its first byte."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._unbound()
        elif self._due is None and not self.transport.is_closing():
            self._due = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _unbound(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


class Listener:
    """Serves from `serve` to `close`; `tls` is asked at each handshake, so that certificates and authorities
    change without a restart. If there are `proxies`, nobody else is heard, and `refuse` is told of it."""

    def __init__(self, tls: Tls, *, proxies: frozenset[str], refuse: Refuse) -> None:
        self._tls = tls
        self._proxies = proxies
        self._refuse = refuse
        self._state = ServerState()

    async def open(self, host: str, port: int) -> int:
        """Take the address, and accept nobody yet; the port.

        Raises:
            RequestError: the address is taken.
        """
        first = self._tls()
        first.sni_callback = self._present
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._protocol,
                host,
                port,
                ssl=first,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=1.0,
                start_serving=False,
            )
        except OSError as problem:
            raise RequestError(
                Code.BAD_CONFIG, f"cannot listen on {host}:{port} for the console; is it used elsewhere?"
            ) from problem
        return int(self._server.sockets[0].getsockname()[1])

    def _present(self, connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        connection.context = self._tls()

    async def serve(self, app: ASGIApp) -> None:
        """Answer by `app` from now on."""
        # What uvicorn would log are requests, of which `app` tells what matters.
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
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=int(IDLE_SECONDS),
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        self._config.load()
        await self._server.start_serving()

    def _protocol(self) -> asyncio.Protocol:
        state: dict[str, Any] = {}
        return CertifiedProtocol(self._admits, config=self._config, server_state=self._state, app_state=state)

    def _admits(self, newest: CertifiedProtocol) -> bool:
        """Whether a connection may stay, before it has said a word: nobody takes the places of all."""
        address = newest.client[0] if newest.client is not None else ""
        if self._proxies:  # what comes from a proxy is everybody's, so none of it is counted
            if address not in self._proxies:
                self._refuse(address)
            return address in self._proxies
        pem = newest.app_state["certificate"]
        here = [one for one in self._state.connections if isinstance(one, CertifiedProtocol)]
        alike = sum(one.app_state["certificate"] == pem for one in here)
        near = sum(one.client is not None and one.client[0] == address for one in here)
        return alike <= MOST_OF_ONE and near <= MOST_OF_ADDRESS

    async def close(self) -> None:
        """Accept nobody, and let everybody go."""
        self._server.close()
        for connection in tuple(self._state.connections):
            connection.transport.abort()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
