"""Transactions over one connection, the same for every database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from eigenveil.errors import InternalError
from eigenveil_common.storage.database import Connection, Row

Run = Callable[[str, Sequence[object]], list[Row]]


class Transactions:
    """One connection, shared by threads under a lock.

    `run` executes a statement and raises InternalError, code `storage`, when that fails. `begin` opens
    a transaction beside which no other process writes. `is_open` tells whether one is open.
    """

    def __init__(self, run: Run, begin: str, is_open: Callable[[], bool]) -> None:
        self._run = run
        self._begin = begin
        self._is_open = is_open
        self._in_doubt: InternalError | None = None
        self.lock = threading.RLock()

    @contextmanager
    def __call__(self) -> Iterator[Connection]:
        """All or nothing, durable on exit; other threads and processes wait."""
        with self.lock:
            if self._in_doubt is not None:
                raise self._in_doubt
            try:
                self._run(self._begin, ())
                yield Connection(self._run)
            except BaseException:
                self._roll_back()
                raise
            self._commit()

    def _commit(self) -> None:
        try:
            self._run("COMMIT", ())
        except InternalError as problem:
            # It may be durable or not, and a second sync would say that all is well: nothing more goes.
            self._in_doubt = problem
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._is_open():
            self._run("ROLLBACK", ())
