"""The databases that the product runs on, opened in one form."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eigenveil_common.storage import ledger_store, postgres, sqlite
from eigenveil_common.storage.database import Database

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
