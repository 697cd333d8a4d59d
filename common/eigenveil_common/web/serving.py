"""An ASGI application on a socket: uvicorn, quietly. No line of any log holds a path: one may hold a link."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

LOOPBACK = "127.0.0.1"
LEAVE_SECONDS = 2
CONNECTIONS = 200


class Server(uvicorn.Server):
    """uvicorn, whose signals are its program's affair."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(app: ASGIApp, **options: Any) -> Server:
    """A server that `serve(sockets=[...])` runs until its `should_exit` is set; what a proxy says of who asks
    is not believed."""
    return Server(
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
            timeout_graceful_shutdown=LEAVE_SECONDS,
            **options,
        )
    )


def listening(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on; port 0 is any that is free.

    Raises:
        OSError: the port is taken, or the address is not this machine's.
    """
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
    """Serve until SIGTERM or SIGINT; what is being answered is answered."""

    async def run() -> None:
        made = server(app, http="h11")
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, _stop, made)
        await made.serve(sockets=[bound])

    asyncio.run(run())


def _stop(made: Server) -> None:
    made.should_exit = True
