"""Access to the console: identification of visitors, and one table of paths and roles. A visitor has a
certificate or comes through a trusted proxy. A path outside of the table is denied to all."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.errors import Code, InternalError, PeerError
from eigenveil.identity import Identity, Role
from eigenveil_common import log
from eigenveil_common.web.application import PageGateway
from eigenveil_common.web.sessions import SAFE, BrowserSession
from eigenveil_server.config import ConsoleConfig
from eigenveil_server.front.quota import TokenBucket
from eigenveil_server.metrics import Metrics
from eigenveil_server.process import Clock, Fatal
from eigenveil_server.rpc.callers import Admissions
from eigenveil_server.rpc.interceptor import Authenticator


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Visitor of the console. `check` raises PeerError once the visitor is no longer admitted.
    `unused_certificate` is the fingerprint of a renewed certificate that is used for the first time."""

    identity: Identity
    check: Callable[[], object]
    unused_certificate: str = ""

    @property
    def name(self) -> str:
        """Role and name, as in commands of the operator."""
        return f"{self.identity.role.value}/{self.identity.name}"

    @property
    def operates(self) -> bool:
        return self.identity.role is Role.OPERATOR


@dataclass(frozen=True, slots=True)
class CertificateVisitors:
    """Visitors with a certificate; TLS has verified its issuer."""

    _authenticator: Authenticator
    _admissions: Admissions

    def __call__(self, request: Request) -> Visitor:
        """Raises PeerError: code `identity`."""
        shown, tls = request.state.certificate, request.state.tls
        identity, certificate_print = self._authenticator.identify(shown, tls)
        unused = self._admissions.latest.check(identity, certificate_print)

        def check() -> None:
            self._admissions.latest.check(*self._authenticator.identify(shown, tls))

        return Visitor(identity=identity, check=check, unused_certificate=certificate_print if unused else "")


@dataclass(frozen=True, slots=True)
class ProxyVisitors:
    """Visitors named in the header of a trusted proxy. All other connections are refused."""

    _console: ConsoleConfig
    _admissions: Admissions
    _federation: str
    _clock: Clock

    def __call__(self, request: Request) -> Visitor:
        """Raises PeerError: code `identity`."""
        address = request.client.host if request.client is not None else ""
        if address not in self._console.trusted_proxies:
            raise PeerError(Code.IDENTITY, f"{address} is not in trusted_proxies")
        header = self._console.trusted_header
        names = request.headers.getlist(header)
        who = dict(self._console.people).get(names[0]) if len(names) == 1 else None
        if who is None:
            raise PeerError(Code.IDENTITY, f"the proxy's {header} names no one in [console.people]")
        role, _, name = who.partition("/")
        identity = Identity(federation=self._federation, role=Role(role), name=name)

        def check() -> None:
            self._admissions.latest.check_enrolled(identity, self._clock())

        check()
        return Visitor(identity=identity, check=check)


Visitors = CertificateVisitors | ProxyVisitors


# Requests of one visitor: a page with its files takes three, typing into a form two a second.
BURST, RATE = 120.0, 20.0
MOST_VISITORS = 1000  # with a stored allowance

BOTH = frozenset({Role.ANALYST, Role.OPERATOR})
ANALYSTS = frozenset({Role.ANALYST})
OPERATORS = frozenset({Role.OPERATOR})
ADMITTED: Mapping[str, frozenset[Role]] = {
    "/": BOTH,
    "/live": BOTH,
    "/studies": BOTH,
    "/studies/{digest}": BOTH,
    "/studies/{digest}/live": BOTH,
    "/studies/{digest}/report": BOTH,
    "/studies/{digest}/release.zip": BOTH,
    "/studies/{digest}/cancel": ANALYSTS,
    "/budget": BOTH,
    "/submit": ANALYSTS,
    "/submit/preview": ANALYSTS,
    "/people": OPERATORS,
    "/people/{role}/{name}/deny": OPERATORS,
    "/refusals": OPERATORS,
    "/audit": OPERATORS,
}


class AccessGate:
    """Gate of the console: identifies each visitor, checks role and rate limit, and opens sessions."""

    def __init__(
        self, visitors: Visitors, admissions: Admissions, gateway: PageGateway, metrics: Metrics, fatal: Fatal
    ) -> None:
        self._visitors = visitors
        self._admissions = admissions
        self._gateway = gateway
        self._metrics = metrics
        self._fatal = fatal
        self._allowances = defaultdict[str, TokenBucket](lambda: TokenBucket(burst=BURST, rate=RATE))

    async def admit(self, request: Request) -> BrowserSession:
        """Set `request.state.visitor` and return the visitor's session, a new one if a request only reads.
        Raises PeerError: code `identity`, the visitor is not admitted; HTTPException: 401 the session of a
        form has ended, 403 a role without pages, 429 rate limit."""
        await self._admissions.refresh()
        visitor = self._visitor(request)
        if visitor.identity.role not in BOTH:
            raise self._refused(403, "role")
        if not self._allowance(visitor).spend(1):
            raise self._refused(429, "quota")
        if visitor.unused_certificate:
            await self._admissions.mark_used(visitor.identity, visitor.unused_certificate)
        request.state.visitor = visitor
        session = self._gateway.session_of(request)
        if session is not None and session.owner == visitor.identity.uri:
            return session
        if request.method not in SAFE:
            raise self._refused(401, "session")
        return self._gateway.sessions.open(visitor.identity.uri)

    def _refused(self, status: int, why: str) -> HTTPException:
        self._metrics.console_refusals.labels(why).inc()
        return HTTPException(status)

    def _visitor(self, request: Request) -> Visitor:
        try:
            return self._visitors(request)
        except PeerError as problem:
            address = "" if request.client is None else request.client.host
            log.event("page-refused", logging.WARNING, address=address, why=str(problem))
            self._metrics.console_refusals.labels("identity").inc()
            raise

    def _allowance(self, visitor: Visitor) -> TokenBucket:
        if len(self._allowances) > MOST_VISITORS:
            for name in [name for name, one in self._allowances.items() if one.full]:
                del self._allowances[name]
        return self._allowances[visitor.identity.uri]

    def protect(self, route: Route) -> Route:
        """Return `route` restricted to the roles in the table. A storage error ends the process."""
        admitted, endpoint = ADMITTED.get(route.path, frozenset()), route.endpoint

        async def answer(request: Request) -> Response:
            if request.state.visitor.identity.role not in admitted:
                raise self._refused(403, "role")
            try:
                response: Response = await endpoint(request)
            except InternalError as problem:
                if problem.code is Code.STORAGE:
                    self._fatal(problem)
                raise
            return response

        return Route(route.path, answer, methods=sorted(route.methods or SAFE))
