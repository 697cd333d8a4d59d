"""Views by a SELECT of the site over files, which are its table `records`, run by DuckDB on this machine.
DuckDB is locked before it receives the statement: no other file, no network, no extension. Beyond a fixed
memory it writes to a temporary folder, which is removed after the query."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eigenveil_client.records.sources.columnar import ParquetTable
from eigenveil_client.records.tables.batches import BATCH_ROWS
from eigenveil_client.records.tables.source import BadRecords, OnLost, Source
from eigenveil_common.command import require_extra

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

MEMORY = "2GB"
CLOSED: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "memory_limit": MEMORY,
}
CAST = "a cell cannot be converted as in the SELECT. Use TRY_CAST to make it a missing value"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesQuery:
    """Query `sql` over the table `records`. Every column of text files and workbooks is text there."""

    source: Source
    sql: str

    def schema(self) -> pa.Schema:
        with (
            self._running(_SourceStream(source=self.source)) as result,
            result.limit(0).to_arrow_reader() as none,
        ):
            return none.schema

    def rows(self, on_lost: OnLost) -> Iterator[pa.RecordBatch]:
        streams = _SourceStream(source=self.source)
        with self._running(streams) as result, result.order("ALL").to_arrow_reader(BATCH_ROWS) as batches:
            yield from batches
        if any(streams.lost):
            on_lost(streams.lost[-1])

    @contextmanager
    def _running(self, streams: _SourceStream) -> Iterator[DuckDBPyRelation]:
        with require_extra("sources"):  # only sites with SQL have this library
            import duckdb
        with tempfile.TemporaryDirectory(prefix="eigenveil-sql-") as folder:
            try:
                with closing(duckdb.connect(config=CLOSED | {"temp_directory": folder})) as connection:
                    self._register_source(connection, streams)
                    yield connection.sql(self._statement(connection))
            except (duckdb.Error, pa.ArrowException, OSError) as refused:
                raise (streams.problem or select_error(refused)) from None

    def _register_source(self, connection: DuckDBPyConnection, streams: _SourceStream) -> None:
        """Register the records, and lock the connection."""
        if isinstance(self.source, ParquetTable):
            paths = [str(path) for path in self.source.paths]
            connection.read_parquet(paths).create_view("records")
            connection.execute("SET allowed_paths = ?", [paths])
        else:
            connection.register("records", streams)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")

    def _statement(self, connection: DuckDBPyConnection) -> str:
        """Return the statement. Raises BadRecords: it is not one SELECT."""
        statements = connection.extract_statements(self.sql)
        if len(statements) != 1 or statements[0].type.name != "SELECT":
            raise BadRecords("sql must be one SELECT, over the table `records`", about="sql")
        return statements[0].query


@dataclass(slots=True, kw_only=True)
class _SourceStream:
    """Source as a table of DuckDB, which may read it several times, and its first error."""

    source: Source
    lost: list[int] = field(default_factory=list)  # by each time that it was read
    problem: BadRecords | None = None

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches()).__arrow_c_stream__()

    @property
    def _schema(self) -> pa.Schema:
        """The columns with a unique name."""
        schema = self.source.schema()
        return pa.schema([one for one in schema if one.name and schema.names.count(one.name) == 1])

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self._schema
        try:
            for batch in self.source.batches(schema.names, self.lost.append):
                yield pa.record_batch([_utf8(column) for column in batch.columns], schema=schema)
        except BadRecords as problem:
            self.problem = problem
            raise


def _utf8(column: pa.Array) -> pa.Array:
    """Return valid UTF-8, with U+FFFD for invalid bytes: one invalid cell would end the statement."""
    if not pa.types.is_string(column.type):
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        cells = column.cast(pa.binary()).to_pylist()
        return pa.array(
            [None if cell is None else cell.decode(errors="replace") for cell in cells], pa.string()
        )
    return column


def select_error(problem: Exception) -> BadRecords:
    """Return the error for a statement that DuckDB refuses.

    Privacy: DuckDB's messages before the statement runs quote the statement alone, and are passed on. Its
    messages at run time may quote a cell, and are replaced."""
    import duckdb  # it raised

    match problem:
        case duckdb.ParserException() | duckdb.CatalogException() | duckdb.BinderException():
            message = f"DuckDB refuses the SELECT: {str(problem).splitlines()[0]}"
        case duckdb.PermissionException():
            message = "the SELECT may read the table `records` only"
        case duckdb.ConversionException() | duckdb.OutOfRangeException():
            message = CAST
        case duckdb.OutOfMemoryException() | duckdb.IOException():
            message = "the SELECT needs more memory or disk than available, or the records cannot be read"
        case _:
            message = "DuckDB cannot run the SELECT over these records"
    return BadRecords(message, about="sql")
