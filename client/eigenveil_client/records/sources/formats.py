"""Sources from their configuration; a file's ending determines its format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eigenveil_client.records.genotype_files import ZARR, plink_matrix, zarr_matrix
from eigenveil_client.records.genotype_table import GenotypeTable
from eigenveil_client.records.sources.columnar import PARQUET, arrow_table, parquet_table
from eigenveil_client.records.sources.databases import PostgresQuery, SqliteQuery, table
from eigenveil_client.records.sources.delimited import CsvTable, csv_headers
from eigenveil_client.records.sources.excel import WORKBOOKS, excel_table
from eigenveil_client.records.sources.files_query import FilesQuery
from eigenveil_client.records.sources.view import SelectQuery, View
from eigenveil_client.records.tables.records_config import BED, COMMAS, SQLITE, Dialect, RecordsConfig
from eigenveil_client.records.tables.source import BadRecords, Source

DELIMITED = (".csv", ".tsv", ".txt")
ARROW = (".arrow", ".feather")
ENDINGS = (*DELIMITED, ".csv.gz", *PARQUET, *ARROW, *WORKBOOKS, *SQLITE, BED, *ZARR)


def open_source(config: RecordsConfig) -> Source:
    """Open the records of a site.

    Raises:
        BadRecords: the ending is unknown, or the source cannot be read.
        RequestError: code `bad-config`, a library is not installed.
    """
    if config.source is None:
        return _view(config, PostgresQuery(
            database=config.database, sql=_sql(config), timeout_seconds=config.timeout_seconds
        ))  # fmt: skip
    if config.source.suffix.lower() in SQLITE:
        sql = table(config.table) if config.table else _sql(config)
        return _view(config, SqliteQuery(path=config.source, sql=sql, decimal=config.dialect.decimal))
    plain = _plain(config.source, config.dialect, config.sheet)
    return _view(config, FilesQuery(source=plain, sql=_sql(config))) if config.is_view else plain


def open_table(path: Path) -> Source:
    """Open the records in a file or folder, with default settings. Raises as `open_source`."""
    return open_source(RecordsConfig(source=path))


def _view(config: RecordsConfig, query: SelectQuery) -> View:
    return View(query, config.dialect, config.one_row_per)


def _sql(config: RecordsConfig) -> str:
    """Return the statement, without a final semicolon."""
    text = config.sql
    if config.sql_file is not None:
        try:
            text = config.sql_file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeError):
            raise BadRecords(f"{config.sql_file} cannot be read as UTF-8 text", about="sql") from None
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
