"""The pages that show studies: all of them, one as a card, one as a sheet to sign."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.errors import Code, RequestError
from eigenveil_client.site.commands.console import words
from eigenveil_client.site.commands.console.card import card
from eigenveil_client.site.commands.console.room import Console
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.state.received_plans import Decision, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore


def asked_for(store: SiteStore, request: Request) -> ReceivedPlan:
    """The study whose whole digest is in the path.

    Raises:
        RequestError: code `not-found`.
    """
    found = store.studies.get(request.path_params["study"])
    if found is None:
        raise RequestError(Code.NOT_FOUND, "no such study came here")
    return found


def routes(console: Console) -> list[Route]:
    async def every(request: Request) -> Response:
        def look(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
            seen = store.studies.all()[::-1]
            return {
                "waiting": [card(config, store, one) for one in seen if one.standing is Decision.PENDING],
                "decided": [one for one in seen if one.standing is not Decision.PENDING],
                "counts": store.declined.counts()[::-1],
                "proofs": store.proofs.all(),
            }

        told = await console.from_store(look)
        return console.page(
            request, "studies.html", standings=words.STANDINGS, signatures=words.SIGNATURES, **told
        )

    async def one(request: Request) -> Response:
        return await _shown(console, request, "study.html")

    async def sheet(request: Request) -> Response:
        return await _shown(console, request, "sheet.html")

    return [Route("/", every), Route("/studies/{study}", one), Route("/studies/{study}/sheet", sheet)]


async def _shown(console: Console, request: Request, template: str) -> Response:
    told = await console.from_store(lambda config, store: card(config, store, asked_for(store, request)))
    return console.page(
        request, template, card=told, answers=words.ANSWERS, rules=words.RULES, standings=words.STANDINGS,
        signatures=words.SIGNATURES,
        peoples=words.PEOPLES, units=words.UNITS, reasons=words.REASONS,
    )  # fmt: skip
