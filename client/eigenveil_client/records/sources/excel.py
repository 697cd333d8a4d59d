"""A sheet of an Excel or OpenDocument workbook, read by calamine; every cell is text, as in a CSV file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eigenveil_client.records.sources.plain_cells import text_batches, text_of, text_schema
from eigenveil_client.records.tables.dialect import Dialect
from eigenveil_client.records.tables.digest import digest
from eigenveil_client.records.tables.table import BadRecords, LeaveOut
from eigenveil_common.command import needing

if TYPE_CHECKING:
    from python_calamine import CalamineSheet

WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcelTable:
    """The first row that holds anything names the columns, every other such row is a record. A sheet holds at
    most 2^20 rows, and lies in memory as a whole while it is read."""

    path: Path
    sheet: str
    dialect: Dialect
    headers: tuple[str, ...]

    def schema(self) -> pa.Schema:
        return text_schema(self.headers)

    def digest(self) -> bytes:
        return digest(self.path)

    def batches(self, headers: list[str], leave_out: LeaveOut | None) -> Iterator[pa.RecordBatch]:
        """See `Source.batches`; every row of a sheet has every cell."""
        places = [self.headers.index(header) for header in headers]
        rows = ([row[place] for place in places] for _, row in self._records())
        yield from text_batches(headers, rows, self.dialect.decimal)

    def _records(self) -> Iterator[tuple[int, Sequence[Any]]]:
        filled = _filled(_sheet(self.path, self.sheet))
        next(filled, None)
        return filled

    def place(self, row: int, *, whole: bool = True) -> str:
        numbers = (number for number, _ in self._records())
        return f"row {next(number for at, number in enumerate(numbers) if at == row)}"


def excel_table(path: Path, sheet: str, dialect: Dialect) -> ExcelTable:
    """The sheet named `sheet`, or the only one if that is empty.

    Raises:
        BadRecords: it cannot be read, has no such sheet, or it is not clear which.
    """
    _, cells = next(_filled(_sheet(path, sheet)), (0, ()))
    if not cells:
        raise BadRecords(f"{path} is empty; its first row must name the columns")
    headers = tuple((text_of(cell) or b"").decode(errors="replace") for cell in cells)
    return ExcelTable(path=path, sheet=sheet, dialect=dialect, headers=headers)


def _filled(sheet: CalamineSheet) -> Iterator[tuple[int, Sequence[Any]]]:
    """Rows that hold anything, with their numbers in the sheet."""
    return ((number, row) for number, row in enumerate(sheet.iter_rows(), 1) if any(c != "" for c in row))


def _sheet(path: Path, name: str) -> CalamineSheet:
    with needing("sources"):  # a site whose records are a CSV or Parquet file has no such library
        from python_calamine import CalamineError, CalamineWorkbook
    try:
        with CalamineWorkbook.from_path(path) as book:
            names = book.sheet_names
            if name in names or (not name and len(names) == 1):
                return book.get_sheet_by_name(name or names[0])
    except (CalamineError, OSError):
        raise BadRecords(f"{path} cannot be read as a workbook; check that it exists and is whole") from None
    wanted = f"no sheet {name!r}" if name else f"{len(names)} sheets"
    raise BadRecords(f"{path} has {wanted}; name one in `sheet`: {', '.join(names)}", about="sheet")
