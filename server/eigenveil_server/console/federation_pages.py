"""Pages about the federation: overview, budget, participants, refusals, and the audit log."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from eigenveil.errors import Code, RequestError
from eigenveil_common import log
from eigenveil_server.console import federation, studies
from eigenveil_server.console.access import page
from eigenveil_server.console.page_context import PageContext, RolePages

LAST = 2**62


class FederationPages:
    def __init__(self, context: PageContext, role_pages: RolePages) -> None:
        self._context = context
        self._role_pages = role_pages

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
        """Page with sites, running studies and the budget; for operators also warnings."""
        operates, serving, data = request.state.visitor.operates, self._context.serving, self._context.data
        online = serving.online() if operates else None
        sites = await self._context.read(federation.sites, serving.directory, data.registry, online)
        at = serving.runtime.repository.clock() / 1000
        warnings = list(await self._context.read(federation.warnings, data, sites, at)) if operates else []
        return await self._role_pages.render(
            request,
            "overview.html",
            sites=sites,
            warnings=warnings,
            budget=await self._context.read(federation.budget, data),
            lines=await self._context.read(studies.under_way, data),
        )

    async def budget(self, request: Request) -> Response:
        found = await self._context.read(federation.budget, self._context.data)
        return await self._role_pages.render(request, "budget.html", budget=found)

    async def people(self, request: Request) -> Response:
        """Page with all enrolled participants."""
        found = await self._context.read(federation.people, self._context.data.registry)
        at = self._context.serving.runtime.repository.clock() / 1000
        return await self._role_pages.render(request, "people.html", people=found, at=at)

    async def deny(self, request: Request) -> Response:
        """Page to confirm a denial with a reason. POST denies the participant, as the command `deny` does."""
        role, name = federation.role_of(request.path_params["role"]), request.path_params["name"]
        found = await self._context.read(federation.person, self._context.data.registry, role.value, name)
        by = request.state.visitor.name
        if by == f"{role.value}/{name}":
            raise RequestError(Code.CONFLICT, "you cannot deny yourself; ask another operator")
        if request.method != "POST":
            return await self._role_pages.render(request, "deny.html", person=found)
        form = await request.form()
        why = federation.checked_reason(str(form.get("why", "")))
        await asyncio.to_thread(self._context.serving.registry.deny, role, name, f"by {by}: {why}")
        log.event("identity-denied", peer=f"{role.value}/{name}", name=by)
        return RedirectResponse("/people", status_code=303)

    async def refusals(self, request: Request) -> Response:
        """Page with refusals by sites and by the coordinator."""
        calls = self._context.serving.runtime.metrics.refusals()
        found = await self._context.read(federation.refusals, self._context.data, calls)
        return await self._role_pages.render(request, "refusals.html", refusals=found)

    async def audit(self, request: Request) -> Response:
        """Page of the audit log."""
        before = request.query_params.get("before", str(LAST))
        if not (before.isascii() and before.isdigit() and len(before) < 20 and int(before) <= LAST):
            raise HTTPException(400)
        found = await self._context.read(federation.entries, self._context.data, int(before))
        older = found[-1].number if len(found) == federation.PAGE else 0
        return await self._role_pages.render(request, "audit.html", entries=found, older=older)
