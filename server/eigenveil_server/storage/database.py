"""Database of the coordinator: one connection writes, the others only read. Reads never wait for a write's
sync, nor for the long reads of other threads, so a few rows of a file may be read on the event loop; a
database server is read beside it. SQLite and PostgreSQL share all statements but the declarations in
tables.*.sql."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, ParamSpec, TypeVar

from eigenveil.errors import Code, RequestError
from eigenveil_common.concurrency import try_lock
from eigenveil_common.files import check_owner
from eigenveil_common.storage import ledger_store
from eigenveil_common.storage.database import Connection, Database, Expect, Migrations, ReaderPool, tables
from eigenveil_common.storage.sqlite import SqliteDatabase
from eigenveil_common.trusted_files import check_trusted, database_files, trusted_entries
from eigenveil_server.config import Config

if TYPE_CHECKING:
    from eigenveil_common.storage.postgres import PostgresDatabase

# A new table or column goes into both files, and into a step of both MIGRATIONS: (VERSION, the statements).
VERSION = 16
READERS = 4  # connections that read at the same time
Change = Callable[[Connection], None]
P = ParamSpec("P")
T = TypeVar("T")

_SQLITE, _POSTGRESQL = tables(__package__)
# From 14, the version of 1.0; older versions cannot be read.
MIGRATIONS: Migrations = (
    (15, "ALTER TABLE consents ADD COLUMN rule TEXT NOT NULL DEFAULT ''"),
    (
        16,
        """
CREATE TABLE release_pieces (
  study TEXT NOT NULL REFERENCES studies (digest),
  piece INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (study, piece)
) STRICT;
ALTER TABLE releases ADD COLUMN piece_key BLOB;
CREATE TABLE sealed_pieces (
  study TEXT NOT NULL,
  round INTEGER NOT NULL,
  piece INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (study, round, piece),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
) STRICT;
CREATE TRIGGER a_sealed_release_gets_no_piece BEFORE INSERT ON sealed_pieces
  WHEN EXISTS (SELECT 1 FROM releases WHERE (study, round) = (NEW.study, NEW.round))
  BEGIN SELECT RAISE(ABORT, 'a sealed release never changes'); END;
CREATE TRIGGER a_sealed_piece_never_changes BEFORE UPDATE ON sealed_pieces
  WHEN EXISTS (
    SELECT 1 FROM releases
    WHERE (study, round) = (OLD.study, OLD.round) OR (study, round) = (NEW.study, NEW.round)
  )
  BEGIN SELECT RAISE(ABORT, 'a sealed release never changes'); END;
CREATE TRIGGER a_sealed_piece_is_never_deleted BEFORE DELETE ON sealed_pieces
  BEGIN SELECT RAISE(ABORT, 'a sealed release is never deleted'); END;
""",
    ),
)
POSTGRESQL_MIGRATIONS: Migrations = (
    (15, """ALTER TABLE consents ADD COLUMN rule TEXT COLLATE "C" NOT NULL DEFAULT ''"""),
    (
        16,
        """
CREATE TABLE release_pieces (
  study TEXT COLLATE "C" NOT NULL REFERENCES studies (digest),
  piece BIGINT NOT NULL,
  data BYTEA NOT NULL,
  PRIMARY KEY (study, piece)
);
ALTER TABLE release_pieces ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE releases ADD COLUMN piece_key BYTEA;
CREATE TABLE sealed_pieces (
  study TEXT COLLATE "C" NOT NULL,
  round BIGINT NOT NULL,
  piece BIGINT NOT NULL,
  data BYTEA NOT NULL,
  PRIMARY KEY (study, round, piece),
  FOREIGN KEY (study, round) REFERENCES rounds (study, round)
);
ALTER TABLE sealed_pieces ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE FUNCTION refuse_if_sealed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF EXISTS (
    SELECT 1 FROM releases
    WHERE (study, round) = (NEW.study, NEW.round)
    OR TG_OP = 'UPDATE' AND (study, round) = (OLD.study, OLD.round)
  ) THEN RAISE EXCEPTION 'a sealed release never changes'; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER a_sealed_release_gets_no_piece BEFORE INSERT ON sealed_pieces
  FOR EACH ROW EXECUTE FUNCTION refuse_if_sealed();
CREATE TRIGGER a_sealed_piece_never_changes BEFORE UPDATE ON sealed_pieces
  FOR EACH ROW EXECUTE FUNCTION refuse_if_sealed();
CREATE TRIGGER a_sealed_piece_is_never_deleted BEFORE DELETE ON sealed_pieces
  FOR EACH ROW EXECUTE FUNCTION refuse('a sealed release is never deleted');
CREATE TRIGGER a_sealed_piece_is_never_deleted_all BEFORE TRUNCATE ON sealed_pieces
  FOR EACH STATEMENT EXECUTE FUNCTION refuse('a sealed release is never deleted');
""",
    ),
)
SCHEMA = ledger_store.SCHEMA + _SQLITE
POSTGRESQL_SCHEMA = ledger_store.POSTGRESQL_SCHEMA + _POSTGRESQL


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Connections to the database. `acquire_server_lock` makes this process the only one that serves it, or
    raises RequestError, code `conflict`. `check_whole` looks for damaged pages, or raises InternalError, code
    `storage`. `threads` read a database server; a file needs none."""

    writer: Database
    reader: Database
    acquire_server_lock: Callable[[], None]
    check_whole: Callable[[], None]
    threads: ThreadPoolExecutor | None = None

    async def read(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` reads, a few rows; off the event loop for a database server."""
        if self.threads is None:
            return work(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, lambda: work(*args, **kwargs))

    def close(self) -> None:
        if self.threads is not None:
            self.threads.shutdown()
        self.reader.close()
        self.writer.close()


def open_store(where: Path | str, expect: Expect = Expect.ANY) -> Store:
    """Open the database, a file or a PostgreSQL URL, and make its tables if it is new. Raises RequestError:
    code `conflict`, a new one was expected; `bad-config`, the URL cannot be used; InternalError: code
    `storage`."""
    if isinstance(where, str):
        return _on_server(where, expect)
    opened = partial(SqliteDatabase, where, SCHEMA, VERSION, migrations=MIGRATIONS)

    def check_whole() -> None:
        with closing(opened()) as database:
            database.check_whole()

    # No claim needed: the folder's lock guards the database and the keys.
    return Store(
        writer=opened(expect=expect),
        reader=ReaderPool(opened, READERS),
        acquire_server_lock=lambda: None,
        check_whole=check_whole,
    )


def open_to_upgrade(where: Path | str) -> tuple[Store, SqliteDatabase | PostgresDatabase]:
    """Open the database, whose tables may be older, on one connection, which is returned too. Raises as
    `open_store`."""
    if isinstance(where, Path):
        file = SqliteDatabase(where, SCHEMA, VERSION, migrations=MIGRATIONS, expect=Expect.TO_UPGRADE)
        whole = file.check_whole
        return Store(writer=file, reader=file, acquire_server_lock=lambda: None, check_whole=whole), file
    server = _postgres(where)(expect=Expect.TO_UPGRADE)
    lock = server.acquire_server_lock
    return Store(writer=server, reader=server, acquire_server_lock=lock, check_whole=lambda: None), server


def _postgres(url: str) -> partial[PostgresDatabase]:
    try:
        from eigenveil_common.storage import postgres  # an optional dependency
    except ModuleNotFoundError as problem:
        raise RequestError(
            Code.BAD_CONFIG,
            "PostgreSQL support is missing; run: pip install 'eigenveil[coordinator,postgres]'",
        ) from problem
    return partial(
        postgres.PostgresDatabase, url, POSTGRESQL_SCHEMA, VERSION, migrations=POSTGRESQL_MIGRATIONS
    )


def _on_server(url: str, expect: Expect) -> Store:
    opened = _postgres(url)
    writer = opened(expect=expect)
    # The server checks the checksums of its pages.
    return Store(
        writer=writer,
        reader=ReaderPool(opened, READERS),
        acquire_server_lock=writer.acquire_server_lock,
        check_whole=lambda: None,
        threads=ThreadPoolExecutor(READERS, thread_name_prefix="reader"),
    )


def existing_store(config: Config) -> Store:
    """Open the database of a federation that `init` made. Raises as `check_existing`; InternalError: code
    `storage`, also for a database without its tables, or of an earlier version."""
    check_existing(config)
    return open_store(config.store, Expect.EXISTING)


def check_existing(config: Config) -> None:
    """Raise RequestError, code `bad-config`: there is no federation, root in another user's folder, or a file
    that others can change."""
    if isinstance(config.store, Path) and not config.store.is_file():
        raise RequestError(
            Code.BAD_CONFIG,
            f"there is no federation in {config.files.folder}; make one: "
            "eigenveil-coordinator init --dir DIR --federation NAME",
        )
    check_owner(config.files.folder)
    check_trusted([*trusted_entries(config.files.folder), *database_files(config.files.database)])


def lock_folder(config: Config) -> IO[bytes]:
    """Lock the folder until the process ends: one process serves it, or runs a command that excludes a
    server. Raises RequestError: code `conflict`, another process has the lock; InternalError: code
    `storage`."""
    file = try_lock(config.files.lock)
    if file is None:
        raise RequestError(Code.CONFLICT, f"another coordinator uses {config.files.folder}; stop it first")
    return file


def audit(change: Connection, at: int, kind: str, subject: str, detail: str = "") -> None:
    """Append one line to the operator's audit log."""
    change.insert("audit", {"at": at, "kind": kind, "subject": subject, "detail": detail})


def audit_once(change: Connection, at: int, kind: str, subject: str, detail: str = "") -> None:
    """Append an audit line unless the same one exists, so that a repeating caller cannot fill the disk."""
    change.execute(
        "INSERT INTO audit (at, kind, subject, detail) SELECT ?, ?, ?, ? WHERE NOT EXISTS "
        "(SELECT 1 FROM audit WHERE (kind, subject, detail) = (?, ?, ?))",
        (at, kind, subject, detail, kind, subject, detail),
    )
