"""A source from what a site says of it; of a file, the ending says which kind it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eigenveil_client.records.genotypes.plink import plink_matrix
from eigenveil_client.records.genotypes.table import GenotypeTable
from eigenveil_client.records.genotypes.vcf_zarr import ZARR, zarr_matrix
from eigenveil_client.records.sources.columnar import PARQUET, arrow_table, parquet_table
from eigenveil_client.records.sources.delimited import CsvTable, csv_headers
from eigenveil_client.records.sources.excel import WORKBOOKS, excel_table
from eigenveil_client.records.sources.over_files import FilesQuery
from eigenveil_client.records.sources.postgres import PostgresQuery
from eigenveil_client.records.sources.sqlite import SqliteQuery, table
from eigenveil_client.records.sources.view import Query, View
from eigenveil_client.records.tables.config import BED, SQLITE, RecordsConfig
from eigenveil_client.records.tables.dialect import COMMAS, Dialect
from eigenveil_client.records.tables.table import BadRecords, Source

DELIMITED = (".csv", ".tsv", ".txt")
ARROW = (".arrow", ".feather")
ENDINGS = (*DELIMITED, ".csv.gz", *PARQUET, *ARROW, *WORKBOOKS, *SQLITE, BED, *ZARR)


def open_source(said: RecordsConfig) -> Source:
    """The records of a site.

    Raises:
        BadRecords: an unknown ending, or nothing can be read of it.
        RequestError: code `bad-config`, a library is not installed.
    """
    if said.source is None:
        return _view(said, PostgresQuery(
            database=said.database, sql=_sql(said), timeout_seconds=said.timeout_seconds
        ))  # fmt: skip
    if said.source.suffix.lower() in SQLITE:
        sql = table(said.table) if said.table else _sql(said)
        return _view(said, SqliteQuery(path=said.source, sql=sql, decimal=said.dialect.decimal))
    plain = _plain(said.source, said.dialect, said.sheet)
    return _view(said, FilesQuery(source=plain, sql=_sql(said))) if said.is_view else plain


def open_table(path: Path) -> Source:
    """The records in a file or folder of which nothing else is said. Raises as `open_source`."""
    return open_source(RecordsConfig(source=path))


def _view(said: RecordsConfig, query: Query) -> View:
    return View(query, said.dialect, said.one_row_per)


def _sql(said: RecordsConfig) -> str:
    """The statement, without what would end it."""
    text = said.sql
    if said.sql_file is not None:
        try:
            text = said.sql_file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeError):
            raise BadRecords(f"{said.sql_file} cannot be read as UTF-8 text", about="sql") from None
    return text.strip().removesuffix(";")


def _plain(path: Path, dialect: Dialect, sheet: str) -> Source:
    ending = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if ending in DELIMITED:
        if ending == ".tsv" and dialect.separator == COMMAS.separator:
            dialect = replace(dialect, separator="\t")
        return CsvTable(path=path, dialect=dialect, headers=csv_headers(path, dialect))
    if ending == BED:
        return GenotypeTable(str(path), plink_matrix(path))
    if ending in ZARR:
        return GenotypeTable(str(path), zarr_matrix(path))
    if path.is_dir() or path.suffix.lower() in PARQUET:
        return parquet_table(path, dialect)
    if path.suffix.lower() in ARROW:
        return arrow_table(path, dialect)
    if path.suffix.lower() in WORKBOOKS:
        return excel_table(path, sheet, dialect)
    known = ", ".join(ENDINGS)
    raise BadRecords(
        f"{path}: records are read from {known} or a folder of Parquet files, not {path.suffix!r}"
    )
