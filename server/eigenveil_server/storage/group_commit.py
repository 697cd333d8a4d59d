"""Group commit: changes that arrive while a transaction is being synced share the next one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from eigenveil.errors import Code, EigenveilError, InternalError
from eigenveil_common.storage.database import Database
from eigenveil_server.storage.database import Change


class GroupCommit:
    """Durable changes from the event loop, without waiting on it. A change must not refuse."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._waiting: list[tuple[Change, asyncio.Future[None]]] = []
        self._busy: asyncio.Task[None] | None = None

    async def write(self, change: Change) -> None:
        """Make `change`, durably on return.

        Raises:
            InternalError: code `storage`.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, done))
        if self._busy is None:
            self._busy = asyncio.create_task(self._drain())
        await done

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            problem: EigenveilError | None = None
            try:
                await loop.run_in_executor(self._thread, self._commit, [change for change, _ in batch])
            except EigenveilError as known:
                problem = known
            except Exception as surprise:  # noqa: BLE001 - told to whoever waits; the next change may do
                problem = InternalError(Code.BUG, f"a change failed: {type(surprise).__name__}")
            for _, done in batch:
                if done.done():  # its caller was cancelled
                    continue
                if problem is None:
                    done.set_result(None)
                else:
                    done.set_exception(problem)
        self._busy = None

    def _commit(self, changes: list[Change]) -> None:
        with self._database.transaction() as connection:
            for change in changes:
                change(connection)

    def close(self) -> None:
        """Wait for the last transaction."""
        self._thread.shutdown()
