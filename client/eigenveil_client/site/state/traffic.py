"""Counts of the protocol's calls from this site, by kind and bytes for each day (UTC).

Answers and refusals have a row each in the egress ledger. The other calls (greetings, requests for work)
state which plans are here and which rounds were answered, and nothing about records. A request sent with an
answer is counted with it, as `Contribute`. All calls are counted, in message bytes before TLS, with retries.
Counts are written every minute and at the end; a crash loses those in between."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, cast

from eigenveil_common.storage.database import Database
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

SCHEMA = """
CREATE TABLE calls (
  day TEXT NOT NULL,
  kind TEXT NOT NULL,
  messages INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (day, kind)
) STRICT;
"""
FLUSH_SECONDS = 60.0


class Traffic:
    """Counts in `database` (whose schema includes `SCHEMA`). `clock` returns Unix seconds."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._flushing = threading.Lock()  # or two at once would write the same counts twice
        self._messages: Counter[tuple[str, str]] = Counter()
        self._bytes: Counter[tuple[str, str]] = Counter()

    def add(self, kind: str, size: int) -> None:
        """Count one message of `size` bytes in memory."""
        key = (f"{datetime.fromtimestamp(self._clock(), UTC):%Y-%m-%d}", kind)
        with self._lock:
            self._messages[key] += 1
            self._bytes[key] += size

    async def flush_periodically(self) -> None:
        """Flush every minute in a thread, until cancelled. Raises as `flush`."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await asyncio.to_thread(self.flush)

    def flush(self) -> None:
        """Write the counts to the database.

        Raises:
            InternalError: code `storage`; the counts stay in memory.
        """
        with self._flushing:
            with self._lock:
                messages, sizes = self._messages.copy(), self._bytes.copy()
            if not messages:
                return
            self._write([(*key, number, sizes[key]) for key, number in messages.items()])
            with self._lock:
                self._messages -= messages
                self._bytes -= sizes

    def counted(self, stub: rpc.CoordinatorAsyncStub) -> rpc.CoordinatorAsyncStub:
        """Return `stub` with every message counted."""
        return cast("rpc.CoordinatorAsyncStub", CountedStub(stub, self))

    def _write(self, rows: list[tuple[str, str, int, int]]) -> None:
        with self._database.transaction() as change:
            for row in rows:
                change.execute(
                    "INSERT INTO calls VALUES (?, ?, ?, ?, ?) ON CONFLICT (day, kind) DO UPDATE "
                    "SET messages = calls.messages + excluded.messages, "
                    "bytes = calls.bytes + excluded.bytes, at = excluded.at",
                    (*row, self._clock()),
                )

    def last(self) -> int | None:
        """Return the Unix time of the last message in the database; None if there is none."""
        at: int | None = self._database.rows("SELECT MAX(at) FROM calls")[0][0]
        return at

    def counts(self) -> list[dict[str, Any]]:
        """Return every count in the database by day and kind: messages and bytes."""
        rows = self._database.rows("SELECT day, kind, messages, bytes FROM calls ORDER BY day, kind")
        return [dict(row) for row in rows]


class CountedStub:
    """Coordinator's stub whose unary calls are counted, each retry separately."""

    def __init__(self, stub: rpc.CoordinatorAsyncStub, traffic: Traffic) -> None:
        self._stub = stub
        self._traffic = traffic

    def __getattr__(self, kind: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._stub, kind)

        def counted(request: Any, **options: Any) -> Any:
            self._traffic.add(kind, request.ByteSize())
            return method(request, **options)

        return counted
