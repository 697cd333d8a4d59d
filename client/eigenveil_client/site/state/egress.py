"""Egress of a site: a hash-chained row for every answer, refusal and readiness message, written before it is
sent, and counts of other calls. A row has a keyed digest of the query and the numbers: a plain hash would let
a reader find a count by trying the likely values. The ledger may be shown to anyone."""

from __future__ import annotations

import asyncio
import hmac
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from google.protobuf.message import DecodeError

from eigenveil.accounting.ledger import GENESIS
from eigenveil.errors import Code, EigenveilError, InternalError, RequestError, round_label
from eigenveil.numerics.encoding import digest
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.wire import query_from_proto, query_to_proto
from eigenveil_common.files import read_secret, write_secret
from eigenveil_common.storage.database import Connection, Database
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

SCHEMA = """
CREATE TABLE egress (
  "index" INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  kind TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  contribution TEXT NOT NULL,
  query TEXT NOT NULL,
  attempt TEXT NOT NULL,
  meaning TEXT NOT NULL,
  previous TEXT NOT NULL UNIQUE,
  digest TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE queries (
  digest TEXT PRIMARY KEY,
  message BLOB NOT NULL
) STRICT;
CREATE TRIGGER egress_is_append_only_update BEFORE UPDATE ON egress
  BEGIN SELECT RAISE(ABORT, 'the egress ledger is append-only'); END;
CREATE TRIGGER egress_is_append_only_delete BEFORE DELETE ON egress
  BEGIN SELECT RAISE(ABORT, 'the egress ledger is append-only'); END;
CREATE TABLE calls (
  day TEXT NOT NULL,
  kind TEXT NOT NULL,
  messages INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (day, kind)
) STRICT;
"""


DECLINE, READY = "decline", "ready"  # kinds of rows of which no number leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressMessage:
    """Message about to leave. `bytes` counts the numbers sent (8 each). `query` is the digest of the query,
    empty in a refusal. `attempt` is the digest of the attempt of a masked answer, else empty."""

    study: str
    round: int
    kind: str
    meaning: str
    bytes: int = 0
    contribution: str = ""
    query: str = ""
    attempt: str = ""

    @property
    def answers(self) -> bool:
        """True if it contains numbers."""
        return self.kind not in (DECLINE, READY)

    @property
    def masked(self) -> bool:
        """True if the numbers have masks and a share of the noise."""
        return bool(self.attempt)


MESSAGE_FIELDS = tuple(one.name for one in fields(EgressMessage))


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRow(EgressMessage):
    """Message with its place in the chain. `at` is Unix time in seconds."""

    index: int
    at: int
    previous: str
    digest: str


@dataclass(eq=False)
class EgressLedger:
    """Egress rows and their queries in `database` (whose schema includes `SCHEMA`)."""

    _database: Database
    _clock: Callable[[], int]

    def append(self, sent: EgressMessage, change: Connection) -> None:
        """Add a row within the transaction `change`."""
        rows = change.execute('SELECT "index", digest FROM egress ORDER BY "index" DESC LIMIT 1')
        index, previous = (rows[0]["index"] + 1, rows[0]["digest"]) if rows else (0, GENESIS)
        stated = {name: getattr(sent, name) for name in MESSAGE_FIELDS}
        body = stated | {"index": index, "at": self._clock(), "previous": previous}
        change.insert("egress", body | {"digest": digest("egress", body)})

    def has_rows(self, study: str, change: Connection) -> bool:
        """Return True if a message left this site for a study, as of the transaction `change`."""
        return bool(change.execute("SELECT 1 FROM egress WHERE study = ? LIMIT 1", (study,)))

    def answered_rounds(self, study: str) -> int:
        """Return in how many rounds of a study numbers left this site."""
        answers = "SELECT COUNT(DISTINCT round) FROM egress WHERE study = ? AND kind NOT IN (?, ?)"
        return int(self._database.rows(answers, (study, DECLINE, READY))[0][0])

    def save_query(self, round_query: RoundQuery, change: Connection) -> None:
        """Store a query once, within the transaction `change`."""
        row = round_query.digest, query_to_proto(round_query).SerializeToString(deterministic=True)
        change.execute("INSERT INTO queries VALUES (?, ?) ON CONFLICT DO NOTHING", row)

    def query_of(self, row: EgressRow) -> RoundQuery:
        """Return the query that `row` answered. Raises InternalError if it was changed or removed."""
        changed = f"the query of row {row.index} of the egress ledger was changed or removed"
        found = self._database.rows("SELECT message FROM queries WHERE digest = ?", (row.query,))
        try:
            query = query_from_proto(pb.Query.FromString(found[0]["message"])) if found else None
        except (EigenveilError, DecodeError) as problem:
            raise InternalError(Code.STORAGE, changed) from problem
        if query is None or query.digest != row.query:
            raise InternalError(Code.STORAGE, changed)
        return query

    def check_queries(self, rows: list[EgressRow]) -> None:
        """Check that the query of each answer is stored. Raises as `query_of`."""
        for row in filter(lambda row: row.query, rows):
            self.query_of(row)

    def head(self) -> str:
        rows = self._database.rows('SELECT digest FROM egress ORDER BY "index" DESC LIMIT 1')
        return str(rows[0]["digest"]) if rows else GENESIS

    def verify(self, ledger: LedgerStore) -> list[EgressRow]:
        """Return every row after checking the chain and the charges.

        Each charged round or attempt must have a row, as both are written together; an accepted loss
        (`rollback`) has none. Each query was checked when the state was opened. Raises as `rows`."""
        charges = ledger.charges()  # before the rows: another process may be writing both
        rows = self.rows()
        answers = {(row.study, row.round, row.attempt) for row in rows if row.answers}
        left = Counter((study, round) for study, round, _ in answers)
        missing = sorted(
            (study, round) for (study, round), times in charges.items() if left[study, round] < times
        )
        if missing:
            study, round = missing[0]
            raise InternalError(
                Code.STORAGE,
                f"{len(missing)} charged rounds have no row in the egress ledger, such as "
                f"{round_label(round)} of study {study[:12]}: rows are missing at its end",
            )
        return rows

    def rows(self) -> list[EgressRow]:
        """Return every row, oldest first, after checking the chain. Raises InternalError if a row was
        changed, removed or put in."""
        stored = self._database.rows('SELECT * FROM egress ORDER BY "index"')
        rows, previous = [EgressRow(**dict(row)) for row in stored], GENESIS
        for index, row in enumerate(rows):
            body = {name: value for name, value in asdict(row).items() if name != "digest"}
            if (row.index, row.previous, row.digest) != (index, previous, digest("egress", body)):
                what = f"row {index} of the egress ledger does not continue the chain"
                raise InternalError(Code.STORAGE, what)
            previous = row.digest
        return rows


class KeyedDigests:
    """Keyed digests of a site's records and answers, which cannot be found by trial without the key.

    HMAC-SHA-256 (hex) with the key at `path`, which is created together with the database. Raises
    RequestError, code `bad-config`, if the key is missing or readable by others."""

    def __init__(self, path: Path, database: Path) -> None:
        if not path.exists():
            if database.exists():
                raise RequestError(
                    Code.BAD_CONFIG,
                    f"{path} is missing, and {database} exists: restore both from one backup. Without a "
                    "backup move the database away, too, and run: eigenveil-site accept-loss",
                )
            write_secret(path, os.urandom(32))
        self._key = read_secret(path)

    def of_answer(self, round_query: RoundQuery, values: bytes | memoryview) -> str:
        """Return the digest of the query, which names its plan and round, and of the numbers. A digest of the
        numbers alone would reveal equal counts of two studies."""
        return self._keyed("answer", round_query.digest, values)

    def of_records(self, plan: str, file: bytes) -> str:
        """Return the digest of a study's plan and records; `file` is the digest of its files and rows."""
        return self._keyed("records", plan, file)

    def of_lines(self, limits: str, version: bytes) -> str:
        """Return the digest of a version of the records and of the limits for lost lines."""
        return self._keyed("lines", limits, version)

    def _keyed(self, what: str, about: str, data: bytes | memoryview) -> str:
        state = hmac.new(self._key, f"{what}\n{about}\n".encode(), sha256)
        state.update(data)
        return state.hexdigest()


ADD_CALLS = (
    "INSERT INTO calls VALUES (?, ?, ?, ?, ?) ON CONFLICT (day, kind) DO UPDATE SET at = excluded.at, "
    "messages = calls.messages + excluded.messages, bytes = calls.bytes + excluded.bytes"
)
FLUSH_SECONDS = 60.0


class Traffic:
    """Counts of the protocol's calls from this site, by kind and bytes for each day (UTC), in `database`.

    Greetings and requests for work state which plans are here and which rounds were answered, and nothing
    about records. All calls are counted, in message bytes before TLS, with retries. Counts are written every
    minute and at the end; a crash loses those in between."""

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
        """Write the counts to the database. Raises InternalError: code `storage`; the counts stay in
        memory."""
        with self._flushing:
            with self._lock:
                messages, sizes = self._messages.copy(), self._bytes.copy()
            if not messages:
                return
            with self._database.transaction() as change:
                for key, number in messages.items():
                    change.execute(ADD_CALLS, (*key, number, sizes[key], self._clock()))
            with self._lock:
                self._messages -= messages
                self._bytes -= sizes

    def counted(self, stub: rpc.CoordinatorAsyncStub) -> rpc.CoordinatorAsyncStub:
        """Return `stub` with every message counted."""
        return cast("rpc.CoordinatorAsyncStub", CountedStub(stub, self))

    def last(self) -> int | None:
        """Return the Unix time of the last message in the database; None if there is none."""
        at: int | None = self._database.rows("SELECT MAX(at) FROM calls")[0][0]
        return at

    def counts(self) -> list[dict[str, Any]]:
        """Return every count in the database by day and kind: messages and bytes."""
        rows = self._database.rows("SELECT day, kind, messages, bytes FROM calls ORDER BY day, kind")
        return [dict(row) for row in rows]


@dataclass(eq=False)
class CountedStub:
    """Coordinator's stub whose unary calls are counted, each retry separately."""

    _stub: rpc.CoordinatorAsyncStub
    _traffic: Traffic

    def __getattr__(self, kind: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._stub, kind)

        def counted(request: Any, **options: Any) -> Any:
            self._traffic.add(kind, request.ByteSize())
            return method(request, **options)

        return counted
