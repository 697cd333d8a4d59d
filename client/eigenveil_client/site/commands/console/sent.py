"""The pages that show what left this site, and compute its numbers again."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import plan_from_json
from eigenveil_client.site.commands import evidence_views, recompute
from eigenveil_client.site.commands.console import words
from eigenveil_client.site.commands.console.room import Console
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.engine.opening import engine
from eigenveil_client.site.state.egress import Row
from eigenveil_client.site.state.store import SiteStore

PER_PAGE = 100
MOST_NUMBERS = 500


def routes(console: Console) -> list[Route]:
    async def every(request: Request) -> Response:
        page = _page(request)

        def look(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
            rows = store.egress.verify(store.ledger.ledger)[::-1]
            names = {seen.plan: seen.name for seen in store.studies.all()}
            first = page * PER_PAGE
            return {
                "rows": [(row, names.get(row.study, "")) for row in rows[first : first + PER_PAGE]],
                "messages": len(rows),
                "bytes": sum(row.bytes for row in rows),
                "head": store.egress.head(),
                "calls": store.traffic.counts()[::-1][:PER_PAGE],
                "page": page,
                "pages": -(-len(rows) // PER_PAGE),
            }

        told = await console.from_store(look)
        return console.page(request, "sent.html", answers=words.ANSWERS, **told)

    async def again(request: Request) -> Response:
        def look(config: SiteConfig, store: SiteStore) -> dict[str, Any]:
            row = _row(store, request)
            told = evidence_views.decoded(recompute.again(store, row, engine(config)))
            seen = store.studies.get(row.study)
            name = "" if seen is None else plan_from_json(seen.plan_json).study.name
            return told | {"name": name, "at": row.at, "bytes": row.bytes}

        told = await console.from_store(look)
        return console.page(request, "numbers.html", told=told, answers=words.ANSWERS, most=MOST_NUMBERS)

    return [Route("/sent", every), Route("/sent/{row}", again)]


def _page(request: Request) -> int:
    return max(0, (_number(request.query_params.get("page", "")) or 1) - 1)


def _number(asked: str) -> int | None:
    """What somebody typed, unless it is no number or absurdly long: Python refuses to read such a one."""
    return int(asked) if asked.isdecimal() and len(asked) < 9 else None


def _row(store: SiteStore, request: Request) -> Row:
    """The answer whose number is in the path. Raises RequestError, code `not-found`."""
    index = _number(request.path_params["row"])
    found = [row for row in store.egress.rows() if row.index == index and row.answers]
    if not found:
        raise RequestError(Code.NOT_FOUND, "no answer with numbers has this place in the ledger")
    return found[0]
