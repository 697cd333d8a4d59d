"""Where records come from: the ending of a file says which kind of table it is."""

from __future__ import annotations

from pathlib import Path

from eigenveil_client.records.csv_table import CsvTable, csv_headers
from eigenveil_client.records.parquet_table import ParquetTable, parquet_headers
from eigenveil_client.records.table import BadRecords, Table


def open_table(path: Path) -> Table:
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
