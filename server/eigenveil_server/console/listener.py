"""The console's listener: TLS 1.3 as the other listeners have it, and HTTP/1.1 that tells who called.

Before it stand `Strangers` and `Turns` of its own, as before the other listeners: a socket costs a descriptor
and 2 KiB until its first record has come, and no port can take another's descriptors.
"""

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
from eigenveil_server.front.strangers import Stranger, Strangers
from eigenveil_server.front.turns import Turns

MOST_STRANGERS = 256  # before or in their handshake
MOST_CONNECTIONS = 256
MOST_OF_ONE = 32  # connections that show one certificate: a browser opens six
MOST_OF_ADDRESS = 128  # connections from one address, which a whole hospital may share
HANDSHAKE_SECONDS = 10.0
IDLE_SECONDS = 20.0
REQUEST_SECONDS = 60.0  # from when a request could begin to the last byte of its body
HEAD_BYTES = 32 * 1024  # of a request, with all its headers
Tls = Callable[[], ssl.SSLContext]
Refuse = Callable[[str], None]  # tells of an address that was not heard
Closed = Callable[[str, str], None]  # counts a connection that was closed: why, and whose


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

    @property
    def certificate(self) -> bytes:
        """PEM; empty if none was shown."""
        return bytes(self.app_state["certificate"])

    @property
    def idle(self) -> bool:
        """Whether it waits for a request of which nothing has come."""
        return self.timeout_keep_alive_task is not None

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

    def __init__(self, tls: Tls, *, proxies: frozenset[str], refuse: Refuse, closed: Closed) -> None:
        self._tls = tls
        self._proxies = proxies
        self._refuse = refuse
        self._closed = closed
        self._state = ServerState()
        self._strangers = Strangers(self._greeting, self._too_many, most=MOST_STRANGERS)
        self._turns = Turns(self._too_slow)
        self._greetings: set[asyncio.Task[None]] = set()
        self._serving = asyncio.Event()

    async def open(self, host: str, port: int) -> int:
        """Take the address, and answer nobody yet; the port.

        Raises:
            RequestError: the address is taken.
        """
        try:
            return await self._strangers.open(host, port)
        except OSError as problem:
            raise RequestError(
                Code.BAD_CONFIG, f"cannot listen on {host}:{port} for the console; is it used elsewhere?"
            ) from problem

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
            limit_concurrency=2 * MOST_CONNECTIONS,  # `_admits` keeps fewer, but for those that are closing
            timeout_keep_alive=int(IDLE_SECONDS),
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        self._config.load()
        self._serving.set()

    # ------------------------------------------------------------ coming

    def _greeting(self, stranger: Stranger) -> asyncio.Task[None]:
        """The first record of a stranger has come: a handshake when its turn has come."""
        task = asyncio.create_task(self._greet(stranger))
        self._greetings.add(task)
        task.add_done_callback(partial(self._greeted, stranger))
        return task

    async def _greet(self, stranger: Stranger) -> None:
        await self._serving.wait()
        if self._proxies and stranger.address not in self._proxies:
            self._refuse(stranger.address)
            return
        await self._turns.wait(stranger, stranger.network)
        sock, stranger.handed_over = stranger.sock, True
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, sock, ssl=self._tls(),
                ssl_handshake_timeout=HANDSHAKE_SECONDS, ssl_shutdown_timeout=1.0,
            )  # fmt: skip
        except (OSError, EigenveilError) as problem:  # TLS has told the other end
            # asyncio's frames and this error hold each other, and with them all of TLS (see the gateway).
            traceback.clear_frames(problem.__traceback__)
        else:
            self._turns.passed(stranger, stranger.network)

    def _greeted(self, stranger: Stranger, task: asyncio.Task[None]) -> None:
        self._greetings.discard(task)
        self._strangers.left(stranger)
        self._turns.leave(stranger, stranger.network)
        if not stranger.handed_over:
            stranger.sock.close()

    def _too_many(self) -> None:
        self._closed("console-handshakes", "")

    def _too_slow(self, stranger: Stranger) -> None:
        self._too_many()
        self._strangers.end(stranger)

    def _protocol(self) -> asyncio.Protocol:
        state: dict[str, Any] = {}
        return CertifiedProtocol(self._admits, config=self._config, server_state=self._state, app_state=state)

    def _admits(self, newest: CertifiedProtocol) -> bool:
        """Whether a connection may stay, before it has said a word: nobody takes the places of all."""
        here = [
            one
            for one in self._state.connections
            if isinstance(one, CertifiedProtocol) and not one.transport.is_closing()
        ]
        if not self._proxies:  # what comes from a proxy is everybody's, so none of it is counted
            address = newest.client[0] if newest.client is not None else ""
            near = sum(one.client is not None and one.client[0] == address for one in here)
            if near > MOST_OF_ADDRESS or _alike(here)[newest.certificate] > MOST_OF_ONE:
                return False
        return len(here) <= MOST_CONNECTIONS or self._make_room(here, newest)

    def _make_room(self, here: list[CertifiedProtocol], newest: CertifiedProtocol) -> bool:
        """Close one of the certificate with the most, an idle one if there is any; a proxy's only if idle."""
        count = _alike(here)
        others = [one for one in here if one is not newest and (one.idle or not self._proxies)]
        if others:
            max(others, key=lambda one: (count[one.certificate], one.idle)).transport.abort()
        return bool(others)

    def sweep(self) -> None:
        """Keep nothing of addresses that were quiet lately."""
        self._turns.forget()

    async def close(self) -> None:
        """Accept nobody, and let everybody go."""
        self._strangers.close()
        for task in self._greetings:
            task.cancel()
        await asyncio.gather(*self._greetings, return_exceptions=True)
        for connection in tuple(self._state.connections):
            connection.transport.abort()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)


def _alike(here: list[CertifiedProtocol]) -> Counter[bytes]:
    """How many connections show each certificate."""
    return Counter(one.certificate for one in here)
