"""Live pages: each study that anybody watches is looked at once, however many watch it.

A watcher gets the latest piece when it is ready for one, and never those in between: whoever reads slowly
holds nothing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eigenveil.errors import EigenveilError, PeerError, RequestError
from eigenveil_common import log
from eigenveil_server.studies.signal import Signal

PAUSE_SECONDS = 0.5  # between two looks at one study: a round can be quicker than an eye
LOOK_SECONDS = 10.0  # what no ring tells of is seen by then


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """HTML of a live page, whose `sequence` goes up when it changes; the `last` is never followed."""

    sequence: int
    html: str
    last: bool


Make = Callable[[str, int], Awaitable[Piece | None]]  # of a study; None: nothing is newer than this sequence


@dataclass(slots=True, kw_only=True)
class Channel:
    """What is known of one study, for all who watch it."""

    fresh: Signal = field(default_factory=Signal)
    latest: Piece | None = None
    watchers: int = 0
    task: asyncio.Task[None] | None = None


class Hub:
    """The channels that somebody watches. To be used on the event loop."""

    def __init__(self, news: Signal, make: Make, *, pause: float = PAUSE_SECONDS) -> None:
        self._news = news
        self._make = make
        self._pause = pause
        self._channels: dict[str, Channel] = {}

    async def pieces(self, key: str) -> AsyncGenerator[str, None]:
        """The pieces of a study from now on, until its last."""
        channel = self._channels.setdefault(key, Channel())
        channel.watchers += 1
        if channel.task is None:
            channel.task = asyncio.create_task(self._look(key, channel))
        try:
            seen = -1
            while True:
                piece = channel.latest
                if piece is not None and piece.sequence != seen:
                    seen = piece.sequence
                    yield piece.html
                    if piece.last:
                        return
                elif channel.task.done():
                    return
                else:
                    await channel.fresh.wait(LOOK_SECONDS)
        finally:
            channel.watchers -= 1
            if not channel.watchers:
                self._channels.pop(key, None)
                channel.task.cancel()

    async def _look(self, key: str, channel: Channel) -> None:
        try:
            await self._follow(key, channel)
        except Exception as problem:  # noqa: BLE001 - its watchers open the page again, and see what is wrong
            code = problem.code.value if isinstance(problem, EigenveilError) else type(problem).__qualname__
            log.alarm("live-page-failed", code=code, at=log.places(problem.__traceback__))
        finally:
            channel.fresh.ring()

    async def _follow(self, key: str, channel: Channel) -> None:
        while channel.latest is None or not channel.latest.last:
            # Listening before looking: what happens meanwhile is not missed.
            rung = asyncio.create_task(self._news.wait(LOOK_SECONDS))
            try:
                found = await self._make(key, -1 if channel.latest is None else channel.latest.sequence)
                if found is not None:
                    channel.latest = found
                    channel.fresh.ring()
                await asyncio.sleep(self._pause)
                await rung
            finally:
                rung.cancel()


class Watched(Response):
    """A stream that counts as a watch from its first byte to its last, and ends when `enter` raises PeerError
    in it: its reader was shut out. Who watches too much gets `refused` instead."""

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
                return  # the connection is closed behind an answer without an end
