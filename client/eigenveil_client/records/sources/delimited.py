"""Delimited text as batches of named columns of text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.csv as arrow_csv

from eigenveil_client.records.sources.files import ByteStream, opened
from eigenveil_client.records.tables.dialect import Dialect
from eigenveil_client.records.tables.digest import digest
from eigenveil_client.records.tables.table import UNREADABLE, BadRecords, LeaveOut, unreadable

BLOCK_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """What a pass over the lines of a file finds, before it is read: how many hold anything, the bytes of the
    longest, how many are broken, and the numbers (from 1) of the first of these and the first open quote."""

    filled: int = 0
    longest: int = 0
    broken: int = 0
    first: int = 0
    quote: int = 0


def _line(separator: str, cells: str) -> re.Pattern[str]:
    """A line of cells as Arrow reads them: a quote opens one only at its beginning, two quotes within are
    one, and what stands behind the closing one belongs to the cell. `cells` is how many follow the first."""
    mark = re.escape(separator)
    cell = rf'(?:"(?:[^"]++|"")*+"[^{mark}]*+|[^"{mark}][^{mark}]*+|)'
    return re.compile(f"{cell}(?:{mark}{cell}){cells}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvTable:
    """Delimited text with one header line and one record a line; every cell is text here.

    A cell must not span lines: an opened quote would swallow the records behind it, and lines taken one by
    one would let a text that holds line breaks pass for several records. Such a file is refused.
    """

    path: Path
    dialect: Dialect
    headers: tuple[str, ...]

    def schema(self) -> pa.Schema:
        return pa.schema([(header, pa.string()) for header in self.headers])

    def digest(self) -> bytes:
        return digest(self.path)

    def batches(self, headers: list[str], leave_out: LeaveOut | None) -> Iterator[pa.RecordBatch]:
        rows = 0
        try:
            found = self._scan()
            if found.quote:
                raise self._spanning(f" (line {found.quote})")
            if found.broken and leave_out is None:
                raise BadRecords(
                    f"{self.path}, line {found.first}: not {len(self.headers)} cells, as the header has; "
                    "mend the line"
                )
            for batch in self._reader(headers, found):
                rows += batch.num_rows
                yield batch
            if rows == found.filled - found.broken - 1:
                if leave_out is not None and found.broken:
                    leave_out(found.broken)
                return
            problem = self._spanning("")
        except MemoryError:
            raise
        except UNREADABLE:
            problem = BadRecords(f"{self.path} cannot be read as delimited text")
        raise problem  # not chained: Arrow's message quotes the line

    def _spanning(self, where: str) -> BadRecords:
        return BadRecords(
            f"{self.path}: a quoted cell spans lines{where}; every record must be one line", about="quotes"
        )

    def _characters(self) -> TextIO:
        """The bytes of its lines, each as one character."""
        return io.TextIOWrapper(opened(self.path, self.dialect.encoding), encoding="latin-1")

    def _lines(self) -> Iterator[tuple[int, str, bool]]:
        """Lines that hold anything: the number, the line, and whether it is whole; the header is."""
        marks, separator = len(self.headers) - 1, self.dialect.separator
        cells, header = _line(separator, f"{{{marks}}}"), True
        with self._characters() as file:
            for number, line in enumerate(file, 1):
                text = line.removesuffix("\n")
                if not text:
                    continue
                if header or '"' not in text:
                    whole = header or text.count(separator) == marks
                else:
                    whole = cells.fullmatch(text) is not None
                header = False
                yield number, text, whole

    def _scan(self) -> _Scan:
        marks, filled, longest, plain = len(self.headers) - 1, 0, 0, True
        separator = self.dialect.separator
        with self._characters() as file:
            for line in file:  # as fast as Python can: nearly every file holds plain lines alone
                if line != "\n":
                    filled += 1
                    plain = plain and line.count(separator) == marks and '"' not in line
                    if len(line) > longest:
                        longest = len(line)
        if plain:
            return _Scan(filled=filled, longest=longest)
        closed = _line(separator, "*+")
        broken = [(number, text) for number, text, whole in self._lines() if not whole]
        return _Scan(
            filled=filled,
            longest=longest,
            broken=len(broken),
            first=next((number for number, _ in broken), 0),
            quote=next((number for number, text in broken if not closed.fullmatch(text)), 0),
        )

    def _reader(self, headers: list[str], found: _Scan) -> Iterator[pa.RecordBatch]:
        kept = (text.encode("latin-1") + b"\n" for _, text, whole in self._lines() if whole)
        with (
            ByteStream(kept) if found.broken else opened(self.path, self.dialect.encoding) as source,
            arrow_csv.open_csv(
                source,
                # A line that is longer than two blocks is an error.
                read_options=arrow_csv.ReadOptions(block_size=max(BLOCK_BYTES, found.longest + 2)),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self.dialect.separator, newlines_in_values=True
                ),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=headers,
                    column_types={header: pa.string() for header in headers},
                    strings_can_be_null=False,
                    check_utf8=False,
                ),
            ) as reader,
        ):
            yield from reader

    def place(self, row: int, *, whole: bool = True) -> str:
        lines = (number for number, _, fits in self._lines() if fits is whole)
        return f"line {next(islice(lines, row + whole, None))}"  # the header is a whole line, too


def csv_headers(path: Path, dialect: Dialect) -> tuple[str, ...]:
    """The names in the first line.

    Raises:
        BadRecords: there are none, or the file cannot be read.
    """
    try:
        # Text is decoded in blocks: bytes of a record below must not matter.
        file = opened(path, dialect.encoding)
        with io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="") as text:
            headers = next((cells for cells in csv.reader(text, delimiter=dialect.separator) if cells), [])
        "".join(headers).encode()
    except UnicodeEncodeError:
        raise BadRecords(
            f"the first line of {path} is not UTF-8 text; save it as UTF-8, or state its encoding"
        ) from None
    except (csv.Error, *UNREADABLE):
        raise unreadable(path) from None
    if not headers:
        raise BadRecords(f"{path} is empty; its first line must name the columns")
    return tuple(headers)
