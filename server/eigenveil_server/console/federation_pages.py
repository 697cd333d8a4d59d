"""Pages about the federation: how it stands, who belongs to it, and the record of who did what."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from eigenveil.errors import Code, RequestError
from eigenveil_common import log
from eigenveil_server.console import records, standing, studies
from eigenveil_server.console.access import page
from eigenveil_server.console.desk import Desk
from eigenveil_server.console.rooms import Rooms

LAST = 2**62


class FederationPages:
    def __init__(self, desk: Desk, rooms: Rooms) -> None:
        self._desk = desk
        self._rooms = rooms

    def routes(self) -> list[Route]:
        return [
            page("/", self.overview),
            page("/budget", self.budget),
            page("/people", self.people),
            page("/people/{role}/{name}/deny", self.deny, "GET", "POST"),
            page("/refusals", self.refusals),
            page("/audit", self.audit),
        ]

    async def overview(self, request: Request) -> Response:
        """Sites, studies under way and the budget; for operators, what to look after."""
        operates, serving, books = request.state.visitor.operates, self._desk.serving, self._desk.books
        online = serving.online() if operates else None
        sites = await self._desk.look(standing.sites, serving.directory, books.registry, online)
        at = serving.runtime.repository.clock() / 1000
        warnings = list(await self._desk.look(standing.warnings, books, sites, at)) if operates else []
        return await self._rooms.render(
            request,
            "overview.html",
            sites=sites,
            warnings=warnings,
            budget=await self._desk.look(standing.budget, books),
            lines=await self._desk.look(studies.under_way, books),
        )

    async def budget(self, request: Request) -> Response:
        found = await self._desk.look(standing.budget, self._desk.books)
        return await self._rooms.render(request, "budget.html", budget=found)

    async def people(self, request: Request) -> Response:
        """Everybody who has enrolled."""
        found = await self._desk.look(records.people, self._desk.books.registry)
        at = self._desk.serving.runtime.repository.clock() / 1000
        return await self._rooms.render(request, "people.html", people=found, at=at)

    async def deny(self, request: Request) -> Response:
        """Ask, with the name once more; then refuse somebody from now on, as `deny` of the command line."""
        role, name = records.role_of(request.path_params["role"]), request.path_params["name"]
        found = await self._desk.look(records.person, self._desk.books.registry, role.value, name)
        by = request.state.visitor.name
        if by == f"{role.value}/{name}":
            raise RequestError(Code.CONFLICT, "nobody denies themselves here: ask another operator")
        if request.method != "POST":
            return await self._rooms.render(request, "deny.html", person=found)
        form = await request.form()
        why = records.checked_reason(str(form.get("why", "")))
        await asyncio.to_thread(self._desk.serving.registry.deny, role, name, f"by {by}: {why}")
        log.event("identity-denied", peer=f"{role.value}/{name}", name=by)
        return RedirectResponse("/people", status_code=303)

    async def refusals(self, request: Request) -> Response:
        """What was refused, by sites and by the coordinator."""
        calls = self._desk.serving.runtime.metrics.refusals()
        found = await self._desk.look(records.refusals, self._desk.books, calls)
        return await self._rooms.render(request, "refusals.html", refusals=found)

    async def audit(self, request: Request) -> Response:
        """The record, a page at a time."""
        before = request.query_params.get("before", str(LAST))
        if not (before.isascii() and before.isdigit() and len(before) < 20 and int(before) <= LAST):
            raise HTTPException(400)
        found = await self._desk.look(records.entries, self._desk.books, int(before))
        older = found[-1].number if len(found) == records.PAGE else 0
        return await self._rooms.render(request, "audit.html", entries=found, older=older)
