"""Source of delimited text, in batches of named columns of text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from eigenveil_client.records.sources.delimited_chunks import ChunkParser, OpenQuote, without_top
from eigenveil_client.records.sources.delimited_lines import Line, LineRule, line_chunks
from eigenveil_client.records.sources.text_bytes import opened
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
from eigenveil_common.concurrency import map_ahead

SEPARATORS = (";", "\t", "|", ",")


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvTable:
    """Delimited text with one header line, below it a line of `units` if there is one, and one record a line;
    every cell is text. A cell must not span lines: an open quote would swallow the records behind it, and a
    text with line breaks could pass for several records. Such a file is refused. A line is lost if it has not
    the number of cells of the header, or bytes that are invalid in the encoding: a letter that is replaced
    could make two persons one. Cells of the columns in `numbers` may come as numbers, where they are such."""

    path: Path
    dialect: Dialect
    headers: tuple[str, ...]
    header_line: int = 1
    units: bool = False
    numbers: frozenset[str] = frozenset()

    def schema(self) -> pa.Schema:
        return pa.schema([(header, pa.string()) for header in self.headers])

    def digest(self) -> bytes:
        return digest(self.path)

    def batches(self, headers: list[str], on_lost: OnLost | None) -> Iterator[pa.RecordBatch]:
        separator, lost = self.dialect.separator, 0
        numbers = [header for header in headers if header in self.numbers]
        parser = ChunkParser(self.headers, headers, numbers, separator)
        try:
            with opened(self.path, self.dialect.encoding) as file:
                chunks = without_top(line_chunks(file), self._rule, self.header_line, self.units)
                for parsed in map_ahead(parser.parse, chunks):
                    lost += parsed.lost
                    if lost and on_lost is None:
                        raise self._lost_error()
                    yield parsed.batch
        except OpenQuote:
            problem = self._spanning_error()
        except MemoryError:
            raise
        except UNREADABLE:
            problem = BadRecords(f"{self.path} cannot be read as delimited text")
        else:
            if lost and on_lost is not None:
                on_lost(lost)
            return
        raise problem  # not chained, as Arrow's message quotes the line

    def lost_lines(self) -> tuple[LostLines, ...]:
        """See `Source.lost_lines`. Raises as `batches`."""
        lost = LostPlaces()
        with reads(self.path):
            for number, text, reason in self._lines():
                if reason is not None:
                    lost.add(reason, [number])
                    if self._rule.is_open(text):
                        raise self._spanning(f" (line {number})")
        return lost.lost({number: f"line {number}" for number in lost.numbers})

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
            found = [mark.encode() in line.text for line in islice(self._lines(), 1, None)]
        return 2 * sum(found) > len(found) or not found

    def _spanning(self, where: str) -> BadRecords:
        return BadRecords(
            f"{self.path}: a quoted cell spans lines{where}. Write every record on one line", about="quotes"
        )

    def _spanning_error(self) -> BadRecords:
        """Return the error that names the first line with an open quote."""
        lost = (line for line in self._lines() if line.lost is not None)
        number = next((line.number for line in lost if self._rule.is_open(line.text)), None)
        return self._spanning("" if number is None else f" (line {number})")

    def _lost_error(self) -> BadRecords:
        """Return the error that names the first lost line."""
        first = next(line for line in self._lines() if line.lost is not None)
        if first.lost is LostReason.BYTES:
            why = f"has bytes that are not {self.dialect.encoding}. Save it as UTF-8, or state its encoding"
        else:
            why = f"has not {len(self.headers)} cells, as the header has. Correct the line"
        return BadRecords(f"{self.path}, line {first.number}: the line {why}")

    @property
    def _rule(self) -> LineRule:
        return LineRule(self.dialect.separator, len(self.headers))

    def _lines(self) -> Iterator[Line]:
        """Yield the nonempty lines from the header on, which is never lost, without the one of units."""
        rule, number, filled = self._rule, 0, 0
        with opened(self.path, self.dialect.encoding) as file:
            for line in chain.from_iterable(chunk.splitlines() for chunk in line_chunks(file)):
                number += 1
                if number < self.header_line or not line:
                    continue
                filled += 1
                if self.units and filled == 2:
                    continue
                yield Line(number, line, None if filled == 1 else rule.reason(line))

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
