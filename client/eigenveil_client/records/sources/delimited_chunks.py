"""Chunks of delimited text, read by Arrow in parallel. A line is judged by itself, so chunks of whole lines
are independent. Arrow refuses lines of a wrong number of cells; only chunks with quotes or invalid bytes are
looked at line by line first."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from eigenveil_client.records.sources.delimited_lines import LineRule, is_utf8
from eigenveil_client.records.tables.codes import MISSING

NULLS = sorted(
    {"".join(case) for word in MISSING for case in product(*zip(word.lower(), word.upper(), strict=True))}
)


class OpenQuote(Exception):
    """A quoted cell does not end in its line."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParsedChunk:
    """The records of a chunk, and its number of lost lines."""

    batch: pa.RecordBatch
    lost: int


def without_top(chunks: Iterable[bytes], rule: LineRule, header_line: int, units: bool) -> Iterator[bytes]:
    """Yield chunks without the lines up to the header, the first nonempty one from `header_line` on, and
    without the units below it. Raises OpenQuote: a quoted cell of the header does not end there."""
    number, filled, top = 0, 0, 1 + units
    for chunk in chunks:
        begin = 0
        for line in chunk.splitlines(keepends=True) if filled < top else ():
            number, begin = number + 1, begin + len(line)
            text = line.rstrip(b"\r\n")
            if number >= header_line and text:
                filled += 1
                if filled == 1 and rule.is_open(text):
                    raise OpenQuote
            if filled == top:
                break
        yield chunk[begin:]


class ChunkParser:
    """Parser of chunks into the columns `headers` of a text with the columns `every`. All cells are text, but
    for those of `numbers`, which are float64 wherever Arrow reads all of a chunk as numbers or as missing."""

    def __init__(
        self, every: Sequence[str], headers: Sequence[str], numbers: Iterable[str], separator: str
    ) -> None:
        self._rule = LineRule(separator, len(every))
        self._places = [str(every.index(header)) for header in headers]  # names may be repeated
        self._names, self._headers, self._separator = [*map(str, range(len(every)))], list(headers), separator
        self._numbers = {str(every.index(header)) for header in numbers}

    def parse(self, chunk: bytes) -> ParsedChunk:
        """Return the records of a chunk. May be called in several threads.

        Raises:
            OpenQuote: a line has an open quote, or Arrow sees other lines than these.
            pa.ArrowException: it cannot be read."""
        dropped, lines = 0, None
        if b'"' in chunk or not is_utf8(chunk):
            chunk, lines, dropped = self._only_records(chunk)
        batch, refused = self._read(chunk)
        if lines is not None and (refused or batch.num_rows != lines):
            raise OpenQuote
        return ParsedChunk(batch=batch, lost=dropped + refused)

    def _only_records(self, chunk: bytes) -> tuple[bytes, int, int]:
        """Return a chunk without its lost lines, the number of lines left, and of those lost."""
        found = [line for line in chunk.splitlines() if line]
        lost = [line for line in found if self._rule.reason(line) is not None]
        if any(map(self._rule.is_open, lost)):
            raise OpenQuote
        if not lost:
            return chunk, len(found), 0
        records = [line for line in found if self._rule.reason(line) is None]
        return b"".join(line + b"\n" for line in records), len(records), len(lost)

    def _read(self, chunk: bytes) -> tuple[pa.RecordBatch, int]:
        """Return the rows of a chunk, and the number of lines with a wrong number of cells."""
        with suppress(pa.ArrowInvalid):  # a cell is not a number
            return self._typed(chunk, self._numbers)
        rows, refused = self._typed(chunk, ())
        # so that the next chunks are read once
        self._numbers = {
            place for place in self._numbers if _are_numbers(rows.column(self._places.index(place)))
        }
        return rows, refused

    def _typed(self, chunk: bytes, numbers: Iterable[str]) -> tuple[pa.RecordBatch, int]:
        refused = 0

        def refuse(row: arrow_csv.InvalidRow) -> str:
            nonlocal refused
            refused += 1
            return "skip"

        types = dict.fromkeys(self._places, pa.string()) | dict.fromkeys(numbers, pa.float64())
        if not chunk.strip(b"\r\n"):
            return _empty([types[place] for place in self._places], self._headers), 0
        if chunk.startswith(BOM_UTF8):  # Arrow drops one, so a line's cells depended on the lines before it
            chunk = BOM_UTF8 + chunk
        found = arrow_csv.read_csv(
            pa.BufferReader(chunk),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=len(chunk) + 1, column_names=self._names
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._separator, newlines_in_values=True, invalid_row_handler=refuse
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=self._places,
                column_types=types,
                null_values=NULLS,
                strings_can_be_null=False,
                check_utf8=False,
            ),
        ).combine_chunks()
        batches = found.to_batches() or [_empty(found.schema.types, self._headers)]
        return batches[0].rename_columns(self._headers), refused


def _empty(types: Sequence[pa.DataType], names: Sequence[str]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([], one) for one in types], names=list(names))


def _are_numbers(cells: pa.Array) -> bool:
    """Return True if cells of text are numbers or missing."""
    missing = pc.is_in(pc.utf8_lower(cells), pa.array(MISSING))
    with suppress(pa.ArrowInvalid):
        pc.cast(pc.if_else(missing, pa.scalar(None, pa.string()), cells), pa.float64())
        return True
    return False
