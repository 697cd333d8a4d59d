"""A SELECT of the site's over files, run by DuckDB on this machine: they are its table `records`.

What it may touch is locked before it sees the statement: no other file, no network, no extension. It works
out of core: beyond a fixed memory it writes to a folder of its own, which is removed with the answer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eigenveil_client.records.sources.columnar import ParquetTable
from eigenveil_client.records.tables.batches import BATCH_ROWS
from eigenveil_client.records.tables.table import BadRecords, LeaveOut, Source
from eigenveil_common.command import needing

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
CAST = "a cell cannot be converted as the SELECT says; TRY_CAST makes it a missing value"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesQuery:
    """`sql` over the table `records`. Every column of text and workbooks is text there."""

    source: Source
    sql: str

    def schema(self) -> pa.Schema:
        with self._running(_Streams(source=self.source)) as result, result.limit(0).to_arrow_reader() as none:
            return none.schema

    def rows(self, leave_out: LeaveOut) -> Iterator[pa.RecordBatch]:
        streams = _Streams(source=self.source)
        with self._running(streams) as result, result.order("ALL").to_arrow_reader(BATCH_ROWS) as batches:
            yield from batches
        if streams.left_out:
            leave_out(streams.left_out)

    @contextmanager
    def _running(self, streams: _Streams) -> Iterator[DuckDBPyRelation]:
        with needing("sources"):  # a site that writes no SQL has no such library
            import duckdb
        with tempfile.TemporaryDirectory(prefix="eigenveil-sql-") as folder:
            try:
                with closing(duckdb.connect(config=CLOSED | {"temp_directory": folder})) as connection:
                    self._offer(connection, streams)
                    yield connection.sql(self._statement(connection))
            except (duckdb.Error, pa.ArrowException, OSError) as refused:
                raise (streams.problem or told(refused)) from None

    def _offer(self, connection: DuckDBPyConnection, streams: _Streams) -> None:
        """Put the records in, and shut the door."""
        if isinstance(self.source, ParquetTable):
            paths = [str(path) for path in self.source.paths]
            connection.read_parquet(paths).create_view("records")
            connection.execute("SET allowed_paths = ?", [paths])
        else:
            connection.register("records", streams)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")

    def _statement(self, connection: DuckDBPyConnection) -> str:
        """The statement, if it is one SELECT.

        Raises:
            BadRecords: it is none, or several.
        """
        statements = connection.extract_statements(self.sql)
        if len(statements) != 1 or statements[0].type.name != "SELECT":
            raise BadRecords("sql must be one SELECT, over the table `records`", about="sql")
        return statements[0].query


@dataclass(slots=True, kw_only=True)
class _Streams:
    """A source as a table of DuckDB's, which may ask for its rows several times; what went wrong with it."""

    source: Source
    left_out: int = 0
    problem: BadRecords | None = field(default=None)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches()).__arrow_c_stream__()

    @property
    def _schema(self) -> pa.Schema:
        """Columns that can be named: a name that is there twice is nobody's."""
        schema = self.source.schema()
        return pa.schema([one for one in schema if one.name and schema.names.count(one.name) == 1])

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self._schema
        try:
            for batch in self.source.batches(schema.names, self._count):
                yield pa.record_batch([_utf8(column) for column in batch.columns], schema=schema)
        except BadRecords as problem:
            self.problem = problem
            raise

    def _count(self, lines: int) -> None:
        self.left_out = lines


def _utf8(column: pa.Array) -> pa.Array:
    """Text that is text: another would end the statement for everybody. What is no UTF-8 becomes U+FFFD."""
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


def told(problem: Exception) -> BadRecords:
    """What is said of a statement that DuckDB refuses. What it says while it runs may quote a cell; what it
    says before quotes the statement alone."""
    import duckdb  # it raised

    match problem:
        case duckdb.ParserException() | duckdb.CatalogException() | duckdb.BinderException():
            words = f"the SELECT is refused: {str(problem).splitlines()[0]}"
        case duckdb.PermissionException():
            words = "the SELECT may read the table `records` and no other file"
        case duckdb.ConversionException() | duckdb.OutOfRangeException():
            words = CAST
        case duckdb.OutOfMemoryException() | duckdb.IOException():
            words = "the SELECT needs more memory or disk than there is, or the records cannot be read"
        case _:
            words = "DuckDB cannot run the SELECT over these records"
    return BadRecords(words, about="sql")
