"""In by a link that a command printed: it opens one session, once, and its cookie is all there is after."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil_common.web.application import Door
from eigenveil_common.web.sessions import Session

PATH = "/enter/{link}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByLink:
    """The gate of a page whose one way in is such a link."""

    door: Door

    async def admit(self, request: Request) -> Session:
        found = self.door.of_cookie(request)
        if found is None:
            raise HTTPException(401)
        return found

    def entrance(self) -> Route:
        """Where the links lead. It answers with a page of its own, from which the browser goes on by itself:
        after a link in a mail or a chat a redirect would come without the cookie."""

        async def enter(request: Request) -> Response:
            if not _opened(request):
                return Response(status_code=503, headers={"Cache-Control": "no-store"})
            session = self.door.sessions.enter(request.path_params["link"])
            if session is None:
                raise HTTPException(401)
            session.language = self.door.pages.language(request)
            request.state.session = session
            answer = self.door.pages.render(request, "entered.html")
            self.door.keep(answer, session)
            return answer

        return Route(PATH, enter)

    def link(self, owner: str) -> str:
        """The path of a new link."""
        return self.door.pages.base + PATH.format(link=self.door.sessions.link(owner))


def _opened(request: Request) -> bool:
    """Whether a person opened the link: no program that only looks at it, and no browser ahead of them."""
    headers = (request.headers.get(name, "") for name in ("sec-purpose", "purpose", "x-moz", "x-purpose"))
    return request.method == "GET" and not any(one.startswith(("prefetch", "preview")) for one in headers)
