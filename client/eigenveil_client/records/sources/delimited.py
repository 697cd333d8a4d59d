"""Source of delimited text, in batches of named columns of text."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from eigenveil_client.records.sources.text_bytes import ByteStream, opened
from eigenveil_client.records.tables.batches import BATCH_ROWS
from eigenveil_client.records.tables.errors import UNREADABLE, reads
from eigenveil_client.records.tables.lost import LostLines, LostPlaces, LostReason
from eigenveil_client.records.tables.row_hashes import RowHashes
from eigenveil_client.records.tables.source import (
    BadRecords,
    Dialect,
    OnLost,
    check_units,
    digest,
    places_of,
    unreadable,
)

SEPARATORS = (";", "\t", "|", ",")
BLOCK_BYTES = 4 * 2**20


class _Line(NamedTuple):
    """A nonempty line of a file: its number (from 1), its bytes as characters, and why it is lost, if so."""

    number: int
    text: str
    lost: LostReason | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """Result of a pass over the lines of a file before it is read. `filled`: the number of nonempty lines
    from the header on. `skipped`: the bytes before it. `longest`: the bytes of the longest. `lost`: the lost
    lines."""

    filled: int
    skipped: int
    longest: int
    lost: LostPlaces = field(default_factory=LostPlaces)


def _cell(separator: str) -> str:
    """Return a pattern of a cell as Arrow reads it. A quote opens a cell only at its beginning, two quotes
    within are one, and text after the closing quote belongs to the cell."""
    mark = re.escape(separator)
    return rf'(?:"(?:[^"]++|"")*+"[^{mark}]*+|[^"{mark}][^{mark}]*+|)'


def _is_utf8(text: str) -> bool:
    """Return True if a line, whose bytes are characters, is UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode("latin-1").decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvTable:
    """Delimited text with one header line, below it a line of `units` if there is one, and one record a line;
    every cell is text. A cell must not span lines: an open quote would swallow the records behind it, and a
    text with line breaks could pass for several records. Such a file is refused. A line is lost if it has not
    the number of cells of the header, or bytes that are invalid in the encoding: a letter that is replaced
    could make two persons one."""

    path: Path
    dialect: Dialect
    headers: tuple[str, ...]
    header_line: int = 1
    units: bool = False

    def schema(self) -> pa.Schema:
        return pa.schema([(header, pa.string()) for header in self.headers])

    def digest(self) -> bytes:
        return digest(self.path)

    def batches(self, headers: list[str], on_lost: OnLost | None) -> Iterator[pa.RecordBatch]:
        rows = 0
        try:
            found = self._scan()
            if found.lost.total and on_lost is None:
                raise self._lost_error(found)
            # Arrow refuses a header without a line break
            for batch in self._reader(headers, found) if found.filled > 1 else ():
                rows += batch.num_rows
                yield batch
            if rows == found.filled - found.lost.total - 1:
                if on_lost is not None and found.lost.total:
                    on_lost(found.lost.total)
                return
            problem = self._spanning("")
        except MemoryError:
            raise
        except UNREADABLE:
            problem = BadRecords(f"{self.path} cannot be read as delimited text")
        raise problem  # not chained, as Arrow's message quotes the line

    def lost_lines(self) -> tuple[LostLines, ...]:
        """See `Source.lost_lines`. Raises as `batches`."""
        with reads(self.path):
            found = self._scan()
        return found.lost.lost({number: f"line {number}" for number in found.lost.numbers})

    def repeated_lines(self) -> int | None:
        """Return the number of lines that equal an earlier one, lost ones included; None if there are too
        many lines to compare."""
        hashes = RowHashes()
        with reads(self.path):
            texts = (hash(line.text) for line in islice(self._lines(), 1, None))
            while part := list(islice(texts, BATCH_ROWS)):
                hashes.add(np.array(part, dtype=np.int64).view(np.uint64))
        return hashes.repeated

    def check_separator(self) -> None:
        """Raise an error if the file has one column because it is separated by another mark than stated."""
        if len(self.headers) > 1:
            return
        own = self.dialect.separator
        for mark in SEPARATORS:
            if mark != own and mark in self.headers[0] and self._most_contain(mark):
                seen = f"its header and most of its lines contain {mark!r}"
                todo = f"State separator = {json.dumps(mark)} under [records]"
                raise BadRecords(f"{self.path} has one column between {own!r}, but {seen}. {todo}")

    def _most_contain(self, mark: str) -> bool:
        """Return True if more than half of the lines contain a mark, or there is no line."""
        with reads(self.path):
            found = [mark in line.text for line in islice(self._lines(), 1, None)]
        return 2 * sum(found) > len(found) or not found

    def _spanning(self, where: str) -> BadRecords:
        return BadRecords(
            f"{self.path}: a quoted cell spans lines{where}. Write every record on one line", about="quotes"
        )

    def _lost_error(self, found: _Scan) -> BadRecords:
        number = found.lost.numbers[0]
        reason = next(line.lost for line in self._lines() if line.number == number)
        if reason is LostReason.BYTES:
            why = f"has bytes that are not {self.dialect.encoding}. Save it as UTF-8, or state its encoding"
        else:
            why = f"has not {len(self.headers)} cells, as the header has. Correct the line"
        return BadRecords(f"{self.path}, line {number}: the line {why}")

    def _characters(self) -> TextIO:
        """Return the bytes of the file, each as one character."""
        return io.TextIOWrapper(opened(self.path, self.dialect.encoding), encoding="latin-1")

    def _lines(self) -> Iterator[_Line]:
        """Yield the nonempty lines from the header on, which is never lost, without the one of units."""
        marks, separator, filled = len(self.headers) - 1, self.dialect.separator, 0
        cell = _cell(separator)
        whole = re.compile(f"{cell}(?:{re.escape(separator)}{cell}){{{marks}}}")
        with self._characters() as file:
            for number, line in enumerate(islice(file, self.header_line - 1, None), self.header_line):
                text = line.removesuffix("\n")
                if not text:
                    continue
                filled += 1
                if self.units and filled == 2:
                    continue
                fits = text.count(separator) == marks if '"' not in text else bool(whole.fullmatch(text))
                if filled == 1:
                    lost = None
                elif not fits:
                    lost = LostReason.MANY_CELLS if whole.match(text) else LostReason.FEW_CELLS
                elif not _is_utf8(text):
                    lost = LostReason.BYTES
                else:
                    lost = None
                yield _Line(number, text, lost)

    def _scan(self) -> _Scan:
        """Raises BadRecords: a line has an open quote."""
        marks, separator = len(self.headers) - 1, self.dialect.separator
        filled, longest, plain = 0, 0, True
        with self._characters() as file:
            skipped = sum(len(line) + 1 for line in islice(file, self.header_line - 1))
            for line in file:  # fast, as nearly every file has plain lines alone
                if line != "\n":
                    filled += 1
                    if filled == 2 and self.units:
                        continue
                    plain = plain and line.count(separator) == marks and '"' not in line
                    plain = plain and (line.isascii() or _is_utf8(line))
                    if len(line) > longest:
                        longest = len(line)
        filled -= self.units and filled > 1
        if plain:
            return _Scan(filled=filled, skipped=skipped, longest=longest)
        cell, lost = _cell(separator), LostPlaces()
        closed = re.compile(f"{cell}(?:{re.escape(separator)}{cell})*+")
        for number, text, reason in self._lines():
            if reason is not None:
                lost.add(reason, [number])
                if not closed.fullmatch(text):
                    raise self._spanning(f" (line {number})")
        return _Scan(filled=filled, skipped=skipped, longest=longest, lost=lost)

    def _reader(self, headers: list[str], found: _Scan) -> Iterator[pa.RecordBatch]:
        by_line = found.lost.total > 0 or self.units
        whole_lines = (line.text.encode("latin-1") + b"\n" for line in self._lines() if line.lost is None)
        with (
            ByteStream(whole_lines) if by_line else opened(self.path, self.dialect.encoding) as source,
            arrow_csv.open_csv(
                source,
                read_options=arrow_csv.ReadOptions(
                    # a line longer than two blocks is an error, and all that is skipped is in the first
                    block_size=max(BLOCK_BYTES, found.skipped + found.longest + 2),
                    skip_rows=0 if by_line else self.header_line - 1,
                ),
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

    def locations(self, rows: Sequence[int]) -> list[str]:
        numbers = (line.number for line in self._lines() if line.lost is None)
        next(numbers)  # the header
        return places_of(rows, (f"line {number}" for number in numbers))


def csv_headers(path: Path, dialect: Dialect, header_line: int = 1, units: bool = False) -> tuple[str, ...]:
    """Return the names in the header, the first nonempty line from `header_line` on, with `units` below it
    or not."""
    stated = "first line" if header_line == 1 else f"header (from line {header_line} on)"
    try:
        # text is decoded in blocks, and bytes of later records must not matter
        file = opened(path, dialect.encoding)
        with io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="") as text:
            lines = islice(text, header_line - 1, None)
            rows = filter(None, csv.reader(lines, delimiter=dialect.separator))
            headers = next(rows, [])
            for cells in islice(rows, int(units)):
                check_units(cells, f"{path}: the line below the header")
        "".join(headers).encode()
    except UnicodeEncodeError:
        why = f"is not {dialect.encoding} text. Save it as UTF-8, or state its encoding"
        raise BadRecords(f"the {stated} of {path} {why}") from None
    except (csv.Error, *UNREADABLE):
        raise unreadable(path) from None
    if not headers:
        raise BadRecords(f"{path} is empty. Its {stated} must name the columns")
    return tuple(headers)
