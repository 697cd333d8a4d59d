"""Source of delimited text, in batches of named columns of text.

Files are read as unpacked bytes of UTF-8, with a limit on their size."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import pyarrow as pa
import pyarrow.csv as arrow_csv

from eigenveil_client.records.tables.source import (
    UNREADABLE,
    BadRecords,
    Dialect,
    LeaveOut,
    digest,
    unreadable,
)

CHUNK = 2**20
MOST_LINE = 2**26  # bytes: a million cells of 60
FREE, MOST_TIMES = 2**28, 200  # bytes that any file may unpack to, and a factor of its size for larger ones


def opened(path: Path, encoding: str) -> BinaryIO:
    """Open a text file as bytes of UTF-8; a .gz is unpacked. Each byte that is invalid in `encoding` becomes
    U+FFFD. Text in UTF-8 is passed on unchecked."""
    if codecs.lookup(encoding).name == "utf-8":
        return _unpacked(path)
    return io.BufferedReader(ByteStream(_recoded(path, encoding)), CHUNK)


def _unpacked(path: Path) -> BinaryIO:
    packed = path.suffix.lower() == ".gz"
    raw = cast(BinaryIO, gzip.GzipFile(path)) if packed else path.open("rb", buffering=0)
    most = max(FREE, MOST_TIMES * path.stat().st_size) if packed else None
    return io.BufferedReader(_Bounded(raw, path, most), CHUNK)


class _Bounded(io.RawIOBase):
    """The bytes of `raw`; BadRecords if there are more than `most`, or a line is too long."""

    def __init__(self, raw: BinaryIO, path: Path, most: int | None) -> None:
        super().__init__()
        self._raw, self._path, self._most = raw, path, most
        self._size = self._line = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into `buffer`; 0 at the end."""
        count: int = self._raw.readinto(buffer)  # type: ignore[attr-defined]
        data = bytes(memoryview(buffer)[:count])
        last = data.rfind(b"\n")
        self._size += count
        longest = self._line + (data.find(b"\n") if last >= 0 else count)
        self._line = self._line + count if last < 0 else count - last - 1
        if self._most is not None and self._size > self._most:
            why = f"unpacks to over {MOST_TIMES} times its size, so it may not hold records"
            raise BadRecords(f"{self._path} {why}. Save it without compression")
        if longest > MOST_LINE:
            size = f"a line has over {MOST_LINE // 2**20} MiB"
            raise BadRecords(f"{self._path}: {size}. Write every record on one line")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _recoded(path: Path, encoding: str) -> Iterator[bytes]:
    with _unpacked(path) as file:
        chunks = iter(partial(file.read, CHUNK), b"")
        yield from (part.encode(errors="replace") for part in codecs.iterdecode(chunks, encoding, "replace"))


class ByteStream(io.RawIOBase):
    """File of chunks of bytes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = filter(None, chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as there are chunks; 0 at the end."""
        pieces = [self._rest]
        size = len(self._rest)
        while size < len(buffer) and (chunk := next(self._chunks, b"")):
            pieces.append(chunk)
            size += len(chunk)
        data = b"".join(pieces)
        count = min(len(buffer), len(data))
        buffer[:count], self._rest = data[:count], data[count:]
        return count


BLOCK_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """Result of a pass over the lines of a file before it is read. `filled`: the number of nonempty lines.
    `longest`: the bytes of the longest. `broken`: the number of broken lines. `first`, `quote`: the numbers
    (from 1) of the first broken line and the first open quote."""

    filled: int = 0
    longest: int = 0
    broken: int = 0
    first: int = 0
    quote: int = 0


def _line(separator: str, cells: str) -> re.Pattern[str]:
    """Return a pattern of a line of cells as Arrow reads them. `cells`: the number of cells after the first.
    A quote opens a cell only at its beginning, two quotes within are one, and text after the closing quote
    belongs to the cell."""
    mark = re.escape(separator)
    cell = rf'(?:"(?:[^"]++|"")*+"[^{mark}]*+|[^"{mark}][^{mark}]*+|)'
    return re.compile(f"{cell}(?:{mark}{cell}){cells}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvTable:
    """Delimited text with one header line and one record a line; every cell is text. A cell must not span
    lines: an open quote would swallow the records behind it, and a text with line breaks could pass for
    several records. Such a file is refused."""

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
                    f"{self.path}, line {found.first}: the line has not {len(self.headers)} cells, as the "
                    "header has. Correct the line"
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
        raise problem  # not chained, as Arrow's message quotes the line

    def _spanning(self, where: str) -> BadRecords:
        return BadRecords(
            f"{self.path}: a quoted cell spans lines{where}. Write every record on one line", about="quotes"
        )

    def _characters(self) -> TextIO:
        """Return the bytes of the file, each as one character."""
        return io.TextIOWrapper(opened(self.path, self.dialect.encoding), encoding="latin-1")

    def _lines(self) -> Iterator[tuple[int, str, bool]]:
        """Yield the nonempty lines: the number, the line, and True if it is whole, as the header is."""
        marks, separator = len(self.headers) - 1, self.dialect.separator
        cells, header = _line(separator, f"{{{marks}}}"), True
        with self._characters() as file:
            for number, line in enumerate(file, 1):
                text = line.removesuffix("\n")
                if not text:
                    continue
                plain = '"' not in text
                whole = text.count(separator) == marks if plain else cells.fullmatch(text) is not None
                yield number, text, whole or header
                header = False

    def _scan(self) -> _Scan:
        marks, separator = len(self.headers) - 1, self.dialect.separator
        filled, longest, plain = 0, 0, True
        with self._characters() as file:
            for line in file:  # fast, as nearly every file has plain lines alone
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
        whole_lines = (text.encode("latin-1") + b"\n" for _, text, whole in self._lines() if whole)
        with (
            ByteStream(whole_lines) if found.broken else opened(self.path, self.dialect.encoding) as source,
            arrow_csv.open_csv(
                source,
                # a line longer than two blocks is an error
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

    def location(self, row: int, *, whole: bool = True) -> str:
        lines = (number for number, _, fits in self._lines() if fits is whole)
        return f"line {next(islice(lines, row + whole, None))}"  # the header is a whole line as well


def csv_headers(path: Path, dialect: Dialect) -> tuple[str, ...]:
    """Return the names in the first line."""
    try:
        # text is decoded in blocks, and bytes of later records must not matter
        file = opened(path, dialect.encoding)
        with io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="") as text:
            headers = next((cells for cells in csv.reader(text, delimiter=dialect.separator) if cells), [])
        "".join(headers).encode()
    except UnicodeEncodeError:
        why = "is not UTF-8 text. Save it as UTF-8, or state its encoding"
        raise BadRecords(f"the first line of {path} {why}") from None
    except (csv.Error, *UNREADABLE):
        raise unreadable(path) from None
    if not headers:
        raise BadRecords(f"{path} is empty. Its first line must name the columns")
    return tuple(headers)
