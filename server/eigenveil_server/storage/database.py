"""The coordinator's tables, and the two connections to them: one writes, one only reads.

Reads never wait for a write's sync, so they may happen on the event loop. The statements are those that
SQLite and PostgreSQL share (`eigenveil_common.storage.dialect`); both say the tables below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eigenveil.errors import Code, RequestError
from eigenveil_common.files import check_owner
from eigenveil_common.storage import ledger_store, sqlite
from eigenveil_common.storage.database import Connection, Database
from eigenveil_common.storage.migrations import Expect, Migrations
from eigenveil_server.config import Config

# A new table or column goes into SCHEMA, and once a version was released, into a step of MIGRATIONS that
# leads there: (VERSION, the statements).
VERSION = 4
MIGRATIONS: Migrations = ()
Change = Callable[[Connection], None]

SCHEMA = (
    ledger_store.SCHEMA
    + """
CREATE TABLE tokens (
  hash BLOB PRIMARY KEY,
  role TEXT NOT NULL,
  name TEXT NOT NULL,
  expires_at INTEGER NOT NULL,
  key_print TEXT,
  certificate BLOB
) STRICT;
CREATE TABLE certificates (
  fingerprint TEXT PRIMARY KEY,
  role TEXT NOT NULL,
  name TEXT NOT NULL,
  issued_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  superseded INTEGER NOT NULL DEFAULT 0,
  unused INTEGER NOT NULL,
  issuer TEXT NOT NULL,
  key_print TEXT NOT NULL,
  certificate BLOB NOT NULL
) STRICT;
CREATE TABLE greetings (
  role TEXT NOT NULL,
  name TEXT NOT NULL,
  authorities BLOB NOT NULL,
  generation BLOB,
  PRIMARY KEY (role, name)
) STRICT;
CREATE INDEX certificates_by_name ON certificates (role, name);
CREATE TABLE denied (
  role TEXT NOT NULL,
  name TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (role, name)
) STRICT;
CREATE TABLE studies (
  digest TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  analyst TEXT NOT NULL,
  submission TEXT NOT NULL,
  plan BLOB NOT NULL,
  signature BLOB NOT NULL,
  micro_rho INTEGER NOT NULL,
  expected_rounds INTEGER NOT NULL,
  state TEXT NOT NULL,
  failure TEXT NOT NULL DEFAULT '',
  submitted_at INTEGER NOT NULL,
  ended_at INTEGER,
  release BLOB,
  UNIQUE (analyst, submission)
) STRICT;
CREATE TABLE rounds (
  study TEXT NOT NULL REFERENCES studies (digest),
  round INTEGER NOT NULL,
  kind TEXT NOT NULL,
  state TEXT NOT NULL,
  query BLOB NOT NULL,
  query_digest TEXT NOT NULL,
  opened_at INTEGER NOT NULL,
  closed_at INTEGER,
  sealed_at INTEGER,
  sealed_event BLOB,
  released_at INTEGER,
  absent TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (study, round)
) STRICT;
CREATE TABLE answers (
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  site TEXT NOT NULL,
  mac BLOB,
  declined TEXT,
  PRIMARY KEY (study, round, site),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
) STRICT;
CREATE TABLE releases (
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  query TEXT NOT NULL,
  "values" BLOB NOT NULL,
  sigma REAL NOT NULL,
  micro_rho INTEGER NOT NULL,
  atto_delta TEXT NOT NULL,
  present TEXT NOT NULL,
  digest TEXT NOT NULL,
  said BLOB NOT NULL,
  signature BLOB NOT NULL,
  PRIMARY KEY (study, round),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
) STRICT;
CREATE TRIGGER a_sealed_release_never_changes BEFORE UPDATE ON releases
  BEGIN SELECT RAISE(ABORT, 'a sealed release never changes'); END;
CREATE TRIGGER a_sealed_release_is_never_deleted BEFORE DELETE ON releases
  BEGIN SELECT RAISE(ABORT, 'a sealed release is never deleted'); END;
CREATE TABLE events (
  study TEXT NOT NULL REFERENCES studies (digest),
  sequence INTEGER NOT NULL,
  event BLOB NOT NULL,
  PRIMARY KEY (study, sequence)
) STRICT;
CREATE TABLE awaited (
  site TEXT PRIMARY KEY
) STRICT;
CREATE TABLE lost (
  digest TEXT PRIMARY KEY,
  head BLOB NOT NULL,
  signature BLOB NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE TABLE audit (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_subject ON audit (kind, subject);
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The two connections. `claim` makes this process the only one that serves the database, or raises
    RequestError, code `conflict`. `check_whole` looks for damaged pages, or raises InternalError, code
    `storage`."""

    writer: Database
    reader: Database
    claim: Callable[[], None]
    check_whole: Callable[[], None]

    def close(self) -> None:
        """Close both."""
        self.reader.close()
        self.writer.close()


def open_store(where: Path | str, expect: Expect = Expect.ANY) -> Store:
    """Open the database, a file or a PostgreSQL URL, making its tables if it is new.

    Raises:
        RequestError: code `conflict`, a new one was expected; `bad-config`, the URL cannot be used.
        InternalError: code `storage`.
    """
    if isinstance(where, str):
        return _on_server(where, expect)
    writer = sqlite.Database(where, SCHEMA, VERSION, migrations=MIGRATIONS, expect=expect)
    reader = sqlite.Database(where, SCHEMA, VERSION, migrations=MIGRATIONS)
    # The lock of the folder, which guards the keys as well, is claim enough.
    return Store(writer=writer, reader=reader, claim=lambda: None, check_whole=reader.check_whole)


def _on_server(url: str, expect: Expect) -> Store:
    try:
        from eigenveil_common.storage import postgres  # an extra: most coordinators do without
    except ModuleNotFoundError as problem:
        raise RequestError(
            Code.BAD_CONFIG, "a PostgreSQL database needs more: pip install 'eigenveil[server,postgres]'"
        ) from problem
    writer = postgres.Database(url, SCHEMA, VERSION, migrations=MIGRATIONS, expect=expect)
    try:
        reader = postgres.Database(url, SCHEMA, VERSION, migrations=MIGRATIONS)
    except BaseException:
        writer.close()
        raise
    # Its pages have checksums, which it sees to itself.
    return Store(writer=writer, reader=reader, claim=writer.claim, check_whole=lambda: None)


def existing_store(config: Config) -> Store:
    """The database of a federation that `init` made.

    Raises:
        RequestError: there is none, or root in another user's folder.
        InternalError: code `storage`, also for one that has lost its tables.
    """
    if isinstance(config.store, Path) and not config.store.is_file():
        raise RequestError(
            Code.BAD_CONFIG,
            f"there is no federation in {config.files.folder}; make one: "
            "eigenveil-coordinator init --dir DIR --federation NAME",
        )
    check_owner(config.files.folder)
    return open_store(config.store, Expect.EXISTING)


def audit(change: Connection, at: int, kind: str, subject: str, detail: str = "") -> None:
    """Append one line to the operator's record of who did what."""
    change.execute(
        "INSERT INTO audit (at, kind, subject, detail) VALUES (?, ?, ?, ?)", (at, kind, subject, detail)
    )


def audit_once(change: Connection, at: int, kind: str, subject: str, detail: str = "") -> None:
    """`audit` for what a caller may repeat: the same thing again adds no line, so that nobody can fill the
    disk by repeating themselves."""
    change.execute(
        "INSERT INTO audit (at, kind, subject, detail) SELECT ?, ?, ?, ? WHERE NOT EXISTS "
        "(SELECT 1 FROM audit WHERE (kind, subject, detail) = (?, ?, ?))",
        (at, kind, subject, detail, kind, subject, detail),
    )
