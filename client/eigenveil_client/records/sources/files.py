"""The bytes of a file of text as UTF-8, unpacked, and no more of them than a file of records can hold."""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from eigenveil_client.records.tables.table import BadRecords

CHUNK = 2**20
MOST_LINE = 2**26  # bytes: a million cells of 60
FREE, MOST_TIMES = 2**28, 200  # bytes that anything may unpack to, and how many times its size a larger file


def opened(path: Path, encoding: str) -> BinaryIO:
    """A file of text as bytes of UTF-8. Bytes that are none in `encoding` become U+FFFD, each by itself; what
    claims to be UTF-8 is handed on as it is. An ending .gz is unpacked."""
    if codecs.lookup(encoding).name == "utf-8":
        return _unpacked(path)
    return io.BufferedReader(ByteStream(_recoded(path, encoding)), CHUNK)


def _unpacked(path: Path) -> BinaryIO:
    packed = path.suffix.lower() == ".gz"
    raw = cast(BinaryIO, gzip.GzipFile(path)) if packed else path.open("rb", buffering=0)
    most = max(FREE, MOST_TIMES * path.stat().st_size) if packed else None
    return io.BufferedReader(_Bounded(raw, path, most), CHUNK)


class _Bounded(io.RawIOBase):
    """The bytes of `raw`, as long as there are at most `most` of them and no line is too long.

    Raises:
        BadRecords: there are more, or one is.
    """

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
            raise BadRecords(
                f"{self._path} unpacks to over {MOST_TIMES} times its size, so it is no file of records; "
                "write it without compression"
            )
        if longest > MOST_LINE:
            raise BadRecords(
                f"{self._path}: a line has over {MOST_LINE // 2**20} MiB; every record must be one line"
            )
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _recoded(path: Path, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    with _unpacked(path) as file:
        while chunk := file.read(CHUNK):
            yield decoder.decode(chunk).encode(errors="replace")
    yield decoder.decode(b"", final=True).encode(errors="replace")


class ByteStream(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = filter(None, chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as there are chunks; 0 at the end."""
        held = [self._rest]
        size = len(self._rest)
        while size < len(buffer) and (chunk := next(self._chunks, b"")):
            held.append(chunk)
            size += len(chunk)
        data = b"".join(held)
        count = min(len(buffer), len(data))
        buffer[:count], self._rest = data[:count], data[count:]
        return count
