"""A listener that is opened again when gRPC's own loop breaks.

grpcio (seen in 1.85.1) stops a whole `grpc.aio` server, listening socket and calls alike, when one peer names
a method in bytes that are no UTF-8, and says so nowhere but in `wait_for_termination`. On the enrolment
listener anybody could do that. Callers repeat what was cut off: every unary call is idempotent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import grpc

from eigenveil.errors import RequestError
from eigenveil_common import log

LOOK_SECONDS = 0.02
BROKEN_SECONDS = 1.0  # for the calls that were under way on a server that broke

Make = Callable[[], grpc.aio.Server]
Bind = Callable[[grpc.aio.Server, int], int]


class Listener:
    """One server at a time on one port. `make` builds it, `bind` gives it a port and says which."""

    def __init__(self, make: Make, bind: Bind) -> None:
        self._make = make
        self._bind = bind
        self._broken: set[asyncio.Task[None]] = set()

    def open(self, port: int) -> int:
        """Take a port (0: any free one); the port.

        Raises:
            RequestError: it is taken.
        """
        self._server = self._make()
        self.port = self._bind(self._server, port)
        return self.port

    async def start(self) -> None:
        """Accept connections until `stop`."""
        await self._server.start()
        self._minder = asyncio.create_task(self._mind())

    async def stop(self, grace: float) -> None:
        """Refuse new calls; those under way have `grace` seconds."""
        self._minder.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._minder
        await self._server.stop(grace)
        await asyncio.gather(*self._broken)

    async def _mind(self) -> None:
        while True:
            try:
                await self._server.wait_for_termination(LOOK_SECONDS)
            except Exception as broken:  # noqa: BLE001 - whatever it was, sites must reach us again
                log.event("listener-broke", logging.WARNING, port=self.port, type=type(broken).__name__)
                ending = asyncio.create_task(self._server.stop(BROKEN_SECONDS))
                self._broken.add(ending)
                ending.add_done_callback(self._broken.discard)
                await self._open_again()

    async def _open_again(self) -> None:
        self._server = self._make()
        while True:
            try:
                self._bind(self._server, self.port)
                break
            except RequestError:  # the broken server has not let go of it yet
                await asyncio.sleep(LOOK_SECONDS / 4)
        await self._server.start()
        log.event("listener-opened-again", port=self.port)
