"""What a SELECT makes of a source, kept aside for as long as a study's records are loaded.

It runs once: what is read again is one state of a database, and its rows are in an order that follows from
what they hold, column by column. They lie in a file without a name, which is gone with the process.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from eigenveil_client.records.sources.rows_digest import RowsDigest
from eigenveil_client.records.tables.dialect import Dialect
from eigenveil_client.records.tables.table import BadRecords, LeaveOut, find_column


class Query(Protocol):
    """A SELECT that can be run."""

    def schema(self) -> pa.Schema:
        """The columns of its result. Raises as `Source.batches`; nothing is computed from a record."""

    def rows(self, leave_out: LeaveOut) -> Iterator[pa.RecordBatch]:
        """Its result, in the order of what the rows hold. `leave_out` is told of broken lines beneath."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A result in a file: its digest, and how many lines beneath were left out."""

    file: BinaryIO
    digest: bytes
    left_out: int


class View:
    """The source that `query` makes. With `one_row_per`, a column, two rows that agree in it are an error."""

    def __init__(self, query: Query, dialect: Dialect, one_row_per: str = "") -> None:
        self._query = query
        self._one_row_per = one_row_per
        self.dialect = dialect

    @property
    def headers(self) -> tuple[str, ...]:
        return tuple(self._schema.names)

    def schema(self) -> pa.Schema:
        return self._schema

    def digest(self) -> bytes:
        return self._kept.digest

    def batches(self, headers: list[str], leave_out: LeaveOut | None) -> Iterator[pa.RecordBatch]:
        kept = self._kept
        if kept.left_out:
            if leave_out is None:
                raise BadRecords(
                    f"lines that do not have as many cells as the file's header: {kept.left_out}; mend them"
                )
            leave_out(kept.left_out)
        yield from _read(kept.file, headers)

    def place(self, row: int, *, whole: bool = True) -> str:
        return f"row {row + 1} of the view" if whole else "the file beneath the view"

    @cached_property
    def _schema(self) -> pa.Schema:
        schema = plain_schema(self._query.schema())
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        if twice:
            raise BadRecords(f"the SELECT names two columns {twice[0]!r}; give one another name", about="sql")
        return schema

    @cached_property
    def _kept(self) -> _Kept:
        lines: list[int] = []
        file = tempfile.TemporaryFile(prefix="eigenveil-view-")  # noqa: SIM115 - it lives as long as the view
        weakref.finalize(self, file.close)
        digest = RowsDigest(self._schema)
        try:
            with pa.ipc.new_file(
                file, self._schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
            ) as out:
                for batch in self._query.rows(lines.append):
                    rows = self._as_promised(batch)
                    digest.take(rows)
                    out.write_batch(rows)
        except (pa.ArrowException, OSError):
            problem = BadRecords(
                "the result of the SELECT cannot be kept aside; is the disk full?", about="disk"
            )
        else:
            kept = _Kept(file=file, digest=digest.value(), left_out=max(lines, default=0))
            self._check_rows(kept)
            return kept
        raise problem

    def _as_promised(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = plain_batch(batch)
        if not found.schema.equals(self._schema):
            raise BadRecords("the columns of the SELECT changed while it ran; try again", about="schema")
        return found

    def _check_rows(self, kept: _Kept) -> None:
        """Insist on one row for each value of the column that says whose it is."""
        if not self._one_row_per:
            return
        header = find_column(self.headers, self._one_row_per)
        chunks = [batch.column(0) for batch in _read(kept.file, [header])]
        column = pa.chunked_array(chunks, type=self._schema.field(header).type)
        if pc.count_distinct(column, mode="only_valid").as_py() < len(column) - column.null_count:
            raise BadRecords(
                f"the view has two rows with one {header!r}, and site.toml promises one row for each; mend "
                "the SELECT, or state how the rows of a person become one record",
                about=header,
            )


def _read(file: BinaryIO, headers: list[str]) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_file(pa.PythonFile(file)) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number).select(headers)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Without what a driver adds: its own types, words for repeated texts, and notes."""
    return pa.schema([(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch with the types of `plain_schema`."""
    columns = [
        column.storage
        if isinstance(column.type, pa.BaseExtensionType)
        else column.dictionary_decode()
        if pa.types.is_dictionary(column.type)
        else column
        for column in batch.columns
    ]
    return pa.record_batch(columns, schema=plain_schema(batch.schema))
