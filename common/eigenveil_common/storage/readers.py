"""Several connections that only read, for threads that read side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from queue import LifoQueue

from eigenveil.errors import Code, InternalError
from eigenveil_common.storage.database import Connection, Database, Row


class Readers:
    """A `Database` of at most `most` connections, each opened by `connect` when it is first needed. Nothing
    is written here."""

    def __init__(self, connect: Callable[[], Database], most: int) -> None:
        self._connect = connect
        self._most = most
        self._free: LifoQueue[Database | None] = LifoQueue()
        for _ in range(most):
            self._free.put(None)  # the right to open one

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        with self._one() as database:
            return database.rows(statement, parameters)

    @contextmanager
    def _one(self) -> Iterator[Database]:
        """A connection of one's own: the one that was used last, so that no more are opened than needed."""
        held = self._free.get()
        try:
            if held is None:
                held = self._connect()
            yield held
        finally:
            self._free.put(held)

    def transaction(self) -> AbstractContextManager[Connection]:
        raise InternalError(Code.BUG, "what reads does not write")

    def close(self) -> None:
        """Close all; whoever reads is waited for."""
        for held in [self._free.get() for _ in range(self._most)]:
            if held is not None:
                held.close()
