"""Server of the console, opened and closed with the daemon, on its event loop."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eigenveil_common import log
from eigenveil_common.web.application import application
from eigenveil_server.config import Config, ConsoleConfig, split_listen
from eigenveil_server.console.access import AccessGate, CertificateVisitors, ProxyVisitors, Visitors
from eigenveil_server.console.federation_pages import FederationPages, SubmissionPages
from eigenveil_server.console.listener import ConsoleListener
from eigenveil_server.console.page_context import ConsoleData, DaemonServices, PageContext
from eigenveil_server.console.studies import FORMATTERS
from eigenveil_server.console.study_pages import StudyPages
from eigenveil_server.metrics import Metrics
from eigenveil_server.pki.keys import HTTP1, ServerCertificate
from eigenveil_server.rpc.callers import Calls, Watches
from eigenveil_server.rpc.interceptor import Authenticator


class ConsoleServer:
    """Server of pages from `open` to `close`. `sweep` ends live pages of visitors that lost admission."""

    def __init__(
        self,
        serving: DaemonServices,
        console: ConsoleConfig,
        leaf: ServerCertificate,
        authenticator: Authenticator,
    ) -> None:
        self._serving = serving
        self._console = console
        self._authenticator = authenticator
        by_certificate = not console.trusted_header
        self._listener = ConsoleListener(
            partial(leaf.tls, client_certificates=by_certificate, alpn_protocol=HTTP1),
            proxies=frozenset(console.trusted_proxies),
            refuse=self._on_unlisted_proxy,
            closed=serving.runtime.metrics.closed,
        )
        self._calls = Calls()
        self._watches = Watches(console.max_watches)

    async def open(self) -> int:
        """Start to serve. Return the port. Raises RequestError: the address is taken."""
        serving, config = self._serving, self._serving.config
        port = await self._listener.open(*split_listen(self._console.listen))
        data = ConsoleData.of(config, serving.runtime.repository)
        self._context = PageContext(serving, data, host_names(config, self._console, port), FORMATTERS)
        await self._listener.serve(self._application())
        return port

    def _application(self) -> ASGIApp:
        serving, metrics, context = self._serving, self._serving.runtime.metrics, self._context
        metrics.watchers = self._watches.total
        fatal = serving.runtime.repository.fatal
        gate = AccessGate(self._visitors(), serving.admissions, context.gateway, metrics, fatal)
        pages = (
            FederationPages(context),
            StudyPages(context, self._calls, self._watches),
            SubmissionPages(context),
        )
        routes = [gate.protect(route) for one in pages for route in one.routes()]
        app = application(routes, gateway=context.gateway, gate=gate)
        return StatusCounter(app=app, metrics=metrics)

    def _visitors(self) -> Visitors:
        admissions, repository = self._serving.admissions, self._serving.runtime.repository
        if self._console.trusted_header:
            return ProxyVisitors(self._console, admissions, self._serving.config.federation, repository.clock)
        return CertificateVisitors(self._authenticator, admissions)

    def _on_unlisted_proxy(self, address: str) -> None:
        log.event("page-refused", logging.WARNING, address=address, why="address is not in trusted_proxies")
        self._serving.runtime.metrics.console_refusals.labels("identity").inc()

    def sweep(self) -> None:
        """End the live pages of visitors that are no longer admitted."""
        self._calls.sweep()
        self._listener.sweep()

    async def close(self) -> None:
        await self._listener.close()
        self._context.close()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatusCounter:
    """ASGI app that counts the answers of `app` by their HTTP status."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.metrics.pages.labels(str(message["status"])).inc()
            await send(message)

        await self.app(scope, receive, counted)


def host_names(config: Config, console: ConsoleConfig, port: int) -> frozenset[str]:
    """Return the allowed Host names of the console: the configured ones, with and without its port."""
    found = console.hosts or tuple(dict.fromkeys((config.host, "localhost")))
    bare = [f"[{one}]" if one.count(":") > 1 else one for one in found]
    return frozenset([*bare, *(f"{one}:{port}" for one in bare)])
