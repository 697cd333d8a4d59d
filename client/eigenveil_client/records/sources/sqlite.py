"""A SQLite file: one of its tables, or a SELECT of the site's over all of them, which SQLite itself runs.

A cell of SQLite has its own type whatever its column says: all are text here, as in a CSV file.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from eigenveil_client.records.sources.plain_cells import text_batches, text_schema
from eigenveil_client.records.tables.table import BadRecords, LeaveOut

MOST_CELL, MOST_COLUMNS, MOST_STATEMENT = 2**24, 2**15, 2**20  # bytes, columns of a result, bytes
# A schema is a file's word: nothing of it may call what is no harmless function, or take a file to be whole.
DISTRUST = ("PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON", "PRAGMA mmap_size = 0")
HARMLESS = {
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE,
}  # fmt: skip

NONE = " LIMIT 0"
NO_COLLATION, MOST_COLLATIONS = "no such collation sequence: ", 64
MOST_FOUND = 200  # characters of what is wrong with a file


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteQuery:
    """`sql` over the tables of a file, under their own names."""

    path: Path
    sql: str
    decimal: str

    def schema(self) -> pa.Schema:
        with self._cursor(NONE) as cursor:
            return text_schema(_headers(cursor))

    def rows(self, leave_out: LeaveOut) -> Iterator[pa.RecordBatch]:
        width = len(self.schema())
        order = ", ".join(f"{number} COLLATE BINARY" for number in range(1, width + 1))
        with self._cursor(f" ORDER BY {order}") as cursor:
            yield from text_batches(_headers(cursor), cursor, self.decimal)

    @contextmanager
    def _cursor(self, end: str) -> Iterator[sqlite3.Cursor]:
        statement, prepared = f"SELECT * FROM (\n{self.sql}\n){end}", False
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True)) as connection:
                connection.text_factory = bytes
                _distrust(connection)
                if end != NONE:
                    _check_whole(connection, self.path)
                connection.set_authorizer(_authorized)
                connection.execute(f"EXPLAIN {statement}").close()
                prepared = True
                yield connection.execute(statement)
        except (sqlite3.Error, sqlite3.Warning) as refused:
            # What SQLite says of a statement names words of it; what it says while it runs may quote a cell.
            said = f": {refused}" if not prepared else "; look at what the SELECT does with single cells"
            raise BadRecords(f"{self.path}: SQLite refuses the SELECT{said}", about="sql") from None


def _distrust(connection: sqlite3.Connection) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_CELL)
    connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, MOST_COLUMNS)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MOST_STATEMENT)
    for words in (*DISTRUST, *_sorting()):
        connection.execute(words).close()


def _sorting() -> tuple[str, str]:
    """Where SQLite sorts what memory has no room for: where all of ours is put, and a reader may write. What
    the environment says is read once in the life of a process."""
    folder = tempfile.gettempdir().replace("'", "''")
    return "PRAGMA temp_store = FILE", f"PRAGMA temp_store_directory = '{folder}'"


def _check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Insist that its pages fit together: a damaged one would hide records, and say nothing. An index may be
    in an order of another program's, for which any will do here: no order is checked, and the SELECT was
    looked at without one (`schema`), so it needs none."""
    for _ in range(MOST_COLLATIONS):
        found = _quick_check(connection)
        if found is None:
            return
        if not found.startswith(NO_COLLATION):
            break
        name = found.removeprefix(NO_COLLATION)
        connection.create_collation(name, lambda one, other: (one > other) - (one < other))
    raise BadRecords(f"{path} is damaged (PRAGMA quick_check: {found}); put back a copy that is whole")


def _quick_check(connection: sqlite3.Connection) -> str | None:
    """The first thing that is wrong with a file, or what keeps SQLite from looking; None if nothing is."""
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchall()[0][0]
    except sqlite3.OperationalError as problem:
        if not str(problem).startswith(NO_COLLATION):
            raise
        return str(problem)
    return None if found == b"ok" else " ".join(found.decode(errors="replace").split())[:MOST_FOUND]


def _headers(cursor: sqlite3.Cursor) -> list[str]:
    return [name for name, *_ in cursor.description]


def _authorized(action: int, *about: str | None) -> int:
    """Nothing but reading: no other file is attached, and no setting changed."""
    return sqlite3.SQLITE_OK if action in HARMLESS else sqlite3.SQLITE_DENY


def table(name: str) -> str:
    """The SELECT of a whole table."""
    escaped = name.replace('"', '""')
    return f'SELECT * FROM "{escaped}"'
