"""Server of an ASGI application by uvicorn, and server-sent events that update parts of an open page. A
stream renders a part at the server, only when the reader has taken the one before. It ends with the session
and does not keep it alive. There are no access logs, because a path may hold a secret link."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp

BEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 5000


def event_stream(pieces: AsyncIterator[str], is_open: Callable[[], bool]) -> StreamingResponse:
    """Return a stream of HTML whose top-level elements replace the page's elements of the same id. While
    `pieces` has nothing, a heartbeat is sent; at each heartbeat `is_open` tells if the stream goes on."""

    async def events() -> AsyncIterator[str]:
        yield f"retry: {RETRY_MILLISECONDS}\n\n"
        pending = asyncio.ensure_future(anext(pieces, None))
        try:
            while is_open():
                if not (await asyncio.wait({pending}, timeout=BEAT_SECONDS))[0]:
                    yield ": still here\n\n"
                    continue
                piece = pending.result()
                if piece is None or not is_open():
                    return
                yield "".join(f"data: {line}\n" for line in piece.splitlines()) + "\n"
                pending = asyncio.ensure_future(anext(pieces, None))
        finally:
            pending.cancel()

    return StreamingResponse(events(), media_type="text/event-stream")


LOOPBACK = "127.0.0.1"
SHUTDOWN_SECONDS = 2
CONNECTIONS = 200


class PageServer(uvicorn.Server):
    """uvicorn server that leaves signals to its program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def page_server(app: ASGIApp, **options: Any) -> PageServer:
    """Return a server that `serve(sockets=[...])` runs until `should_exit`; proxy headers are ignored."""
    return PageServer(
        uvicorn.Config(
            app,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            **options,
        )
    )


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 is any free port. Raises OSError."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def serve_until_stopped(app: ASGIApp, bound: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; requests in progress are completed."""

    async def run() -> None:
        made = page_server(app, http="h11")
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, setattr, made, "should_exit", True)
        await made.serve(sockets=[bound])

    asyncio.run(run())
