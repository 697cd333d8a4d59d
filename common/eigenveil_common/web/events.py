"""Server-sent events: a page's pieces, made anew at the server, for a browser that has the page open.

A stream sends what its source gives and waits for the reader: what a slow one has not read is not made. It
ends when the session does, so a page that was left open does not keep the session alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse

BEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 5000


def live(pieces: AsyncIterator[str], lives: Callable[[], bool]) -> StreamingResponse:
    """A stream of HTML, each of whose outermost elements replaces the page's element of the same id.

    While `pieces` has nothing there is a beat, and at each `lives` is asked whether to go on.
    """
    return StreamingResponse(_events(pieces, lives), media_type="text/event-stream")


async def _events(pieces: AsyncIterator[str], lives: Callable[[], bool]) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n"
    waiting = asyncio.ensure_future(anext(pieces, None))
    try:
        while lives():
            done, _ = await asyncio.wait({waiting}, timeout=BEAT_SECONDS)
            if not done:
                yield ": still here\n\n"
                continue
            piece = waiting.result()
            if piece is None or not lives():
                return
            yield "".join(f"data: {line}\n" for line in piece.splitlines()) + "\n"
            waiting = asyncio.ensure_future(anext(pieces, None))
    finally:
        waiting.cancel()
