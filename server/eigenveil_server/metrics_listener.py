"""The metrics listener: plain HTTP, one answer a connection, few at a time and none for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from eigenveil.errors import Code, RequestError

MOST_AT_ONCE = 16
SECONDS = 5.0  # for a request to be there, and for its answer to be taken
MOST_BYTES = 8 * 1024  # of a request
GOOD = ("GET / ", "GET /metrics ", "GET /metrics?")


class MetricsListener:
    """Answers with what `render` says, which runs on a thread. Beyond `MOST_AT_ONCE` the oldest connection
    gives way, so that whoever only holds one keeps nobody out."""

    def __init__(self, render: Callable[[], bytes], content_type: str) -> None:
        self._render = render
        self._head = f"Content-Type: {content_type}\r\nConnection: close\r\n"
        self._turn = asyncio.Lock()
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    async def open(self, host: str, port: int) -> None:
        """Begin to listen.

        Raises:
            RequestError: the address is taken.
        """
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MOST_BYTES)
        except OSError as problem:
            raise RequestError(
                Code.BAD_CONFIG, f"cannot listen on {host}:{port} for metrics: {problem.strerror}"
            ) from problem

    async def close(self) -> None:
        self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > MOST_AT_ONCE:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        # Too slow, too long, or gone: nobody is there to be told.
        with suppress(TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            async with asyncio.timeout(SECONDS):
                asked = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(asked.decode("latin-1")))
                await writer.drain()
        self._open.pop(writer, None)
        writer.close()

    async def _answer(self, asked: str) -> bytes:
        if not asked.startswith(GOOD):
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        async with self._turn:
            body = await asyncio.to_thread(self._render)
        return f"HTTP/1.1 200 OK\r\n{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body
