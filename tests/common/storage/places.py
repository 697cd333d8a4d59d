"""The databases that the product runs on, opened in one form."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eigenveil_common.storage import ledger_store, postgres, sqlite
from eigenveil_common.storage.database import Database

COLUMNS = (
    "SELECT r.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, "
    "pg_get_expr(d.adbin, d.adrelid), l.collname, a.attidentity, a.attstorage "
    "FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid AND r.relkind = 'r' "
    "LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum "
    "LEFT JOIN pg_collation l ON l.oid = a.attcollation "
    "WHERE r.relnamespace = 'public'::regnamespace AND a.attnum > 0"
)
ON_SERVER = (
    COLUMNS,
    "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid > 0",
    "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
)
ON_FILE = ("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL",)
LEDGER = (ledger_store.SCHEMA, ledger_store.POSTGRESQL_SCHEMA)


@dataclass(frozen=True, slots=True)
class Place:
    """One empty database. `where` is a path or a URL; what `open` opened is closed by `close`."""

    where: Path | str
    opened: list[Database] = field(default_factory=list)

    @property
    def is_file(self) -> bool:
        return isinstance(self.where, Path)

    def open(self, schema: str | tuple[str, str], version: int = 1, **options: Any) -> Database:
        """A new connection. `schema`: for both kinds, or for SQLite and for PostgreSQL."""
        on_file, on_server = (schema, schema) if isinstance(schema, str) else schema
        if isinstance(self.where, Path):
            self.opened.append(sqlite.SqliteDatabase(self.where, on_file, version, **options))
        else:
            self.opened.append(postgres.PostgresDatabase(self.where, on_server, version, **options))
        return self.opened[-1]

    def close(self) -> None:
        while self.opened:
            self.opened.pop().close()


def tables_of(database: Database) -> list[tuple[str, ...]]:
    """Return all tables, columns, defaults, indexes and triggers, sorted; SQL without its white space."""
    statements = ON_FILE if isinstance(database, sqlite.SqliteDatabase) else ON_SERVER
    rows = [row for statement in statements for row in database.rows(statement)]
    return sorted(tuple("".join(str(value).split()) for value in row) for row in rows)
