"""ASGI application of a program's pages: access, forms, error pages, and access by a printed link. Deny by
default: an endpoint is called after its gate has identified the session, and one that changes state only if
the form carries the session's secret."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp

from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil_common.log import frame_locations, log_error
from eigenveil_common.web.pages import COMMON_FOLDER, Pages, mark
from eigenveil_common.web.sessions import (
    LIFETIME_SECONDS,
    SAFE,
    BrowserSession,
    Origins,
    RequestGuard,
    SecurityHeaders,
    Sessions,
)

Endpoint = Callable[[Request], Awaitable[Response]]
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
STATUS = {"NOT_FOUND": 404, "ALREADY_EXISTS": 409, "FAILED_PRECONDITION": 409, "PERMISSION_DENIED": 403}
NO_FORM = (Code.BAD_DATA, Code.BAD_CONFIG)  # of records and settings: the same form fails again
# Title and advice of the error pages, by status; others have those of 400 or 500.
REFUSALS = {
    400: (mark("This could not be read"), mark("Go back, and send the form again.")),
    401: (
        mark("This page is closed"),
        mark("It closes after 30 minutes without use, and after 8 hours. Nothing that you had sent is lost. "
             "Open it again the way you opened it first."),
    ),
    403: (
        mark("This was not done"),
        mark("The request did not come from a page of this program, or you may not do this. "
             "Open the page again, and send the form from there."),
    ),
    404: (mark("There is nothing here"), mark("Go to the start page, and choose from there.")),
    405: (mark("There is nothing here"), mark("Go to the start page, and choose from there.")),
    409: (mark("This cannot be done now"), mark("Open the page again to see how things stand.")),
    413: (mark("This is too long"), mark("Shorten the text, and send it again.")),
    421: (mark("This address is not ours"), mark("Use the address that the command printed.")),
    429: (mark("Too many at once"), mark("Wait a moment, and open the page again.")),
    500: (
        mark("This went wrong at our end"),
        mark("Nothing was changed by it. Whoever runs this program finds the reason in its log."),
    ),
}  # fmt: skip


class Gate(Protocol):
    """Authentication of requests. Raises HTTPException: 401 not authenticated, 403 not permitted; PeerError:
    code `identity`, an invalid certificate; its text is shown to the person."""

    async def admit(self, request: Request) -> BrowserSession: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PageGateway:
    """Access to the pages of one program: its cookie, sessions and origins."""

    pages: Pages
    sessions: Sessions
    origins: Origins
    cookie: str

    @property
    def cookie_name(self) -> str:
        """Name of the cookie; under TLS with a prefix that other hosts cannot set."""
        return f"__Host-{self.cookie}" if self.origins.scheme == "https" else self.cookie

    def session_of(self, request: Request) -> BrowserSession | None:
        """Return the session of a request's cookie, or None."""
        token = request.cookies.get(self.cookie_name, "")
        return self.sessions.find(token) if token else None

    def send_cookie(self, response: Response, session: BrowserSession) -> None:
        """Send a session's cookie to the browser."""
        response.set_cookie(
            self.cookie_name,
            session.token,
            max_age=int(LIFETIME_SECONDS),
            path=f"{self.pages.base}/",
            secure=self.origins.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def refusal_page(
        self, request: Request, status: int, reason: str = "", *, advise: bool = True
    ) -> HTMLResponse:
        """Return an error page; `reason` is a sentence for a person. `advise`: also what usually helps."""
        title, action = REFUSALS.get(status, REFUSALS[500 if status >= 500 else 400])
        if not advise:
            action = ""
        return self.pages.render(
            request, "refused.html", status=status, title=title, reason=reason, action=action, code=status
        )


def require_session(endpoint: Endpoint, gate: Gate, gateway: PageGateway) -> Endpoint:
    """Return `endpoint` behind `gate`; it gets `request.state.session`."""

    async def answer(request: Request) -> Response:
        session = await gate.admit(request)
        request.state.session = session
        requested_language = request.query_params.get("lang", "")
        if requested_language in gateway.pages.languages.names:
            session.language = requested_language
        if request.method not in SAFE:
            sent = (await request.form(max_files=0, max_fields=20_000)).get("csrf")
            if not isinstance(sent, str) or not hmac.compare_digest(sent.encode(), session.csrf.encode()):
                raise HTTPException(403)
        response = await endpoint(request)
        if request.cookies.get(gateway.cookie_name) != session.token and gateway.sessions.is_open(session):
            gateway.send_cookie(response, session)
        return response

    return answer


def static() -> Route:
    """Return a route of the style and script of all pages, read now; no other path can be served."""
    contents = {
        path.name: (path.read_bytes(), KINDS[path.suffix])
        for path in (COMMON_FOLDER / "static").iterdir()
        if path.suffix in KINDS
    }

    async def file(request: Request) -> Response:
        content, kind = contents.get(request.path_params["name"], (None, ""))
        if content is None:
            raise HTTPException(404)
        return Response(content, media_type=kind)

    return Route("/static/{name}", file)


def application(
    routes: Sequence[Route], *, gateway: PageGateway, gate: Gate, public_routes: Sequence[Route] = ()
) -> ASGIApp:
    """Return the application: `routes` behind `gate`, `public_routes` and static files for everybody."""

    async def refuse(request: Request, problem: Exception) -> Response:
        if isinstance(problem, HTTPException):
            return gateway.refusal_page(request, problem.status_code)
        if isinstance(problem, EigenveilError) and (
            isinstance(problem, RequestError) or problem.code is Code.IDENTITY
        ):
            status = STATUS.get(problem.status, 400)
            return gateway.refusal_page(
                request, status, str(problem), advise=status != 403 and problem.code not in NO_FORM
            )
        code = problem.code.value if isinstance(problem, EigenveilError) else type(problem).__qualname__
        log_error("page-failed", code=code, at=frame_locations(problem.__traceback__))
        return gateway.refusal_page(request, 500)

    def with_error_page(route: Route, endpoint: Endpoint) -> Route:
        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except ClientDisconnect:
                return Response(status_code=400)  # the client is gone
            except Exception as problem:  # noqa: BLE001 - its text may quote a record: its place is logged
                return await refuse(request, problem)

        return Route(route.path, answer, methods=sorted(route.methods or SAFE))

    gated = [with_error_page(one, require_session(one.endpoint, gate, gateway)) for one in routes]
    public = [with_error_page(one, one.endpoint) for one in (*public_routes, static())]
    router = RequestGuard(app=Router([*gated, *public]), origins=gateway.origins)
    # Other paths get an empty 404: a page would disclose `base`.
    mounts = [Mount(gateway.pages.base, router), Mount("", Response(status_code=404))]
    return SecurityHeaders(app=Starlette(routes=mounts, exception_handlers={HTTPException: refuse}))


PATH = "/enter/{link}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkGate:
    """Gate of pages that only a printed link opens: one session, once; then the cookie identifies it."""

    gateway: PageGateway

    async def admit(self, request: Request) -> BrowserSession:
        found = self.gateway.session_of(request)
        if found is None:
            raise HTTPException(401)
        return found

    def entrance(self) -> Route:
        """Return the route of the links. It answers with a page that forwards the browser. After a link in a
        mail or chat, a redirect would not send the cookie."""

        async def enter(request: Request) -> Response:
            if not _is_navigation(request):
                return Response(status_code=503, headers={"Cache-Control": "no-store"})
            session = self.gateway.sessions.enter(request.path_params["link"])
            if session is None:
                raise HTTPException(401)
            session.language = self.gateway.pages.language(request)
            request.state.session = session
            answer = self.gateway.pages.render(request, "entered.html")
            self.gateway.send_cookie(answer, session)
            return answer

        return Route(PATH, enter)

    def link(self, owner: str) -> str:
        """Return the path of a new link."""
        return self.gateway.pages.base + PATH.format(link=self.gateway.sessions.link(owner))


def _is_navigation(request: Request) -> bool:
    """Return True if a person opened the link, and not a prefetch or preview."""
    headers = (request.headers.get(name, "") for name in ("sec-purpose", "purpose", "x-moz", "x-purpose"))
    return request.method == "GET" and not any(one.startswith(("prefetch", "preview")) for one in headers)
