"""A CSV or Parquet file as batches of named columns: text from CSV, typed from Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from eigenveil.errors import Code, RequestError

UNREADABLE = (pa.ArrowException, OSError, UnicodeError, LookupError)
BLOCK_BYTES = 4 * 2**20
BATCH_ROWS = 65_536


class BadRecords(RequestError):
    """Records that do not do, code `bad-data`.

    `about` is a column or one fixed word: the message may name lines, a daemon's log may not.
    """

    def __init__(self, message: str, *, about: str = "file") -> None:
        super().__init__(Code.BAD_DATA, message)
        self.about = about


class Table(Protocol):
    """A file of records that can be read again and again."""

    @property
    def headers(self) -> tuple[str, ...]:
        """The names of its columns, as the file writes them."""

    def batches(self, headers: list[str]) -> Iterator[pa.RecordBatch]:
        """These columns, in this order, in pieces that keep the file's order of rows."""

    def place(self, row: int) -> str:
        """Where a person finds row `row` (from 0): "line 7"."""


def open_table(path: Path) -> Table:
    """The table in `path`; its ending says which kind it is.

    Raises:
        BadRecords: an unknown ending or an unreadable file.
    """
    match path.suffix.lower():
        case ".csv":
            return CsvTable(path=path, headers=_csv_headers(path))
        case ".parquet" | ".pq":
            return ParquetTable(path=path, headers=_parquet_headers(path))
        case other:
            raise BadRecords(f"{path}: records are read from .csv or .parquet files, not {other!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvTable:
    """Comma-separated UTF-8 text with one header line and one record a line; every cell is text here.

    A cell must not span lines: an opened quote would swallow the records behind it, so that one record
    decided about others. Such a file is refused.
    """

    path: Path
    headers: tuple[str, ...]

    def batches(self, headers: list[str]) -> Iterator[pa.RecordBatch]:
        """See `Table.batches`."""
        rows = 0
        try:
            for batch in self._reader(headers):
                rows += batch.num_rows
                yield batch
            if rows == self._lines() - 1:
                return
            problem = BadRecords(
                f"{self.path}: a quoted cell spans lines{self._odd_quote()}; every record must be one line",
                about="quotes",
            )
        except UNREADABLE:
            problem = self._ragged()
        raise problem  # not chained: Arrow's message quotes the line

    def _lines(self) -> int:
        """Lines that hold anything, the header among them."""
        with self.path.open(encoding="latin-1") as file:
            return sum(line != "\n" for line in file)

    def _odd_quote(self) -> str:
        """Where a quote is opened and not closed: " (line 7)"."""
        with self.path.open(encoding="latin-1") as file:
            odd = (number for number, line in enumerate(file, 1) if line.count('"') % 2)
            first = next(odd, None)
        return "" if first is None else f" (line {first})"

    def _reader(self, headers: list[str]) -> Iterator[pa.RecordBatch]:
        reader = arrow_csv.open_csv(
            self.path,
            read_options=arrow_csv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=headers,
                column_types={header: pa.string() for header in headers},
                strings_can_be_null=False,
            ),
        )
        with reader:
            yield from reader

    def _ragged(self) -> BadRecords:
        """What is wrong with a file that cannot be parsed, said without its content."""
        try:
            with self.path.open(newline="", encoding="utf-8-sig") as file:
                rows = csv.reader(file)
                for cells in rows:
                    if cells and len(cells) != len(self.headers):
                        return BadRecords(
                            f"{self.path}, line {rows.line_num}: {len(cells)} cells under "
                            f"{len(self.headers)} headers; mend the line"
                        )
        except UnicodeDecodeError:
            return BadRecords(f"{self.path} is not UTF-8 text; save it as UTF-8")
        except (csv.Error, OSError):
            pass  # the sentence below covers it
        return BadRecords(f"{self.path} cannot be read as comma-separated text")

    def place(self, row: int) -> str:
        """See `Table.place`; a quoted cell may span lines, so lines are counted as a CSV reader does."""
        with self.path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            rows = csv.reader(file)
            filled = (rows.line_num for cells in rows if cells)
            with suppress(csv.Error, StopIteration):  # it and Arrow disagree about the lines before
                return f"line {next(islice(filled, row + 1, None))}"
        return f"record {row + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetTable:
    """A Parquet file."""

    path: Path
    headers: tuple[str, ...]

    def batches(self, headers: list[str]) -> Iterator[pa.RecordBatch]:
        """See `Table.batches`."""
        try:
            with parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=headers):
                    yield batch.select(headers)
        except UNREADABLE:
            problem = _unreadable(self.path)
        else:
            return
        raise problem

    def place(self, row: int) -> str:
        """See `Table.place`."""
        return f"row {row + 1}"


def _csv_headers(path: Path) -> tuple[str, ...]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            headers = next((cells for cells in csv.reader(file) if cells), [])
    except UnicodeDecodeError:
        raise BadRecords(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except (csv.Error, OSError):
        raise _unreadable(path) from None
    if not headers:
        raise BadRecords(f"{path} is empty; its first line must name the columns")
    return tuple(headers)


def _parquet_headers(path: Path) -> tuple[str, ...]:
    try:
        return tuple(parquet.read_schema(path).names)
    except UNREADABLE:
        raise _unreadable(path) from None


def _unreadable(path: Path) -> BadRecords:
    return BadRecords(f"{path} cannot be read; check that it exists, is whole and readable")
