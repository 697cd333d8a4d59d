"""Sources of records, their digests, and their configuration in site.toml: files, or a SELECT.

A SELECT is over files or a database. Batches are of named columns, found by name and by the unit in brackets.
UTF-8 is not checked here, as one record's bytes must not affect a whole file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from eigenveil.dictionary.dictionary import similar_names
from eigenveil.errors import Code, RequestError
from eigenveil_client.records.tables.codes import check_codes
from eigenveil_client.records.tables.lost import LostLines
from eigenveil_client.records.tables.names import name_and_unit
from eigenveil_client.records.tables.units import is_row_of_units
from eigenveil_common.config import ABOVE_ZERO, between, check_rules, ensure, key

if TYPE_CHECKING:
    import pyarrow as pa

DECIMALS = (".", ",")
THOUSANDS = ("", ".", ",", " ", "'", "_", "\u00a0", "\u202f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Dialect of a text; `decimal` and `thousands` are the marks in a number ("" for none)."""

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
DELIMITED = (".csv", ".tsv", ".txt")
WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
MOST_SKIPPED = 1000  # lines before the header: a title, not records
BED, LISTS = ".bed", (".bim", ".fam")  # of PLINK: genotypes, and the lists beside them


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsConfig:
    """The keys of `[records]`; `records = "FILE"` is short for `source` alone.

    deploy/config/site.example.toml explains them.

    Raises RequestError: code `bad-config`; the message never quotes a database's address."""

    source: Path | None = None
    database: str = ""
    sql: str = ""
    sql_file: Path | None = None
    table: str = ""
    sheet: str = ""
    one_row_per: str = ""
    timeout_seconds: float = key(600.0, ABOVE_ZERO)
    missing: tuple[str, ...] = ()
    header_line: int = key(1, between(1, MOST_SKIPPED))
    units_below_header: bool = False
    person: str = ""
    dialect: Dialect = COMMAS

    def __post_init__(self) -> None:
        check_rules(self)
        ensure((self.source is None) == bool(self.database), "records: state either source or database")
        ensure(not PASSWORD.search(unquote(self.database)), NO_PASSWORD)
        address = "=" in self.database or self.database.startswith(("postgresql://", "postgres://"))
        known = not self.database or address
        ensure(known, 'database is like "service=omop" or "postgresql://user@host/name"')
        plain = self.dialect == COMMAS or not self.database
        ensure(plain, "separator, decimal, thousands and encoding are for files. Remove them for a database")
        ensure(not (self.sql and self.sql_file), "records: state either sql or sql_file")
        ensure(not self.database or self.is_view, "records from a database need sql or sql_file: one SELECT")
        ensure(not self.table or self.is_sqlite, "table is for SQLite files. State sql for a database")
        ensure(not (self.table and self.is_view), "a SQLite file needs either table or sql. Remove one")
        ensure(
            not self.one_row_per or self.is_view or self.is_sqlite, "one_row_per needs a SELECT. State sql"
        )
        check_codes("missing", self.missing)
        titled = self.source is not None and kind_of(self.source) in (*DELIMITED, *WORKBOOKS)
        tops = {"header_line": self.header_line != 1, "units_below_header": self.units_below_header}
        for name in (name for name, stated in tops.items() if stated):
            ensure(titled, f"{name} is for text files and workbooks. Remove it")
        ensure(
            self.person == self.person.strip(), f"person: {self.person!r} has blanks around it. Remove them"
        )

    @property
    def is_view(self) -> bool:
        """True if the records are the result of a SELECT of the site."""
        return bool(self.sql or self.sql_file)

    @property
    def is_sqlite(self) -> bool:
        """True if the records are of a SQLite file; without table and sql, of its only table."""
        return self.source is not None and self.source.suffix.lower() in SQLITE

    @property
    def is_files(self) -> bool:
        """True if files hold the records unchanged, so that each file has its own records."""
        return self.source is not None and not self.is_view and not self.is_sqlite

    @property
    def reading_digest(self) -> bytes:
        """The digest of the keys that change what the same bytes mean; empty if none is stated."""
        stated = {name: getattr(self, name) for name in ("missing", "header_line", "person")}
        changed = {name: value for name, value in stated.items() if value not in ((), 1, "")}
        changed |= {"units_below_header": True} if self.units_below_header else {}
        return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).digest() if changed else b""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read on this machine; write access to them decides the answers."""
        found = [path for path in (self.source, self.sql_file) if path is not None]
        beside = [one.with_suffix(ending) for one in found if one.suffix.lower() == BED for ending in LISTS]
        return (*found, *beside)

    def __str__(self) -> str:
        return str(self.source or "the database")


def kind_of(path: Path) -> str:
    """Return the ending that states the kind of a file, in small letters, without .gz."""
    ending = path.suffix.lower()
    return Path(path.stem).suffix.lower() if ending == ".gz" else ending


PAGES = (b"<!doctype html", b"<html", b"<head", b"<meta", b"<table")
OLD_WORKBOOK = b"\xd0\xcf\x11\xe0"  # also the shell of one that is encrypted


def content_of(path: Path) -> str:
    """Return what the first bytes of a file show it to be, and what to do then; empty if that is not seen."""
    try:
        with path.open("rb") as file:
            head = file.read(2**10)
    except OSError:
        return ""
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(PAGES):
        return "it is an HTML page. Open it in a spreadsheet program, and save it as .xlsx or .csv"
    if head.startswith(OLD_WORKBOOK):
        return "it is an old or an encrypted workbook. Save it as .xlsx, without a password"
    if path.suffix.lower() == ".zip":
        return "it is a zip archive. Unpack it, and state the file with the records"
    return "it is text. If it is a table, give its name the ending .csv" if head and b"\0" not in head else ""


OnLost = Callable[[int], None]  # called with the number of lost lines of a file


class BadRecords(RequestError):
    """Invalid records, code `bad-data`. `about` is a column or a fixed word; the message may name lines,
    which a daemon's log must not. `kind` is the class of an unexpected error, else empty."""

    def __init__(self, message: str, *, about: str = "file", kind: str = "") -> None:
        super().__init__(Code.BAD_DATA, message)
        self.about = about
        self.kind = kind


class MissingColumn(BadRecords):
    """A column `about` that the records lack. `near`: the similar names that they have."""

    def __init__(self, message: str, *, about: str, near: list[str]) -> None:
        super().__init__(message, about=about)
        self.near = near


class Source(Protocol):
    """Source of records that can be read repeatedly, as batches of named columns."""

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of its columns, as the file spells them."""

    @property
    def dialect(self) -> Dialect:
        """The form of numbers in cells of text."""

    def schema(self) -> pa.Schema:
        """Return its columns and their types, without computing a record."""

    def digest(self) -> bytes:
        """Return the digest of the whole source, which changes with any record. Raises as `batches`."""

    def batches(self, headers: list[str], on_lost: OnLost | None) -> Iterator[pa.RecordBatch]:
        """Yield batches of these columns, in this order, with the rows in their order. A lost line is an
        error, unless `on_lost` is given."""

    def lost_lines(self) -> tuple[LostLines, ...]:
        """Return the lost lines, which `batches` does not yield."""

    def locations(self, rows: Sequence[int]) -> list[str]:
        """Return the location of each of these rows (from 0), such as "line 7"."""


def places_of(rows: Sequence[int], places: Iterable[str]) -> list[str]:
    """Return the place of each of these rows. `places`: of all rows, in their order."""
    last, wanted, found = max(rows, default=-1), set(rows), dict[int, str]()
    for row, place in enumerate(islice(places, last + 1)):
        if row in wanted:
            found[row] = place
    return [found[row] for row in rows]


def check_units(cells: Sequence[str], where: str) -> None:
    """Raise an error if the row below the header, which is skipped by its place alone, is no row of units: it
    would be a person's, and without that person another's."""
    if not is_row_of_units(cells):
        why = "is no row of units, which units_below_header expects"
        raise BadRecords(f"{where} {why}. Remove units_below_header from site.toml")


def unreadable(path: Path) -> BadRecords:
    """Return the error for an unreadable file."""
    return BadRecords(f"{path} cannot be read. Check that it exists, is complete and readable")


class Headers:
    """The headers of a file, by their names with and without the unit in brackets."""

    def __init__(self, headers: tuple[str, ...]) -> None:
        self._number, self._named = len(headers), dict[str, list[str]]()
        for header in headers:
            for name in {header.strip(), name_and_unit(header)[0]}:
                self._named.setdefault(name, []).append(header)

    def find(self, name: str, unit: str | None = None) -> str:
        """Return the header of the column `name`, in `unit` if that is given."""
        fits = self._named.get(name, [])
        if not fits:
            hint = " (is the file separated by commas?)" if self._number == 1 else ""
            near = similar_names(name, self._named)
            todo = f"Did you mean {' or '.join(map(repr, near))}?" if near else "Add it"
            text = f"column {name!r} is not in the records{hint}. {todo}"
            raise MissingColumn(text, about=name, near=near)
        if len(fits) > 1:
            raise BadRecords(f"the records have {len(fits)} columns {name!r}. Keep one", about=name)
        stated = None if fits[0].strip() == name else name_and_unit(fits[0])[1]
        if unit is not None and stated not in (None, unit):
            where = f"in {stated!r} in the records and in {unit!r} in the study"
            raise BadRecords(f"column {name!r} is {where}. Convert it", about=name)
        return fits[0]

    def find_person(self, name: str) -> str:
        """Return the header of the person column `name`."""
        if name not in self._named:
            near = [*similar_names(name, self._named), "ITS NAME THERE"]
            there = json.dumps(near[0], ensure_ascii=False)
            todo = f"Write [records] person = {there}"
            raise BadRecords(f"the person column {name!r} is not in the records. {todo}", about=name)
        return self.find(name)


def digest(*paths: Path, extra: bytes = b"") -> bytes:
    """Return the SHA-256 of a file, or of the digests of several files and of `extra`."""
    found = []
    for path in paths:
        try:
            with path.open("rb") as file:
                found.append(hashlib.file_digest(file, "sha256").digest())
        except OSError as problem:
            raise BadRecords(f"cannot read {path}: {problem.strerror}") from None
    return found[0] if len(found) == 1 and not extra else hashlib.sha256(b"".join([*found, extra])).digest()
