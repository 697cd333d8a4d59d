"""Sources with typed columns: Parquet, one file or a folder of them, and Arrow files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from eigenveil_client.records.tables.batches import batch_rows
from eigenveil_client.records.tables.errors import reads
from eigenveil_client.records.tables.lost import LostLines
from eigenveil_client.records.tables.source import (
    DELIMITED,
    WORKBOOKS,
    BadRecords,
    Dialect,
    OnLost,
    digest,
    kind_of,
    unreadable,
)

BUFFERS, LEAST_BUFFER = 2**24, 2**12  # bytes: of all columns together, and of one
PIECE = 1024  # columns
PARQUET = (".parquet", ".pq")
AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
MOST_ROWS = 2**31  # above the largest study


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarTable:
    """Files with typed columns, one after the other; all have the columns of the first, and every cell."""

    paths: tuple[Path, ...]
    dialect: Dialect
    columns: pa.Schema

    @property
    def headers(self) -> tuple[str, ...]:
        return tuple(self.columns.names)

    def schema(self) -> pa.Schema:
        return self.columns

    def digest(self) -> bytes:
        return digest(*self.paths)

    def lost_lines(self) -> tuple[LostLines, ...]:
        return ()

    def locations(self, rows: Sequence[int]) -> list[str]:
        return [f"row {row + 1}" for row in rows]


class ParquetTable(ColumnarTable):
    """Parquet files."""

    def batches(self, headers: list[str], on_lost: OnLost | None) -> Iterator[pa.RecordBatch]:
        one_byte = all(self.columns.field(header).type == pa.int8() for header in headers)
        size = batch_rows(len(headers), one_byte=one_byte)
        # read-ahead would hold the whole file until the end; and without a buffer for each column, a whole
        # row group
        buffer = max(LEAST_BUFFER, BUFFERS // max(1, len(headers)))
        for path in self.paths:
            with reads(path), parquet.ParquetFile(path, pre_buffer=False, buffer_size=buffer) as file:
                rows = 0
                for batch in _batches(file, headers, size):
                    rows += batch.num_rows
                    yield checked(batch)
                if rows != file.metadata.num_rows:
                    raise pa.ArrowInvalid("the file states another number of rows")


class ArrowTable(ColumnarTable):
    """Arrow file of record batches (Feather)."""

    def batches(self, headers: list[str], on_lost: OnLost | None) -> Iterator[pa.RecordBatch]:
        (path,), size = self.paths, batch_rows(len(headers))
        with reads(path), pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                batch = checked(reader.get_batch(number).select(headers))
                yield from (batch.slice(at, size) for at in range(0, batch.num_rows, size))


def _batches(file: parquet.ParquetFile, headers: list[str], size: int) -> Iterator[pa.RecordBatch]:
    if len(headers) > PIECE:
        return _wide(file, headers, size)
    return (one.select(headers) for one in file.iter_batches(batch_size=size, columns=headers))


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch after a check that its lengths, offsets and indices are within its buffers.

    UTF-8 is checked later, cell by cell.

    Raises:
        pa.ArrowInvalid: they are not."""
    batch.validate()
    for column in batch.columns:
        _without_text(column).validate(full=True)
    return batch


def _without_text(column: pa.Array) -> pa.Array:
    """Return the same offsets and bytes as a type that need not be UTF-8."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column.validate()
        return pa.DictionaryArray.from_arrays(column.indices, _without_text(column.dictionary), safe=False)
    return column.view(AS_BYTES[kind]) if kind in AS_BYTES else column


def _wide(file: parquet.ParquetFile, headers: list[str], size: int) -> Iterator[pa.RecordBatch]:
    """Yield row groups one by one. A group of at most `size` rows is read in pieces of some columns. Reading
    a column takes memory that is freed when it was read."""
    for group in range(file.num_row_groups):
        if file.metadata.row_group(group).num_rows > size:
            for batch in file.iter_batches(batch_size=size, row_groups=[group], columns=headers):
                yield batch.select(headers)
            continue
        columns: list[pa.ChunkedArray] = []
        for start in range(0, len(headers), PIECE):
            piece = headers[start : start + PIECE]
            columns += file.read_row_group(group, columns=piece).select(piece).columns
        yield from pa.Table.from_arrays(columns, names=headers).combine_chunks().to_batches()


def parquet_table(path: Path, dialect: Dialect) -> ParquetTable:
    """Open a Parquet file, or a folder of them in the order of their names."""
    paths = tuple(_members(path)) if path.is_dir() else (path,)
    if not paths:
        others = sorted(one for one in path.iterdir() if kind_of(one) in (*DELIMITED, *WORKBOOKS))
        why, todo = "holds no .parquet file", "Put the records there, or name another folder"
        if others:
            why, todo = f"{why}, and other files are read one at a time", f"State one, such as {others[0]}"
        raise BadRecords(f"{path} {why}. {todo}")
    first, *rest = ((one, _columns(one)) for one in paths)
    for other, columns in rest:
        if not columns.equals(first[1]):
            raise BadRecords(f"{other} and {first[0]} have different columns. Export one of them again")
    return ParquetTable(paths=paths, dialect=dialect, columns=first[1])


def _members(folder: Path) -> list[Path]:
    """Return the files of a folder that hold records, without metadata (names that begin with . or _)."""
    found = (one for one in folder.iterdir() if not one.name.startswith((".", "_")))
    return sorted(path for path in found if path.suffix.lower() in PARQUET)


def _columns(path: Path) -> pa.Schema:
    with reads(path), parquet.ParquetFile(path, pre_buffer=False) as file:
        found = file.metadata
        counts = [found.row_group(group).num_rows for group in range(found.num_row_groups)]
        if sum(counts) != found.num_rows or min(counts, default=0) < 0 or found.num_rows > MOST_ROWS:
            raise unreadable(path)
        return file.schema_arrow.remove_metadata()


def arrow_table(path: Path, dialect: Dialect) -> ArrowTable:
    """Open an Arrow file, or raise BadRecords."""
    with reads(path), pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
        return ArrowTable(paths=(path,), dialect=dialect, columns=reader.schema.remove_metadata())
