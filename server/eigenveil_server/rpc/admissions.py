"""Who may call, known anew for every call: one look for all who wait, beside the event loop if it is long."""

from __future__ import annotations

import asyncio

from eigenveil.identity import Identity
from eigenveil_server.pki.registry import Registry
from eigenveil_server.pki.standing import standing
from eigenveil_server.storage.database import Store


class Admissions:
    """`latest` is as of the last `refresh`. To be used on the event loop."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self.latest = standing(store.reader, None)
        self._looking: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Bring `latest` to a moment after this call.

        Raises:
            InternalError: code `storage`.
        """
        if self._store.quick:
            self.latest = standing(self._store.reader, self.latest)
            return
        if self._next is None:  # a look that has begun may have missed what this call must see
            self._next = asyncio.create_task(self._look(self._looking))
        await asyncio.shield(self._next)

    async def _look(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._looking, self._next = self._next, None
        self.latest = await self._store.read(standing, self._store.reader, self.latest)

    async def take_up(self, identity: Identity, print: str) -> None:
        """Note that a renewed certificate was used, and look anew.

        Raises:
            InternalError: code `storage`.
        """
        await asyncio.to_thread(self._registry.take_up, identity, print)
        await self.refresh()
