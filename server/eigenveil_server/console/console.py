"""The console of one coordinator: opened and closed with its daemon, on its event loop."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eigenveil_common import log
from eigenveil_common.web.application import application
from eigenveil_server.config import Config, Console, split_listen
from eigenveil_server.console.access import Reception
from eigenveil_server.console.desk import Books, Desk, Serving
from eigenveil_server.console.federation_pages import FederationPages
from eigenveil_server.console.listener import Listener
from eigenveil_server.console.rooms import Rooms
from eigenveil_server.console.study_pages import StudyPages
from eigenveil_server.console.submission_pages import SubmissionPages
from eigenveil_server.console.visitors import Certified, Proxied, Visitors
from eigenveil_server.metrics import Metrics
from eigenveil_server.pki.server_certificate import HTTP1, ServerCertificate
from eigenveil_server.rpc.calls import Calls, Watches
from eigenveil_server.rpc.interceptor import Peers


class ConsoleServer:
    """Serves pages from `open` to `close`. `sweep` ends the live pages of those who were shut out."""

    def __init__(self, serving: Serving, console: Console, leaf: ServerCertificate, peers: Peers) -> None:
        self._serving = serving
        self._console = console
        self._peers = peers
        by_certificate = not console.trusted_header
        self._listener = Listener(
            partial(leaf.tls, client_certificates=by_certificate, speaks=HTTP1),
            proxies=frozenset(console.trusted_proxies),
            refuse=self._unheard,
            closed=serving.runtime.metrics.closed,
        )
        self._calls = Calls()
        self._watches = Watches(console.max_watches)

    async def open(self) -> int:
        """Begin to serve; the port.

        Raises:
            RequestError: the address is taken. InternalError: code `storage`.
        """
        config = self._serving.config
        port = await self._listener.open(*split_listen(self._console.listen))
        books = Books.of(config, self._serving.runtime.repository)
        self._desk = Desk(serving=self._serving, books=books)
        await self._listener.serve(self._application(names(config, self._console, port)))
        return port

    def _application(self, hosts: frozenset[str]) -> ASGIApp:
        serving, metrics = self._serving, self._serving.runtime.metrics
        metrics.watchers = self._watches.total
        rooms = Rooms(serving.config.federation)
        door = rooms.door(hosts)
        reception = Reception(
            self._visitors(), serving.admissions, door, metrics, serving.runtime.repository.fatal
        )
        pages = (
            FederationPages(self._desk, rooms),
            StudyPages(self._desk, rooms, self._calls, self._watches),
            SubmissionPages(self._desk, rooms),
        )
        routes = [reception.behind(route) for one in pages for route in one.routes()]
        return Counted(app=application(routes, door=door, gate=reception), metrics=metrics)

    def _visitors(self) -> Visitors:
        admissions, repository = self._serving.admissions, self._serving.runtime.repository
        if self._console.trusted_header:
            return Proxied(self._console, admissions, self._serving.config.federation, repository.clock)
        return Certified(self._peers, admissions)

    def _unheard(self, address: str) -> None:
        log.event("page-refused", logging.WARNING, address=address, why="it is not one of trusted_proxies")
        self._serving.runtime.metrics.page_refused("identity")

    def sweep(self) -> None:
        """End the live pages whose readers may not go on."""
        self._calls.sweep()
        self._listener.sweep()

    async def close(self) -> None:
        await self._listener.close()
        self._desk.close()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counted:
    """`app`, whose answers are counted by their status."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.metrics.page(message["status"])
            await send(message)

        await self.app(scope, receive, counted)


def names(config: Config, console: Console, port: int) -> frozenset[str]:
    """What a browser may call the console: the names that are configured, with its port or their own."""
    found = console.hosts or tuple(dict.fromkeys((config.host, "localhost")))
    bare = [f"[{one}]" if one.count(":") > 1 else one for one in found]
    return frozenset([*bare, *(f"{one}:{port}" for one in bare)])
