"""Text files as unpacked bytes of UTF-8, with a limit on their size and on the length of a line."""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from eigenveil_client.records.tables.source import BadRecords

CHUNK = 2**20
MOST_LINE = 2**26  # bytes: a million cells of 60
INVALID = "eigenveil-invalid"  # an error handler
FREE, MOST_TIMES = 2**28, 200  # bytes that any file may unpack to, and a factor of its size for larger ones


def _mark_invalid(problem: UnicodeError) -> tuple[str, int]:
    """Return a character that is no UTF-8, in place of invalid bytes, and where to go on."""
    assert isinstance(problem, UnicodeDecodeError)
    return "\udcff", problem.end


codecs.register_error(INVALID, _mark_invalid)


def opened(path: Path, encoding: str) -> BinaryIO:
    """Open a text file as bytes of UTF-8; a .gz is unpacked. Bytes that are invalid in `encoding` become
    bytes that are no UTF-8 either. Text in UTF-8 is passed on unchecked."""
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
        yield from (
            part.encode(errors="surrogatepass") for part in codecs.iterdecode(chunks, encoding, INVALID)
        )


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
