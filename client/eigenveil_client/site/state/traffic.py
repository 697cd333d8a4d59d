"""What else leaves a site: the calls of the protocol, counted by kind and bytes for each day (UTC).

Answers and refusals have a row each in the egress ledger. The rest (greetings, questions for work) says
which plans are here and which rounds were answered, and nothing about records. A question that goes
along with an answer is counted with it, as `Contribute`. All calls are counted, in the bytes of their
messages before TLS, retries included. Counts reach the disk every minute and at the end:
a crash loses those in between.
"""

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
CREATE TABLE chatter (
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
    """The counts in `database` (whose schema includes `SCHEMA`). `clock` gives Unix seconds."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._flushing = threading.Lock()  # or two at once would write the same counts twice
        self._messages: Counter[tuple[str, str]] = Counter()
        self._bytes: Counter[tuple[str, str]] = Counter()

    def add(self, kind: str, size: int) -> None:
        """Count one message of `size` bytes; no disk is touched."""
        place = (f"{datetime.fromtimestamp(self._clock(), UTC):%Y-%m-%d}", kind)
        with self._lock:
            self._messages[place] += 1
            self._bytes[place] += size

    async def keep_flushed(self) -> None:
        """Flush every minute, in a thread, for ever. Raises as `flush`."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await asyncio.to_thread(self.flush)

    def flush(self) -> None:
        """Bring the counts to the disk.

        Raises:
            InternalError: code `storage`; the counts are still here.
        """
        with self._flushing:
            with self._lock:
                messages, sizes = self._messages.copy(), self._bytes.copy()
            if not messages:
                return
            self._write([(*place, number, sizes[place]) for place, number in messages.items()])
            with self._lock:
                self._messages -= messages
                self._bytes -= sizes

    def counted(self, stub: rpc.CoordinatorAsyncStub) -> rpc.CoordinatorAsyncStub:
        """`stub`, with every message that leaves through it counted."""
        return cast("rpc.CoordinatorAsyncStub", CountedStub(stub, self))

    def _write(self, rows: list[tuple[str, str, int, int]]) -> None:
        with self._database.transaction() as change:
            for row in rows:
                change.execute(
                    "INSERT INTO chatter VALUES (?, ?, ?, ?, ?) ON CONFLICT (day, kind) DO UPDATE "
                    "SET messages = chatter.messages + excluded.messages, "
                    "bytes = chatter.bytes + excluded.bytes, at = excluded.at",
                    (*row, self._clock()),
                )

    def last(self) -> int | None:
        """When a message was last counted on the disk, in Unix seconds; None: never."""
        at: int | None = self._database.rows("SELECT MAX(at) FROM chatter")[0][0]
        return at

    def counts(self) -> list[dict[str, Any]]:
        """Every count on the disk, by day and kind: messages and bytes."""
        rows = self._database.rows("SELECT day, kind, messages, bytes FROM chatter ORDER BY day, kind")
        return [dict(row) for row in rows]


class CountedStub:
    """A coordinator's stub whose unary calls are counted, each attempt on its own."""

    def __init__(self, stub: rpc.CoordinatorAsyncStub, traffic: Traffic) -> None:
        self._stub = stub
        self._traffic = traffic

    def __getattr__(self, kind: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._stub, kind)

        def counted(request: Any, **options: Any) -> Any:
            self._traffic.add(kind, request.ByteSize())
            return method(request, **options)

        return counted
