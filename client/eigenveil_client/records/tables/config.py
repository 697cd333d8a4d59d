"""Where a site's records come from, as site.toml says it: a file, or a SELECT over files or a database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from eigenveil_client.records.tables.dialect import COMMAS, Dialect
from eigenveil_common.config import ABOVE_ZERO, check_rules, key, need

# user:password@ in a URI, or the key; with its %-escapes read, as libpq does
PASSWORD = re.compile(r"://[^@]*:[^@]*@|\b(?:ssl)?password\s*=", re.IGNORECASE)
NO_PASSWORD = "database holds a password: put it into a pgpass file instead, which only this user can read"
SQLITE = (".sqlite", ".sqlite3", ".db")
BED, LISTS = ".bed", (".bim", ".fam")  # of PLINK: genotypes, and beside them what they are of


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsConfig:
    """The keys of `[records]`; `records = "FILE"` is short for `source` alone. They are explained in
    deploy/config/site.example.toml.

    Raises:
        RequestError: code `bad-config`; nothing of a database's address is repeated.
    """

    source: Path | None = None
    database: str = ""
    sql: str = ""
    sql_file: Path | None = None
    table: str = ""
    sheet: str = ""
    one_row_per: str = ""
    timeout_seconds: float = key(600.0, ABOVE_ZERO)
    dialect: Dialect = COMMAS

    def __post_init__(self) -> None:
        check_rules(self)
        need((self.source is None) == bool(self.database), "records: state either source or database")
        need(not PASSWORD.search(unquote(self.database)), NO_PASSWORD)
        address = "=" in self.database or self.database.startswith(("postgresql://", "postgres://"))
        need(
            not self.database or address,
            'database is like "service=omop" or "postgresql://user@host/name"',
        )
        plain = self.dialect == COMMAS or not self.database
        need(plain, "a database has numbers: separator, decimal, thousands and encoding are of files")
        need(not (self.sql and self.sql_file), "records: state either sql or sql_file")
        need(not self.database or self.is_view, "records from a database need sql or sql_file: one SELECT")
        sqlite = self.source is not None and self.source.suffix.lower() in SQLITE
        need(not self.table or sqlite, "table names one of a SQLite file; a database needs sql")
        need(not sqlite or bool(self.table) != self.is_view, "a SQLite file needs either table or sql")
        need(
            not self.one_row_per or self.is_view or sqlite, "one_row_per is a promise of a SELECT: state sql"
        )

    @property
    def is_view(self) -> bool:
        """Whether a SELECT of the site's makes the records."""
        return bool(self.sql or self.sql_file)

    @property
    def is_files(self) -> bool:
        """Whether the records are what files hold as they stand: then each file holds records of its own."""
        return self.source is not None and not self.is_view and not self.table

    @property
    def files(self) -> tuple[Path, ...]:
        """What is read on this machine: whoever may write it decides what is answered."""
        found = [path for path in (self.source, self.sql_file) if path is not None]
        beside = [one.with_suffix(ending) for one in found if one.suffix.lower() == BED for ending in LISTS]
        return (*found, *beside)

    def __str__(self) -> str:
        return str(self.source or "the database")
