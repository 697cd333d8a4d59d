"""The console's templates: one set of pages for each role, which differ in where they lead."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from eigenveil.accounting.digits import percent_up, shown_up
from eigenveil_common.web.application import Door
from eigenveil_common.web.guard import Origins
from eigenveil_common.web.messages import Languages
from eigenveil_common.web.pages import Pages
from eigenveil_common.web.pictures import gauge
from eigenveil_common.web.sessions import Session, Sessions

TEMPLATES = Path(__file__).parent / "templates"
BOTH = (("/", "Overview"), ("/studies", "Studies"), ("/budget", "Budget"))
ANALYST = (*BOTH, ("/submit", "New study"))
OPERATOR = (*BOTH, ("/people", "People"), ("/refusals", "Refusals"), ("/audit", "Record"))
COOKIE = "eigenveil-console"


class Rooms:
    """Pages for analysts and for operators."""

    def __init__(self, federation: str) -> None:
        languages = Languages()
        self._analysts, self._operators = (
            Pages(TEMPLATES, program=f"eigenveil · {federation}", languages=languages, navigation=where)
            for where in (ANALYST, OPERATOR)
        )
        self._sessions = Sessions()

    def door(self, hosts: frozenset[str]) -> Door:
        """How browsers come in, by these names."""
        origins = Origins(scheme="https", hosts=hosts)
        self._door = Door(pages=self._analysts, sessions=self._sessions, origins=origins, cookie=COOKIE)
        return self._door

    async def render(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A page for whoever asks, made on another thread."""
        visitor = request.state.visitor
        pages = self._operators if visitor.operates else self._analysts
        given = {"visitor": visitor, "gauge": gauge, "shown_up": shown_up, "percent_up": percent_up} | values
        return await asyncio.to_thread(pages.render, request, template, status, **given)

    def piece(self, template: str, **values: Any) -> str:
        """A piece of a page, the same for everybody who has it open under its key."""
        return self._analysts.piece(template, **({"shown_up": shown_up, "percent_up": percent_up} | values))

    def lives(self, session: Session) -> bool:
        """Whether a live page may go on."""
        return self._sessions.lives(session)

    def refused(self, request: Request, status: int) -> Response:
        return self._door.refused(request, status)
