"""Sources of records from their configuration: files by their ending, and views, the result of a SELECT.

A view is stored while a study's records are loaded. The SELECT runs once, so the result is one state of a
database. Its rows are sorted by their values, column by column, and stored in an unnamed file, which ends
with the process. Its digest does not depend on batches."""

from __future__ import annotations

import hashlib
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eigenveil_client.records.genotype_files import ZARR, plink_matrix, zarr_matrix
from eigenveil_client.records.genotype_table import GenotypeTable
from eigenveil_client.records.sources.columnar import PARQUET, arrow_table, parquet_table
from eigenveil_client.records.sources.databases import PostgresQuery, SqliteQuery, only_table, quoted
from eigenveil_client.records.sources.delimited import CsvTable, csv_headers
from eigenveil_client.records.sources.excel import excel_table
from eigenveil_client.records.sources.files_query import FilesQuery
from eigenveil_client.records.tables.lost import LostLines
from eigenveil_client.records.tables.source import (
    BED,
    COMMAS,
    DELIMITED,
    SQLITE,
    WORKBOOKS,
    BadRecords,
    Dialect,
    Headers,
    OnLost,
    RecordsConfig,
    Source,
    content_of,
    kind_of,
)

NULL = np.int64(-1)


class RowsDigest:
    """SHA-256 of the names and types of the columns, and of each column. A column is the lengths of its
    cells' texts, -1 for a null, and the concatenated texts."""

    def __init__(self, schema: pa.Schema) -> None:
        self._begun = hashlib.sha256(schema.to_string().encode())
        self._columns = [(hashlib.sha256(), hashlib.sha256()) for _ in schema]

    def take(self, batch: pa.RecordBatch) -> None:
        """Add the next rows."""
        for column, (lengths, texts) in zip(batch.columns, self._columns, strict=True):
            cells = _texts(column)
            sizes = pc.binary_length(cells).to_numpy(zero_copy_only=False)
            lengths.update(np.where(column.is_null().to_numpy(zero_copy_only=False), NULL, sizes).tobytes())
            texts.update(_bytes(cells))

    def value(self) -> bytes:
        whole = self._begun.copy()
        for lengths, texts in self._columns:
            whole.update(lengths.digest() + texts.digest())
        return whole.digest()


def _texts(column: pa.Array) -> pa.Array:
    """Return cells as bytes of text, empty for nulls. A float is its shortest exact text."""
    kind = column.type
    if pa.types.is_nested(kind):
        column = pa.array([None if cell is None else repr(cell) for cell in column.to_pylist()], pa.string())
    elif not any(test(kind) for test in (pa.types.is_binary, pa.types.is_string, pa.types.is_large_string)):
        column = pc.cast(column, pa.string())
    return pc.fill_null(pc.cast(column, pa.large_binary()), b"")


def _bytes(cells: pa.Array) -> memoryview:
    _, offsets, data = cells.buffers()
    if data is None or not len(cells):
        return memoryview(b"")
    ends = np.frombuffer(offsets, dtype=np.int64)[cells.offset : cells.offset + len(cells) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


class SelectQuery(Protocol):
    """SELECT with the `schema` of its result, without computing a record, and its `rows`, sorted by value.
    `on_lost` is called with the number of lost lines."""

    def schema(self) -> pa.Schema: ...
    def rows(self, on_lost: OnLost) -> Iterator[pa.RecordBatch]: ...


class _StoredResult(NamedTuple):
    """Result in a file, its digest, and the number of lost lines below it."""

    file: BinaryIO
    digest: bytes
    lost: int


class View:
    """Source from the result of `query`, over the files of `below` if it is one over files. Two rows with one
    value in the column `one_row_per` are an error."""

    def __init__(
        self, query: SelectQuery, dialect: Dialect, one_row_per: str = "", below: Source | None = None
    ) -> None:
        self._query, self.dialect, self._one_row_per = query, dialect, one_row_per
        self._below = below

    @property
    def headers(self) -> tuple[str, ...]:
        return tuple(self._schema.names)

    def schema(self) -> pa.Schema:
        return self._schema

    def digest(self) -> bytes:
        return self._result.digest

    def batches(self, headers: list[str], on_lost: OnLost | None) -> Iterator[pa.RecordBatch]:
        result = self._result
        if result.lost:
            if on_lost is None:
                why = "lines have not the cells of the file's header, or invalid bytes. Correct them"
                raise BadRecords(f"{result.lost} {why}")
            on_lost(result.lost)
        yield from _read(result.file, headers)

    def lost_lines(self) -> tuple[LostLines, ...]:
        return () if self._below is None else self._below.lost_lines()

    def locations(self, rows: Sequence[int]) -> list[str]:
        return [f"row {row + 1} of the view" for row in rows]

    @cached_property
    def _schema(self) -> pa.Schema:
        schema = plain_schema(self._query.schema())
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        if twice:
            raise BadRecords(f"the SELECT names two columns {twice[0]!r}. Rename one", about="sql")
        return schema

    @cached_property
    def _result(self) -> _StoredResult:
        lines: list[int] = []
        file = tempfile.TemporaryFile(prefix="eigenveil-view-")  # noqa: SIM115 - closed with the view
        weakref.finalize(self, file.close)
        digest = RowsDigest(self._schema)
        try:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            with pa.ipc.new_file(file, self._schema, options=options) as out:
                for batch in self._query.rows(lines.append):
                    rows = plain_batch(batch)
                    if not rows.schema.equals(self._schema):
                        changed = "the columns of the SELECT changed while it ran. Try again"
                        raise BadRecords(changed, about="schema")
                    digest.take(rows)
                    out.write_batch(rows)
        except (pa.ArrowException, OSError):
            why = "the result of the SELECT cannot be stored. Check that the disk is not full"
            raise BadRecords(why, about="disk") from None
        self._check_rows(file)
        return _StoredResult(file, digest.value(), max(lines, default=0))

    def _check_rows(self, file: BinaryIO) -> None:
        """Raise an error if two rows have one value in the column `one_row_per`."""
        if not self._one_row_per:
            return
        header = Headers(self.headers).find(self._one_row_per)
        chunks = [batch.column(0) for batch in _read(file, [header])]
        column = pa.chunked_array(chunks, type=self._schema.field(header).type)
        if pc.count_distinct(column, mode="only_valid").as_py() < len(column) - column.null_count:
            raise BadRecords(
                f"the view has two rows with one {header!r}, but site.toml states one_row_per. Correct the "
                "SELECT, or state how the rows of a person become one record",
                about=header,
            )


def _read(file: BinaryIO, headers: list[str]) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_file(pa.PythonFile(file)) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number).select(headers)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema without a driver's extension types, dictionaries and metadata."""

    def plain_type(kind: pa.DataType) -> pa.DataType:
        if isinstance(kind, pa.BaseExtensionType):
            return kind.storage_type
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    return pa.schema([(field.name, plain_type(field.type)) for field in schema])


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch with the types of `plain_schema`."""

    def plain_column(column: pa.Array) -> pa.Array:
        if isinstance(column.type, pa.BaseExtensionType):
            return column.storage
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

    return pa.record_batch([*map(plain_column, batch.columns)], schema=plain_schema(batch.schema))


ARROW = (".arrow", ".feather")
ENDINGS = (*DELIMITED, ".csv.gz", *PARQUET, *ARROW, *WORKBOOKS, *SQLITE, BED, *ZARR)


def open_source(config: RecordsConfig) -> Source:
    """Open the records of a site."""
    query: SelectQuery
    below: Source | None = None
    if config.source is None:
        seconds = config.timeout_seconds
        query = PostgresQuery(database=config.database, sql=_sql(config), timeout_seconds=seconds)
    elif config.is_sqlite:
        sql = _sql(config) if config.is_view else _whole_table(config.table or only_table(config.source))
        query = SqliteQuery(path=config.source, sql=sql, decimal=config.dialect.decimal)
    else:
        below = _plain(config, config.source)
        if not config.is_view:
            return below
        query = FilesQuery(source=below, sql=_sql(config))
    return View(query, config.dialect, config.one_row_per, below)


def _whole_table(name: str) -> str:
    return f"SELECT * FROM {quoted(name)}"


def _sql(config: RecordsConfig) -> str:
    """Return the statement, without a final semicolon."""
    text = config.sql
    if config.sql_file is not None:
        try:
            text = config.sql_file.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            why = f"sql_file {config.sql_file} does not exist. Correct --sql-file, or sql_file in site.toml"
            raise BadRecords(why, about="sql") from None
        except (OSError, UnicodeError):
            raise BadRecords(f"{config.sql_file} cannot be read as UTF-8 text", about="sql") from None
    return text.strip().removesuffix(";")


def _plain(config: RecordsConfig, path: Path) -> Source:
    ending, dialect = kind_of(path), config.dialect
    first, units = config.header_line, config.units_below_header
    if ending in DELIMITED:
        if ending == ".tsv" and dialect.separator == COMMAS.separator:
            dialect = replace(dialect, separator="\t")
        headers = csv_headers(path, dialect, first, units)
        return CsvTable(path=path, dialect=dialect, headers=headers, header_line=first, units=units)
    if ending == BED:
        return GenotypeTable(str(path), plink_matrix(path))
    if ending in ZARR:
        return GenotypeTable(str(path), zarr_matrix(path))
    if path.is_dir() or path.suffix.lower() in PARQUET:
        return parquet_table(path, dialect)
    if path.suffix.lower() in ARROW:
        return arrow_table(path, dialect)
    if path.suffix.lower() in WORKBOOKS:
        return excel_table(path, config.sheet, dialect, first, units)
    known = f"{', '.join(ENDINGS)} or a folder of Parquet files"
    content, ending = content_of(path), repr(path.suffix) if path.suffix else "a file without an ending"
    raise BadRecords(f"{path}: records are read from {known}, not {ending}{content and ': '}{content}")
