"""Source of a sheet of an Excel or OpenDocument workbook, read by calamine; every cell is text."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eigenveil_client.records.tables.batches import text_batches, text_of, text_schema
from eigenveil_client.records.tables.lost import LostLines
from eigenveil_client.records.tables.source import (
    BadRecords,
    Dialect,
    OnLost,
    check_units,
    content_of,
    digest,
    places_of,
)
from eigenveil_common.command import require_extra

if TYPE_CHECKING:
    from python_calamine import CalamineSheet, CalamineWorkbook

MOST_PARTS, MOST_UNPACKED = 2**14, 2**31  # files in a workbook, and their bytes
SHEETS, HEAD = "xl/worksheets/", 2**12
DIMENSION = re.compile(rb'<dimension ref="([A-Z]{1,3})([0-9]{1,7}):([A-Z]{1,3})([0-9]{1,7})"')
FEW_CELLS = 2**24
UNREADABLE = "cannot be read as a workbook. Check that it exists and is complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcelTable:
    """Sheet whose first nonempty row from `header_line` on names the columns; every later nonempty row is a
    record, but the first if it has `units`. A sheet has at most 2^20 rows, and is in memory as a whole while
    it is read."""

    path: Path
    sheet: str
    dialect: Dialect
    headers: tuple[str, ...]
    header_line: int = 1
    units: bool = False

    def schema(self) -> pa.Schema:
        return text_schema(self.headers)

    def digest(self) -> bytes:
        return digest(self.path)

    def batches(self, headers: list[str], on_lost: OnLost | None) -> Iterator[pa.RecordBatch]:
        indices = [self.headers.index(header) for header in headers]
        rows = ([row[index] for index in indices] for _, row in self._records())
        yield from text_batches(headers, rows, self.dialect.decimal)

    def _records(self) -> Iterator[tuple[int, Sequence[Any]]]:
        filled = _filled(_sheet(self.path, self.sheet), self.header_line)
        return islice(filled, 1 + self.units, None)

    def lost_lines(self) -> tuple[LostLines, ...]:
        return ()

    def locations(self, rows: Sequence[int]) -> list[str]:
        return places_of(rows, (f"row {number}" for number, _ in self._records()))


def excel_table(
    path: Path, sheet: str, dialect: Dialect, header_line: int = 1, units: bool = False
) -> ExcelTable:
    """Open the sheet named `sheet`, or the only one if that is empty; BadRecords if there is none such."""
    rows = _filled(_sheet(path, sheet), header_line)
    _, cells = next(rows, (0, ()))
    if not cells:
        stated = "first row" if header_line == 1 else f"header (from row {header_line} on)"
        raise BadRecords(f"{path} is empty. Its {stated} must name the columns")
    for number, row in islice(rows, int(units)):
        check_units(_texts(row), f"{path}: row {number}")
    return ExcelTable(
        path=path, sheet=sheet, dialect=dialect, headers=tuple(_texts(cells)), header_line=header_line,
        units=units,
    )  # fmt: skip


def head_rows(path: Path, sheet: str, most: int) -> list[tuple[int, list[str]]]:
    """Return the first nonempty rows of a sheet as text, with their numbers; at most `most`. Raises as
    `excel_table`."""
    rows = islice(_filled(_sheet(path, sheet), 1), most)
    return [(number, _texts(row)) for number, row in rows]


def _texts(row: Sequence[Any]) -> list[str]:
    return [(text_of(cell) or b"").decode(errors="replace") for cell in row]


def sheet_names(path: Path) -> tuple[str, ...]:
    """Return the names of the sheets of a workbook. Raises BadRecords: it cannot be read."""
    with _workbook(path) as book:
        return tuple(book.sheet_names)


def _filled(sheet: CalamineSheet, first: int) -> Iterator[tuple[int, Sequence[Any]]]:
    """Return the nonempty rows from row `first` on, with their numbers in the sheet."""
    numbered = islice(enumerate(sheet.iter_rows(), 1), first - 1, None)
    return ((number, row) for number, row in numbered if any(c != "" for c in row))


def _check_packed(path: Path) -> None:
    """Raise an error if a workbook unpacks to too much, or a sheet states more cells than it has bytes. This
    is checked before any cell is read."""
    if not zipfile.is_zipfile(path):  # an .xls is not a zip file
        return
    try:
        with zipfile.ZipFile(path) as parts:
            found = parts.infolist()
            if len(found) > MOST_PARTS or sum(one.file_size for one in found) > MOST_UNPACKED:
                raise BadRecords(f"{path} unpacks to over {MOST_UNPACKED // 2**20} MiB. Save it as Parquet")
            for one in found:
                if one.filename.startswith(SHEETS):
                    with parts.open(one) as sheet:
                        _check_dimension(path, sheet.read(HEAD), one.file_size)
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, NotImplementedError, RuntimeError):
        raise BadRecords(f"{path} {UNREADABLE}") from None


def _check_dimension(path: Path, head: bytes, size: int) -> None:
    stated = DIMENSION.search(head)
    if stated is None:
        return
    left, top, right, bottom = stated.groups()
    first, last = (reduce(lambda number, letter: 26 * number + letter - 64, one, 0) for one in (left, right))
    rows, columns = int(bottom) - int(top) + 1, last - first + 1  # column A is 1, XFD is 16384
    if rows * columns > max(FEW_CELLS, size):
        stated_size = f"a sheet states {rows} rows of {columns} columns, far more than it has cells"
        todo = "Delete the cells far outside of the table, and save it again"
        raise BadRecords(f"{path}: {stated_size}. {todo}")


@contextmanager
def _workbook(path: Path) -> Iterator[CalamineWorkbook]:
    with require_extra("sources"):  # only sites with workbooks have this library
        from python_calamine import CalamineError, CalamineWorkbook
    _check_packed(path)
    try:
        with CalamineWorkbook.from_path(path) as book:
            yield book
    except (CalamineError, OSError):
        content = content_of(path)
        why = f"cannot be read as a workbook: {content}" if content else UNREADABLE
        raise BadRecords(f"{path} {why}") from None


def _sheet(path: Path, name: str) -> CalamineSheet:
    with _workbook(path) as book:
        names = book.sheet_names
        if name in names or (not name and len(names) == 1):
            return book.get_sheet_by_name(name or names[0])
    wanted = f"no sheet {name!r}" if name else f"{len(names)} sheets"
    raise BadRecords(f"{path} has {wanted}. Name one in `sheet`: {', '.join(names)}", about="sheet")
