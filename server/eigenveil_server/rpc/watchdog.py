"""What a serving coordinator looks after twice a second: who was shut out, whom it trusts, its certificate.

The operator's commands run in processes of their own; what they write takes effect here, without a
restart and on connections that are open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from eigenveil.errors import Code, EigenveilError, InternalError
from eigenveil_common import log
from eigenveil_server.fatal import Fatal
from eigenveil_server.pki.authority_files import Authorities
from eigenveil_server.pki.server_certificate import ServerCertificate

EVERY_SECONDS = 0.5


@dataclass(eq=False)
class Watchdog:
    """Looks from `start` to `stop`. A storage error ends the process through `fatal`."""

    _authorities: Authorities
    _leaf: ServerCertificate
    _sweep: Callable[[], Awaitable[None]]
    _fatal: Fatal
    _said: str = ""

    def start(self) -> None:
        self._task = asyncio.create_task(self._look_on())

    async def stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            try:
                await self._sweep()
                await asyncio.to_thread(self._refresh)
            except InternalError as problem:
                self._fatal(problem)
            except Exception as surprise:  # noqa: BLE001 - nothing may be served while nobody looks
                self._fatal(InternalError(Code.BUG, f"the guard met {type(surprise).__qualname__}"))

    def _refresh(self) -> None:
        """A file that an operator damaged changes nothing: what was read before stays in force."""
        try:
            if self._authorities.refresh():
                log.event("authorities-changed", print=self._authorities.held.digest.hex())
            self._said = ""
            self._leaf.renew()
        except InternalError:
            raise
        except EigenveilError as problem:
            if str(problem) != self._said:
                self._said = str(problem)
                log.event("authorities-unusable", logging.ERROR, why=self._said)
