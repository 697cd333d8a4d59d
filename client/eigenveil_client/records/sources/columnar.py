"""Files whose columns have types: Parquet, one file or a folder of them, and Arrow's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from eigenveil_client.records.tables.batches import batch_rows
from eigenveil_client.records.tables.dialect import Dialect
from eigenveil_client.records.tables.digest import digest
from eigenveil_client.records.tables.table import UNREADABLE, BadRecords, LeaveOut, unreadable

BUFFERS, LEAST_BUFFER = 2**24, 2**12  # bytes: of all columns together, and of one
PIECE = 1024  # columns
PARQUET = (".parquet", ".pq")
AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
MOST_ROWS = 2**31  # of which no study has more


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetTable:
    """The rows of one file after those of the other; all have the columns of the first."""

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

    def batches(self, headers: list[str], leave_out: LeaveOut | None) -> Iterator[pa.RecordBatch]:
        """See `Source.batches`; every row of such a file has every cell."""
        one_byte = all(self.columns.field(header).type == pa.int8() for header in headers)
        size = batch_rows(len(headers), one_byte=one_byte)
        for path in self.paths:
            try:
                # what is read ahead would be held until the end: all of the file; a whole row group, without
                # a buffer for each column
                buffer = max(LEAST_BUFFER, BUFFERS // max(1, len(headers)))
                with parquet.ParquetFile(path, pre_buffer=False, buffer_size=buffer) as file:
                    rows = 0
                    for batch in _batches(file, headers, size):
                        rows += batch.num_rows
                        yield checked(batch)
                    if rows != file.metadata.num_rows:
                        raise pa.ArrowInvalid("other rows than the file says")
            except MemoryError:
                raise
            except UNREADABLE:
                problem = unreadable(path)
            else:
                continue
            raise problem

    def place(self, row: int, *, whole: bool = True) -> str:
        return f"row {row + 1}"


def _batches(file: parquet.ParquetFile, headers: list[str], size: int) -> Iterator[pa.RecordBatch]:
    if len(headers) > PIECE:
        return _wide(file, headers, size)
    return (one.select(headers) for one in file.iter_batches(batch_size=size, columns=headers))


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch whose lengths, offsets and indices stay within what it holds; whether text is UTF-8 is looked
    at cell by cell, later.

    Raises:
        pa.ArrowInvalid: they do not.
    """
    batch.validate()
    for column in batch.columns:
        _without_text(column).validate(full=True)
    return batch


def _without_text(column: pa.Array) -> pa.Array:
    """The same offsets and bytes, of which none has to be UTF-8."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column.validate()
        words = _without_text(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, words, safe=False)
    return column.view(AS_BYTES[kind]) if kind in AS_BYTES else column


def _wide(file: parquet.ParquetFile, headers: list[str], size: int) -> Iterator[pa.RecordBatch]:
    """Row groups one by one. One of at most `size` rows is read in pieces of some columns: to begin to read
    a column takes memory that is given back when it was read."""
    for group in range(file.num_row_groups):
        if file.metadata.row_group(group).num_rows > size:
            batches = file.iter_batches(batch_size=size, row_groups=[group], columns=headers)
            yield from (batch.select(headers) for batch in batches)
            continue
        columns: list[pa.ChunkedArray] = []
        for start in range(0, len(headers), PIECE):
            piece = headers[start : start + PIECE]
            columns += file.read_row_group(group, columns=piece).select(piece).columns
        yield from pa.Table.from_arrays(columns, names=headers).combine_chunks().to_batches()


def parquet_table(path: Path, dialect: Dialect) -> ParquetTable:
    """A Parquet file, or a folder of them in the order of their names.

    Raises:
        BadRecords: a file cannot be read, or has other columns than the first.
    """
    paths = tuple(_members(path)) if path.is_dir() else (path,)
    if not paths:
        raise BadRecords(f"{path} holds no .parquet file; put the records there, or name another folder")
    first, *rest = ((one, _columns(one)) for one in paths)
    for other, columns in rest:
        if not columns.equals(first[1]):
            raise BadRecords(f"{other} has other columns, or of other types, than {first[0]}; write one anew")
    return ParquetTable(paths=paths, dialect=dialect, columns=first[1])


def _members(folder: Path) -> list[Path]:
    """The files of a folder that hold records: what begins with a dot or an underscore is about them."""
    names = [path for path in folder.iterdir() if path.suffix.lower() in PARQUET]
    return sorted(path for path in names if not path.name.startswith((".", "_")))


def _columns(path: Path) -> pa.Schema:
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            found = file.metadata
            counts = [found.row_group(group).num_rows for group in range(found.num_row_groups)]
            if sum(counts) != found.num_rows or min(counts, default=0) < 0 or found.num_rows > MOST_ROWS:
                raise unreadable(path)
            return file.schema_arrow.remove_metadata()
    except MemoryError:
        raise
    except UNREADABLE:
        raise unreadable(path) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowTable:
    """A file of Arrow's record batches (Feather)."""

    path: Path
    dialect: Dialect
    columns: pa.Schema

    @property
    def headers(self) -> tuple[str, ...]:
        return tuple(self.columns.names)

    def schema(self) -> pa.Schema:
        return self.columns

    def digest(self) -> bytes:
        return digest(self.path)

    def batches(self, headers: list[str], leave_out: LeaveOut | None) -> Iterator[pa.RecordBatch]:
        """See `Source.batches`; every row of such a file has every cell."""
        try:
            with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
                size = batch_rows(len(headers))
                for number in range(reader.num_record_batches):
                    batch = reader.get_batch(number).select(headers)
                    checked(batch)
                    yield from (batch.slice(at, size) for at in range(0, batch.num_rows, size))
        except MemoryError:
            raise
        except UNREADABLE:
            problem = unreadable(self.path)
        else:
            return
        raise problem

    def place(self, row: int, *, whole: bool = True) -> str:
        return f"row {row + 1}"


def arrow_table(path: Path, dialect: Dialect) -> ArrowTable:
    """An Arrow file.

    Raises:
        BadRecords: it cannot be read.
    """
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            return ArrowTable(path=path, dialect=dialect, columns=reader.schema.remove_metadata())
    except MemoryError:
        raise
    except UNREADABLE:
        raise unreadable(path) from None
