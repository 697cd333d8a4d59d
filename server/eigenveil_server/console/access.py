"""Who may open what: one table of paths and roles, and the gate before it. A path that is not in the table is
nobody's."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.errors import Code, InternalError, PeerError
from eigenveil.identity import Role
from eigenveil_common import log
from eigenveil_common.web.application import Door, Endpoint
from eigenveil_common.web.guard import SAFE
from eigenveil_common.web.sessions import Session
from eigenveil_server.console.visitors import Visitor, Visitors
from eigenveil_server.fatal import Fatal
from eigenveil_server.front.allowance import Allowance
from eigenveil_server.metrics import Metrics
from eigenveil_server.rpc.admissions import Admissions

# Requests of one visitor: a page with its files is three, a form that is typed into asks twice a second.
BURST, RATE = 120.0, 20.0
MOST_VISITORS = 1000  # whose allowances are remembered

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
    "/studies/{digest}/release.json": BOTH,
    "/studies/{digest}/cancel": ANALYSTS,
    "/budget": BOTH,
    "/submit": ANALYSTS,
    "/submit/preview": ANALYSTS,
    "/people": OPERATORS,
    "/people/{role}/{name}/deny": OPERATORS,
    "/refusals": OPERATORS,
    "/audit": OPERATORS,
}


class Reception:
    """The gate: says who visits, and gives each a session of their own."""

    def __init__(
        self, visitors: Visitors, admissions: Admissions, door: Door, metrics: Metrics, fatal: Fatal
    ) -> None:
        self._visitors = visitors
        self._admissions = admissions
        self._door = door
        self._metrics = metrics
        self._fatal = fatal
        self._allowances: defaultdict[str, Allowance] = defaultdict(_allowance)

    async def admit(self, request: Request) -> Session:
        """Set `request.state.visitor`; their session, a new one for who only looks.

        Raises:
            PeerError: code `identity`: nobody who may come in.
            HTTPException: 401 the session of a form has ended, 403 a role without pages, 429 too often.
        """
        await self._admissions.refresh()
        visitor = self._visitor(request)
        if visitor.identity.role not in BOTH:
            self._metrics.page_refused("role")
            raise HTTPException(403)
        if not self._allowance(visitor).spend(1):
            self._metrics.page_refused("quota")
            raise HTTPException(429)
        if visitor.begins:
            await self._admissions.take_up(visitor.identity, visitor.begins)
        request.state.visitor = visitor
        session = self._door.of_cookie(request)
        if session is not None and session.owner == visitor.identity.uri:
            return session
        if request.method not in SAFE:
            self._metrics.page_refused("session")
            raise HTTPException(401)
        return self._door.sessions.open(visitor.identity.uri)

    def _visitor(self, request: Request) -> Visitor:
        try:
            return self._visitors(request)
        except PeerError as problem:
            address = "" if request.client is None else request.client.host
            log.event("page-refused", logging.WARNING, address=address, why=str(problem))
            self._metrics.page_refused("identity")
            raise

    def _allowance(self, visitor: Visitor) -> Allowance:
        if len(self._allowances) > MOST_VISITORS:
            spent = {name: one for name, one in self._allowances.items() if not one.full}
            self._allowances = defaultdict(_allowance, spent)
        return self._allowances[visitor.identity.uri]

    def behind(self, route: Route) -> Route:
        """`route` for those whom the table admits, after `admit`. A disk that fails ends the process, as it
        does in a call."""
        admitted, endpoint = ADMITTED.get(route.path, frozenset()), route.endpoint

        async def answer(request: Request) -> Response:
            if request.state.visitor.identity.role not in admitted:
                self._metrics.page_refused("role")
                raise HTTPException(403)
            try:
                found: Response = await endpoint(request)
            except InternalError as problem:
                if problem.code is Code.STORAGE:
                    self._fatal(problem)
                raise
            return found

        return Route(route.path, answer, methods=sorted(route.methods or SAFE))


def page(path: str, endpoint: Endpoint, *methods: str) -> Route:
    """A route, to be looked at unless `methods` say otherwise."""
    return Route(path, endpoint, methods=list(methods) or ["GET"])


def _allowance() -> Allowance:
    return Allowance(burst=BURST, rate=RATE)
