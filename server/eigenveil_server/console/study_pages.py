"""Pages about studies: list, live progress, release, report and cancellation. A watched study is read once
for all viewers. A slow viewer skips fragments, so it needs no buffer."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from eigenveil.errors import EigenveilError, PeerError, RequestError
from eigenveil.reporting.verify import SignedRelease, load_release
from eigenveil_common import log
from eigenveil_common.web.serving import event_stream
from eigenveil_server.console import studies
from eigenveil_server.console.page_context import PageContext
from eigenveil_server.rpc.callers import Calls, Watches
from eigenveil_server.rpc.responses import is_own_study, no_release_error
from eigenveil_server.studies.runtime import ChangeEvent

PAUSE_SECONDS = 0.5  # between two reads of one study
LOOK_SECONDS = 10.0  # changes without an event are seen by then


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFragment:
    """HTML fragment of a live page. `sequence` grows with each change; `last` marks the final one."""

    sequence: int
    html: str
    last: bool


# Makes the next fragment; None if nothing is newer than that sequence.
MakeFragment = Callable[[int], Awaitable[PageFragment | None]]


@dataclass(slots=True, kw_only=True)
class LiveTopic:
    """State of one watched page, for all its viewers."""

    updated: ChangeEvent = field(default_factory=ChangeEvent)
    latest: PageFragment = PageFragment(sequence=-1, html="", last=False)
    watchers: int = 0
    task: asyncio.Task[None] | None = None


class LivePageBroker:
    """Broker of live fragments to viewers. Use it on the event loop."""

    def __init__(self, news: ChangeEvent, *, pause: float = PAUSE_SECONDS) -> None:
        self._news = news
        self._pause = pause
        self._topics: dict[Hashable, LiveTopic] = {}

    async def pieces(self, key: Hashable, make: MakeFragment) -> AsyncGenerator[str, None]:
        """Stream the fragments of a page, from now on until its last. Viewers of one key share them."""
        topic = self._topics.setdefault(key, LiveTopic())
        topic.watchers += 1
        if topic.task is None:
            topic.task = asyncio.create_task(self._run(topic, make))
        try:
            seen = -1
            while True:
                piece = topic.latest
                if piece.sequence != seen:
                    seen = piece.sequence
                    yield piece.html
                    if piece.last:
                        return
                elif topic.task.done():
                    return
                else:
                    await topic.updated.wait(LOOK_SECONDS)
        finally:
            topic.watchers -= 1
            if not topic.watchers:
                self._topics.pop(key, None)
                topic.task.cancel()

    async def _run(self, topic: LiveTopic, make: MakeFragment) -> None:
        try:
            while not topic.latest.last:
                await self._update(topic, make)
        except Exception as problem:  # noqa: BLE001 - viewers reload the page and see the error
            code = problem.code.value if isinstance(problem, EigenveilError) else type(problem).__qualname__
            log.log_error("live-page-failed", code=code, at=log.frame_locations(problem.__traceback__))
        finally:
            topic.updated.notify()

    async def _update(self, topic: LiveTopic, make: MakeFragment) -> None:
        # Wait before reading, so that no change in between is missed.
        event_wait = asyncio.create_task(self._news.wait(LOOK_SECONDS))
        try:
            found = await make(topic.latest.sequence)
            if found is not None:
                topic.latest = found
                topic.updated.notify()
            await asyncio.sleep(self._pause)
            await event_wait
        finally:
            event_wait.cancel()


class WatchedStream(Response):
    """Stream that counts as a watch and ends when its viewer loses admission (PeerError from `enter`). A
    viewer beyond the limit gets `refused` instead."""

    def __init__(
        self, stream: Response, enter: tuple[AbstractContextManager[None], ...], refused: Response
    ) -> None:
        self._stream, self._enter, self._refused = stream, enter, refused
        self.raw_headers = stream.raw_headers
        self.status_code = stream.status_code
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as entered:
            try:
                for one in self._enter:
                    entered.enter_context(one)
            except RequestError:
                answer = self._refused
            else:
                answer = self._stream
            try:
                await answer(scope, receive, send)
            except PeerError:
                return  # the connection is closed after an unfinished answer


SENT_BYTES = 64 * 1024  # of a file at a time: encrypting it takes a fraction of a millisecond
REPORTS = 16  # cached, since a release never changes
# The report is one file with its style and pictures, and quotes untrusted text of studies. It may load
# nothing and run nothing, and has no origin.
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox"
)


async def in_pieces(data: memoryview) -> AsyncGenerator[bytes, None]:
    """Yield `data` in pieces. A fast reader takes all of them at once, so other calls come in between."""
    for start in range(0, len(data), SENT_BYTES):
        yield bytes(data[start : start + SENT_BYTES])
        await asyncio.sleep(0)


class StudyPages:
    """Pages about studies. `calls` and `watches` count live pages; lost admission ends all of a visitor."""

    def __init__(self, context: PageContext, calls: Calls, watches: Watches) -> None:
        self._context = context
        self._calls = calls
        self._watches = watches
        self._broker = LivePageBroker(context.serving.runtime.news)
        self._reports: OrderedDict[str, str] = OrderedDict()

    def routes(self) -> list[Route]:
        return [
            Route("/live", self.overview_live),
            Route("/studies", self.every),
            Route("/studies/{digest}", self.one),
            Route("/studies/{digest}/live", self.one_live),
            Route("/studies/{digest}/report", self.report),
            Route("/studies/{digest}/release.zip", self.release),
            Route("/studies/{digest}/cancel", self.cancel, methods=["POST"]),
        ]

    async def every(self, request: Request) -> Response:
        """Page with the list of studies, latest first."""
        before = request.query_params.get("before", "")
        found = await self._context.read(studies.lines, self._context.data, request.state.visitor, before)
        older = found[-1].study.digest if len(found) == studies.PAGE else ""
        return await self._context.render(request, "studies.html", lines=found, older=older, before=before)

    async def one(self, request: Request) -> Response:
        """Page of one study."""
        digest, visitor = request.path_params["digest"], request.state.visitor
        values = await self._context.read(studies.page, self._context.data, digest, visitor)
        values |= {"released": None, "live_page": True}
        if values["progress"].line.released:
            values["released"] = await self._context.read(self._content, digest)
        return await self._context.render(request, "study.html", **values)

    async def overview_live(self, request: Request) -> Response:
        return await self._live(request, "overview", self._overview)

    async def one_live(self, request: Request) -> Response:
        """Stream the study's fragment as it changes; status 204 for an ended study stops the browser."""
        digest = request.path_params["digest"]
        stored = await self._context.read(studies.stored_study, self._context.data, digest)
        if stored.state.ended:
            return Response(status_code=204)
        own = is_own_study(request.state.visitor.identity, stored.analyst)
        return await self._live(request, (digest, own), partial(self._progress, digest, own))

    async def _live(
        self, request: Request, key: Hashable, make: Callable[[int], PageFragment | None]
    ) -> Response:
        session, visitor, gateway = request.state.session, request.state.visitor, self._context.gateway
        who, peer = visitor.identity.uri, str(request.client)
        enter = (self._watches.one(who), self._calls.one(who, peer, visitor.check))
        pieces = self._broker.pieces(key, lambda seen: self._context.read(make, seen))
        stream = event_stream(pieces, lambda: gateway.sessions.is_open(session))
        return WatchedStream(stream, enter, gateway.refusal_page(request, 429))

    def _overview(self, seen: int) -> PageFragment | None:
        data = self._context.data
        many: int = data.reader.rows("SELECT COUNT(*) AS many FROM events")[0]["many"]
        if many == seen:
            return None
        html = self._context.piece("under-way.html", lines=studies.under_way(data))
        return PageFragment(sequence=many, html=html, last=False)

    def _progress(self, digest: str, own: bool, seen: int) -> PageFragment | None:
        data = self._context.data
        if studies.sequence(data, digest) == seen:
            return None
        found = studies.progress(data, digest, own=own)
        html = self._context.piece("progress.html", progress=found)
        return PageFragment(sequence=found.sequence, html=html, last=found.line.study.state.ended)

    async def report(self, request: Request) -> Response:
        """Report with figures, drawn in a subprocess."""
        digest = request.path_params["digest"]
        if digest not in self._reports:
            data = await self._context.read(self._release, digest)
            who = f"report of {request.state.visitor.name}"
            drawn = await self._context.serving.runtime.planning.ask(who, "drawn", {}, data)
            self._reports[digest] = drawn
            while len(self._reports) > REPORTS:
                self._reports.popitem(last=False)
        policy = {"content-security-policy": REPORT_POLICY}
        return Response(self._reports[digest], media_type="text/html", headers=policy)

    async def release(self, request: Request) -> Response:
        """Signed release as a file to download, sent piece by piece."""
        digest = request.path_params["digest"]
        data = await self._context.read(self._release, digest)
        headers = {
            "content-disposition": 'attachment; filename="release.zip"',
            "content-length": str(len(data)),
        }

        return StreamingResponse(in_pieces(data), media_type="application/zip", headers=headers)

    def _release(self, digest: str) -> memoryview:
        stored = studies.stored_study(self._context.data, digest)
        data = self._context.data.studies.release(digest)
        if data is None:
            raise no_release_error(stored)
        return data

    def _content(self, digest: str) -> SignedRelease:
        return load_release(self._release(digest))

    async def cancel(self, request: Request) -> Response:
        """Cancel a study of the visitor. Raises as `cancel` of the engine."""
        digest = request.path_params["digest"]
        await self._context.read(studies.stored_study, self._context.data, digest)
        await self._context.serving.engine.cancel(digest, request.state.visitor.identity.name)
        return RedirectResponse(f"/studies/{digest}", status_code=303)
