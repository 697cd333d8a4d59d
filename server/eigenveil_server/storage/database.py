"""The coordinator's tables, and the connections to them: one writes, the others only read.

Reads never wait for a write's sync, so those of a few rows of a file may happen on the event loop; a server
is read beside it. The statements are those that SQLite and PostgreSQL share; the tables are said once for
each, in tables.*.sql.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from eigenveil.errors import Code, RequestError
from eigenveil_common.files import check_owner
from eigenveil_common.locks import try_lock
from eigenveil_common.storage import ledger_store, sqlite
from eigenveil_common.storage.database import Connection, Database
from eigenveil_common.storage.migrations import Expect, Migrations, tables
from eigenveil_common.storage.readers import Readers
from eigenveil_common.trusted_files import believed, check_trusted, database_files
from eigenveil_server.config import Config

# A new table or column goes into both files, and into a step of both MIGRATIONS that leads there: (VERSION,
# the statements).
VERSION = 12
READERS = 4  # connections that read a server's database side by side
Change = Callable[[Connection], None]
P = ParamSpec("P")
T = TypeVar("T")

_SQLITE, _POSTGRESQL = tables(__package__)
# 12 counts what each analyst submits, and has the analyst's signature. Of older studies lists read the plan,
# for want of its summary.
_FILL = (
    "INSERT INTO submissions (study, analyst, at, bytes) "
    "SELECT digest, analyst, submitted_at, LENGTH(plan_json) FROM studies;"
)


def _statements(schema: str, *beginnings: str) -> str:
    """The statements of `schema` that begin so."""
    found = [one.strip() for one in schema.split(";\n") if one.strip().startswith(beginnings)]
    return "".join(f"{one};\n" for one in found)


def _column(schema: str, name: str) -> str:
    """The one column of this name in `schema`, as it is declared there."""
    lines = [line.strip().removesuffix(",") for line in schema.splitlines()]
    (found,) = [line for line in lines if line.startswith(f"{name} ")]
    return found


def _submissions(schema: str) -> str:
    """The step to 12: signatures, the table of submissions, and indexes from which lists are read."""
    indexes = ("studies_by_state", "studies_by_time")
    dropped = "".join(f"DROP INDEX {name};\n" for name in indexes)
    made = _statements(schema, *(f"CREATE INDEX {name} " for name in indexes), "CREATE TABLE submissions ")
    signed = f"ALTER TABLE studies ADD COLUMN {_column(schema, 'authorization_json')};\n"
    uncompressed = _statements(schema, "ALTER TABLE ")  # of PostgreSQL, for what is stored from now on
    by_analyst = _statements(schema, "CREATE INDEX submissions_by_analyst ")
    return f"{signed}{uncompressed}{dropped}{made}{by_analyst}{_FILL}"


MIGRATIONS: Migrations = ((12, _submissions(_SQLITE)),)
POSTGRESQL_MIGRATIONS: Migrations = ((12, _submissions(_POSTGRESQL)),)
SCHEMA = ledger_store.SCHEMA + _SQLITE
POSTGRESQL_SCHEMA = ledger_store.POSTGRESQL_SCHEMA + _POSTGRESQL


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Its connections. `claim` makes this process the only one that serves the database, or raises
    RequestError, code `conflict`. `check_whole` looks for damaged pages, or raises InternalError, code
    `storage`. `threads` read what is beyond a network; a file has none."""

    writer: Database
    reader: Database
    claim: Callable[[], None]
    check_whole: Callable[[], None]
    threads: ThreadPoolExecutor | None = None

    @property
    def quick(self) -> bool:
        """Whether a read of a few rows takes less time than handing it to a thread."""
        return self.threads is None

    async def read(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` reads, a few rows; off the event loop where the answer has to travel."""
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
            Code.BAD_CONFIG, "a PostgreSQL database needs more: pip install 'eigenveil[coordinator,postgres]'"
        ) from problem
    writer = postgres.Database(
        url, POSTGRESQL_SCHEMA, VERSION, migrations=POSTGRESQL_MIGRATIONS, expect=expect
    )
    reader = Readers(
        lambda: postgres.Database(url, POSTGRESQL_SCHEMA, VERSION, migrations=POSTGRESQL_MIGRATIONS), READERS
    )
    # Its pages have checksums, which it sees to itself.
    return Store(
        writer=writer,
        reader=reader,
        claim=writer.claim,
        check_whole=lambda: None,
        threads=ThreadPoolExecutor(READERS, thread_name_prefix="reader"),
    )


def existing_store(config: Config) -> Store:
    """The database of a federation that `init` made.

    Raises:
        RequestError: there is none, or root in another user's folder, or a file that others can change.
        InternalError: code `storage`, also for one that has lost its tables.
    """
    if isinstance(config.store, Path) and not config.store.is_file():
        raise RequestError(
            Code.BAD_CONFIG,
            f"there is no federation in {config.files.folder}; make one: "
            "eigenveil-coordinator init --dir DIR --federation NAME",
        )
    check_owner(config.files.folder)
    check_trusted([*believed(config.files.folder), *database_files(config.files.database)])
    return open_store(config.store, Expect.EXISTING)


def only_one(config: Config) -> IO[bytes]:
    """Hold the folder's lock until the process ends, however it ends: only one serves it, or does what no
    server may run beside.

    Raises:
        RequestError: code `conflict`, another process holds it.
        InternalError: code `storage`.
    """
    file = try_lock(config.files.lock)
    if file is None:
        raise RequestError(Code.CONFLICT, f"another coordinator serves {config.files.folder}; stop it first")
    return file


def audit(change: Connection, at: int, kind: str, subject: str, detail: str = "") -> None:
    """Append one line to the operator's record of who did what."""
    change.insert("audit", {"at": at, "kind": kind, "subject": subject, "detail": detail})


def audit_once(change: Connection, at: int, kind: str, subject: str, detail: str = "") -> None:
    """`audit` for what a caller may repeat: the same thing again adds no line, so that nobody can fill the
    disk by repeating themselves."""
    change.execute(
        "INSERT INTO audit (at, kind, subject, detail) SELECT ?, ?, ?, ? WHERE NOT EXISTS "
        "(SELECT 1 FROM audit WHERE (kind, subject, detail) = (?, ?, ?))",
        (at, kind, subject, detail, kind, subject, detail),
    )
