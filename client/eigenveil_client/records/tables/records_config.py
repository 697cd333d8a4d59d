"""Configuration of a site's records in site.toml: files, or a SELECT over files or a database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from eigenveil_common.config import ABOVE_ZERO, check_rules, ensure, key

DECIMALS = (".", ",")
THOUSANDS = ("", ".", ",", " ", "'", "_", "\u00a0", "\u202f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Dialect of a text; `decimal` and `thousands` are the marks in a number ("" for none).

    Raises:
        RequestError: code `bad-config`.
    """

    separator: str = ","
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        one = len(self.separator) == 1 and self.separator.isascii() and self.separator not in '"\r\n'
        ensure(one, "separator must be one ASCII character, neither a quote nor a line break")
        ensure(self.decimal in DECIMALS, 'decimal must be "." or ","')
        ensure(self.thousands in THOUSANDS, f"thousands must be one of {', '.join(map(repr, THOUSANDS))}")
        ensure(self.thousands != self.decimal, "thousands and decimal must be different marks")
        ensure(_is_text(self.encoding), "encoding must be an encoding of Python, such as utf-8 or latin-1")


def _is_text(encoding: str) -> bool:
    try:
        return "a".encode(encoding).decode(encoding) == "a"
    except (LookupError, UnicodeError):
        return False


COMMAS = Dialect()


# user:password@ in a URI, or the key; after %-escapes are decoded, as libpq does
PASSWORD = re.compile(r"://[^@]*:[^@]*@|\b(?:ssl)?password\s*=", re.IGNORECASE)
NO_PASSWORD = "database holds a password. Put it into a pgpass file instead, which only this user can read"
SQLITE = (".sqlite", ".sqlite3", ".db")
BED, LISTS = ".bed", (".bim", ".fam")  # of PLINK: genotypes, and the lists beside them


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsConfig:
    """The keys of `[records]`; `records = "FILE"` is short for `source` alone.

    deploy/config/site.example.toml explains them.

    Raises:
        RequestError: code `bad-config`; the message never quotes a database's address.
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
        ensure((self.source is None) == bool(self.database), "records: state either source or database")
        ensure(not PASSWORD.search(unquote(self.database)), NO_PASSWORD)
        address = "=" in self.database or self.database.startswith(("postgresql://", "postgres://"))
        ensure(
            not self.database or address,
            'database is like "service=omop" or "postgresql://user@host/name"',
        )
        plain = self.dialect == COMMAS or not self.database
        ensure(plain, "separator, decimal, thousands and encoding are for files. Remove them for a database")
        ensure(not (self.sql and self.sql_file), "records: state either sql or sql_file")
        ensure(not self.database or self.is_view, "records from a database need sql or sql_file: one SELECT")
        sqlite = self.source is not None and self.source.suffix.lower() in SQLITE
        ensure(not self.table or sqlite, "table is for SQLite files. State sql for a database")
        ensure(not sqlite or bool(self.table) != self.is_view, "a SQLite file needs either table or sql")
        ensure(not self.one_row_per or self.is_view or sqlite, "one_row_per needs a SELECT. State sql")

    @property
    def is_view(self) -> bool:
        """True if the records are the result of a SELECT of the site."""
        return bool(self.sql or self.sql_file)

    @property
    def is_files(self) -> bool:
        """True if files hold the records unchanged, so that each file has its own records."""
        return self.source is not None and not self.is_view and not self.table

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read on this machine; write access to them decides the answers."""
        found = [path for path in (self.source, self.sql_file) if path is not None]
        beside = [one.with_suffix(ending) for one in found if one.suffix.lower() == BED for ending in LISTS]
        return (*found, *beside)

    def __str__(self) -> str:
        return str(self.source or "the database")
