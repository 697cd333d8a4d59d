"""Where records come from: the ending of a file says which kind of table it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from eigenveil_client.records.csv_table import CsvTable, csv_headers
from eigenveil_client.records.table import UNREADABLE, BadRecords, LeaveOut, Source, unreadable

BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetTable:
    path: Path
    headers: tuple[str, ...]

    def batches(self, headers: list[str], leave_out: LeaveOut | None) -> Iterator[pa.RecordBatch]:
        """See `Source.batches`; every row of such a file has every cell."""
        try:
            with parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=headers):
                    yield batch.select(headers)
        except UNREADABLE:
            problem = unreadable(self.path)
        else:
            return
        raise problem

    def place(self, row: int, *, whole: bool = True) -> str:
        return f"row {row + 1}"


def parquet_headers(path: Path) -> tuple[str, ...]:
    """The names of its columns.

    Raises:
        BadRecords: the file cannot be read.
    """
    try:
        return tuple(parquet.read_schema(path).names)
    except UNREADABLE:
        raise unreadable(path) from None


def open_table(path: Path) -> Source:
    """The table in `path`; its ending says which kind it is.

    Raises:
        BadRecords: an unknown ending or an unreadable file.
    """
    match path.suffix.lower():
        case ".csv":
            return CsvTable(path=path, headers=csv_headers(path))
        case ".parquet" | ".pq":
            return ParquetTable(path=path, headers=parquet_headers(path))
        case other:
            raise BadRecords(f"{path}: records are read from .csv or .parquet files, not {other!r}")
