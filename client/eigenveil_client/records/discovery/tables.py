"""Tables of a source that holds several: sheets of a workbook, tables of SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from eigenveil_client.records.sources.databases import TABLES, quoted
from eigenveil_client.records.sources.excel import head_rows, sheet_names
from eigenveil_client.records.sources.view import open_source
from eigenveil_client.records.tables.source import WORKBOOKS, BadRecords, RecordsConfig, kind_of

MOST_TABLES = 200
HEAD = 30  # rows of a sheet that decide if it holds a table
SHOWN_COLUMNS = 2**12  # of one table, by name
POSTGRES_TABLES = (
    "SELECT table_schema::text AS place, table_name::text AS name, column_name::text AS header, "
    "ordinal_position::int AS number FROM information_schema.columns "
    "WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleTable:
    """Table of a source by its name, with its columns; `place` is the schema of a database's table."""

    name: str
    columns: tuple[str, ...]
    place: str = ""

    @classmethod
    def of(cls, label: str) -> PossibleTable:
        """Return the table that people call so: its name, or its schema and its name."""
        place, _, name = label.rpartition(".")
        return cls(name=name, place=place, columns=())

    @property
    def qualified(self) -> str:
        """Its name as SQL, with its schema if that is known."""
        return ".".join(quoted(one) for one in (self.place, self.name) if one)

    @property
    def select(self) -> str:
        """SELECT of all its rows."""
        return f"SELECT * FROM {self.qualified}"

    @property
    def label(self) -> str:
        """Name that people write: with its schema unless that is the usual one."""
        return self.name if self.place in ("", "public") else f"{self.place}.{self.name}"


def has_several(config: RecordsConfig) -> bool:
    """Return True if the source may hold several tables, and none is stated."""
    if config.source is None or config.is_view:
        return False
    stated = config.table or config.sheet
    return not stated and (config.is_sqlite or kind_of(config.source) in WORKBOOKS)


def possible_tables(config: RecordsConfig) -> list[PossibleTable]:
    """Return the tables of a source, at most `MOST_TABLES`. Raises BadRecords: it cannot be read."""
    if config.source is None:
        return list(_of_postgres(config))[:MOST_TABLES]
    if config.is_sqlite:
        return list(_of_sqlite(config))
    return list(_of_workbook(config))


def _of_postgres(config: RecordsConfig) -> Iterator[PossibleTable]:
    listing = replace(config, sql=POSTGRES_TABLES, sql_file=None, one_row_per="")
    names = ["place", "name", "number", "header"]
    found: dict[tuple[str, str], dict[int, str]] = {}
    for batch in open_source(listing).batches(names, None):
        columns = (column.to_pylist() for column in batch.columns)
        for place, name, number, header in zip(*columns, strict=True):
            found.setdefault((str(place), str(name)), {})[int(number)] = str(header)
    for (place, name), headers in found.items():
        ordered = tuple(headers[number] for number in sorted(headers))
        yield PossibleTable(name=name, place=place, columns=ordered[:SHOWN_COLUMNS])


def _of_sqlite(config: RecordsConfig) -> Iterator[PossibleTable]:
    listing = replace(config, sql=TABLES, table="", sql_file=None, one_row_per="")
    names = [
        name for batch in open_source(listing).batches(["name"], None) for name in batch.column(0).to_pylist()
    ]
    for name in names[:MOST_TABLES]:
        headers = open_source(replace(config, table=str(name), sql="", sql_file=None)).headers
        yield PossibleTable(name=str(name), columns=headers[:SHOWN_COLUMNS])


def _of_workbook(config: RecordsConfig) -> Iterator[PossibleTable]:
    assert config.source is not None
    for name in sheet_names(config.source)[:MOST_TABLES]:
        try:
            rows = [row for _, row in head_rows(config.source, name, HEAD)]
        except BadRecords:  # a sheet of pictures
            continue
        widest = max(rows, key=lambda row: sum(map(bool, row)), default=[])
        if len(rows) > 1 and sum(map(bool, widest)) > 1:
            yield PossibleTable(name=name, columns=tuple(filter(None, widest))[:SHOWN_COLUMNS])
