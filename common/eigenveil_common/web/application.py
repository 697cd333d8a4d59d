"""A program's pages as one ASGI application: who is let in, forms, refusals.

Deny by default: no endpoint is called before its gate has said who asks, and none that changes anything
before the form has shown its session's secret.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp

from eigenveil.errors import Code, EigenveilError, Family, PeerError
from eigenveil_common.log import alarm, places
from eigenveil_common.web.guard import SAFE, Guarded, Headed, Origins
from eigenveil_common.web.messages import mark
from eigenveil_common.web.pages import OWN, Pages
from eigenveil_common.web.sessions import LONGEST_SECONDS, Session, Sessions

Endpoint = Callable[[Request], Awaitable[Response]]
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
STATUS = {"NOT_FOUND": 404, "ALREADY_EXISTS": 409, "FAILED_PRECONDITION": 409, "PERMISSION_DENIED": 403}
# What a refusal means, and what to do.
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
    415: (mark("This could not be read"), mark("Go back, and send the form again.")),
    421: (mark("This address is not ours"), mark("Use the address that the command printed.")),
    429: (mark("Too many at once"), mark("Wait a moment, and open the page again.")),
    500: (
        mark("This went wrong at our end"),
        mark("Nothing was changed by it. Whoever runs this program finds the reason in its log."),
    ),
}  # fmt: skip


class Gate(Protocol):
    """Who may come in. Raises HTTPException: 401 nobody known, 403 known and not admitted; PeerError, code
    `identity`, whose text is said to them: their certificate is not good."""

    async def admit(self, request: Request) -> Session: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Door:
    """How pages of one program are reached: its cookie, its sessions, its names."""

    pages: Pages
    sessions: Sessions
    origins: Origins
    cookie: str

    @property
    def cookie_name(self) -> str:
        """Under TLS one that no other host can set."""
        return f"__Host-{self.cookie}" if self.origins.scheme == "https" else self.cookie

    def of_cookie(self, request: Request) -> Session | None:
        """The session of a request's cookie."""
        token = request.cookies.get(self.cookie_name, "")
        return self.sessions.find(token) if token else None

    def keep(self, response: Response, session: Session) -> None:
        """Give the browser a session's cookie."""
        response.set_cookie(
            self.cookie_name,
            session.token,
            max_age=int(LONGEST_SECONDS),
            path=f"{self.pages.base}/",
            secure=self.origins.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def refused(self, request: Request, status: int, said: str = "") -> HTMLResponse:
        """The page that says no; `said` is a sentence for a person. One about who they are is all that helps:
        no form that is sent again does."""
        title, todo = REFUSALS.get(status, REFUSALS[500 if status >= 500 else 400])
        if status == 403 and said:
            todo = ""
        return self.pages.render(
            request, "refused.html", status=status, title=title, said=said, todo=todo, asked=status
        )


def gated(endpoint: Endpoint, gate: Gate, door: Door) -> Endpoint:
    """`endpoint`, behind `gate`; with `request.state.session`."""

    async def answer(request: Request) -> Response:
        session = await gate.admit(request)
        request.state.session = session
        wanted = request.query_params.get("lang", "")
        if wanted in door.pages.languages.names:
            session.language = wanted
        if request.method not in SAFE:
            sent = (await request.form(max_files=0, max_fields=20_000)).get("csrf")
            if not isinstance(sent, str) or not hmac.compare_digest(sent.encode(), session.csrf.encode()):
                raise HTTPException(403)
        response = await endpoint(request)
        if request.cookies.get(door.cookie_name) != session.token and door.sessions.lives(session):
            door.keep(response, session)
        return response

    return answer


def static(*folders: Path) -> Route:
    """The files of `folders`, read now: what is not among them is not there, whatever its path."""
    held = {
        path.name: (path.read_bytes(), KINDS[path.suffix])
        for folder in folders
        for path in sorted(folder.iterdir())
        if path.suffix in KINDS
    }

    async def file(request: Request) -> Response:
        content, kind = held.get(request.path_params["name"], (None, ""))
        if content is None:
            raise HTTPException(404)
        return Response(content, media_type=kind)

    return Route("/static/{name}", file)


def application(
    routes: Sequence[Route],
    *,
    door: Door,
    gate: Gate,
    doors: Sequence[Route] = (),
    folders: Sequence[Path] = (),
) -> ASGIApp:
    """`routes` behind `gate`; `doors` are open to everybody, and so are the files of `folders` and ours."""
    inside = [
        Route(one.path, gated(one.endpoint, gate, door), methods=sorted(one.methods or SAFE))
        for one in routes
    ]

    async def refuse(request: Request, problem: Exception) -> Response:
        if isinstance(problem, HTTPException):
            return door.refused(request, problem.status_code)
        if isinstance(problem, EigenveilError) and problem.family is Family.REQUEST:
            return door.refused(request, STATUS.get(problem.status, 400), str(problem))
        if isinstance(problem, PeerError) and problem.code is Code.IDENTITY:
            return door.refused(request, STATUS[problem.status], str(problem))
        code = problem.code.value if isinstance(problem, EigenveilError) else type(problem).__qualname__
        alarm("page-failed", code=code, at=places(problem.__traceback__))
        return door.refused(request, 500)

    def safe(route: Route) -> Route:
        async def answer(request: Request) -> Response:
            try:
                return await route.endpoint(request)  # type: ignore[no-any-return]
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            except Exception as problem:  # noqa: BLE001 - its text may quote a record: only its place is said
                return await refuse(request, problem)

        return Route(route.path, answer, methods=sorted(route.methods or SAFE))

    every = Router([safe(one) for one in (*inside, *doors, static(OWN / "static", *folders))])
    guarded = Mount(door.pages.base, Guarded(app=every, origins=door.origins))
    # Elsewhere nothing is said: a page of ours would tell `base` to whoever does not know it.
    elsewhere = Mount("", Response(status_code=404))
    return Headed(app=Starlette(routes=[guarded, elsewhere], exception_handlers={HTTPException: refuse}))
