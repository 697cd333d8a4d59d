"""Pages about studies: what is under way, one study live, its release and report, and its end."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from eigenveil_common.web.events import live
from eigenveil_server.console import studies
from eigenveil_server.console.access import page
from eigenveil_server.console.desk import Desk
from eigenveil_server.console.rooms import Rooms
from eigenveil_server.console.watching import Hub, Piece, Watched
from eigenveil_server.rpc.answers import no_release
from eigenveil_server.rpc.calls import Calls, Watches

EVERYTHING = "under-way"  # the key of the overview's live piece
OWN = " own"  # ends the key of a study's live piece as its analyst sees it
MOST_NAMED = 4  # columns of one component
REPORTS = 16  # kept, since a release never changes
# The report is one file with its style and pictures in it, and all that it says of a study is others' words:
# it may load nothing, run nothing, and is of no origin.
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One direction: its share of the variance, and the columns that it is mostly made of."""

    number: int
    share: float
    columns: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`declined` is why there are no components, if there are none."""

    records: float
    components: tuple[Component, ...]
    declined: str
    guarantee: str


def result(document: Mapping[str, Any]) -> Result:
    """What the document of a release says."""
    found = document["result"]
    return Result(
        records=found["records"],
        components=tuple(
            _component(number, share, direction, found["columns"])
            for number, (share, direction) in enumerate(
                zip(found["explained_variance_ratio"], found["components"], strict=True), 1
            )
        ),
        declined=found["declined"] or "",
        guarantee=document["guarantee"]["words"],
    )


def _component(number: int, share: float, direction: list[float], names: list[str]) -> Component:
    order = sorted(range(len(names)), key=lambda one: -abs(direction[one]))[:MOST_NAMED]
    return Component(number=number, share=share, columns=tuple((names[i], direction[i]) for i in order))


class StudyPages:
    """`calls` and `watches` hold the live pages: who is shut out of one is shut out of all."""

    def __init__(self, desk: Desk, rooms: Rooms, calls: Calls, watches: Watches) -> None:
        self._desk = desk
        self._rooms = rooms
        self._calls = calls
        self._watches = watches
        self._hub = Hub(desk.serving.runtime.signals.news, self._piece)
        self._reports: OrderedDict[str, str] = OrderedDict()

    def routes(self) -> list[Route]:
        return [
            page("/live", self.overview_live),
            page("/studies", self.every),
            page("/studies/{digest}", self.one),
            page("/studies/{digest}/live", self.one_live),
            page("/studies/{digest}/report", self.report),
            page("/studies/{digest}/release.json", self.release),
            page("/studies/{digest}/cancel", self.cancel, "POST"),
        ]

    async def every(self, request: Request) -> Response:
        """All studies, the latest first, a page at a time."""
        before = request.query_params.get("before", "")
        found = await self._desk.look(studies.lines, self._desk.books, request.state.visitor, before)
        older = found[-1].digest if len(found) == studies.PAGE else ""
        return await self._rooms.render(request, "studies.html", lines=found, older=older, before=before)

    async def one(self, request: Request) -> Response:
        """One study, as far as it is."""
        digest, books = request.path_params["digest"], self._desk.books
        found = await self._desk.look(studies.page, books, digest, request.state.visitor)
        told = None
        if found.line.released:
            told = await self._desk.look(lambda: result(self._document(digest)))
        return await self._rooms.render(request, "study.html", study=found, told=told, live_page=True)

    async def overview_live(self, request: Request) -> Response:
        return await self._live(request, EVERYTHING)

    async def one_live(self, request: Request) -> Response:
        """The study's pieces as they change. For one that has ended nothing: browsers then ask no more."""
        digest = request.path_params["digest"]
        stored = await self._desk.look(studies.stored_study, self._desk.books, digest)
        if stored.state.ended:
            return Response(status_code=204)
        own = studies.is_own(request.state.visitor, stored)
        return await self._live(request, digest + OWN if own else digest)

    async def _live(self, request: Request, key: str) -> Response:
        session, visitor = request.state.session, request.state.visitor
        who = visitor.identity.uri
        peer = str(request.client)
        enter = (self._watches.one(who), self._calls.one(who, peer, visitor.check))
        stream = live(self._hub.pieces(key), lambda: self._rooms.lives(session))
        return Watched(stream, enter, self._rooms.refused(request, 429))

    async def _piece(self, key: str, seen: int) -> Piece | None:
        return await self._desk.look(self._made, key, seen)

    def _made(self, key: str, seen: int) -> Piece | None:
        books = self._desk.books
        if key == EVERYTHING:
            rows = books.reader.rows("SELECT COUNT(*) AS many FROM events")
            if rows[0]["many"] == seen:
                return None
            html = self._rooms.piece("under-way.html", lines=studies.under_way(books))
            return Piece(sequence=rows[0]["many"], html=html, last=False)
        digest = key.removesuffix(OWN)
        if studies.sequence(books, digest) == seen:
            return None
        found = studies.progress(books, digest, own=key.endswith(OWN))
        html = self._rooms.piece("progress.html", progress=found)
        return Piece(sequence=found.sequence, html=html, last=found.line.ended)

    async def report(self, request: Request) -> Response:
        """The report with its pictures, drawn in a process of its own."""
        digest = request.path_params["digest"]
        if digest not in self._reports:
            document = await self._desk.look(lambda: json.dumps(self._document(digest)))
            who = f"report of {request.state.visitor.name}"
            drawn = await self._desk.serving.runtime.planning.ask(who, "drawn", document=document)
            self._reports[digest] = drawn
            while len(self._reports) > REPORTS:
                self._reports.popitem(last=False)
        policy = {"content-security-policy": REPORT_POLICY}
        return Response(self._reports[digest], media_type="text/html", headers=policy)

    async def release(self, request: Request) -> Response:
        """The signed release, to be kept."""
        digest = request.path_params["digest"]
        data = await self._desk.look(self._release, digest)
        name = {"content-disposition": 'attachment; filename="release.json"'}
        return Response(data, media_type="application/json", headers=name)

    def _release(self, digest: str) -> bytes:
        stored = studies.stored_study(self._desk.books, digest)
        data = self._desk.books.studies.release_json(digest)
        if data is None:
            raise no_release(stored)
        return data

    def _document(self, digest: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._release(digest))["document"]
        return document

    async def cancel(self, request: Request) -> Response:
        """End a study of one's own. Raises as `Engine.cancel`."""
        digest = request.path_params["digest"]
        await self._desk.look(studies.stored_study, self._desk.books, digest)
        await self._desk.serving.engine.cancel(digest, request.state.visitor.identity.name)
        return RedirectResponse(f"/studies/{digest}", status_code=303)
