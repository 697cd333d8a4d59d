"""The bytes of a file of text as UTF-8, unpacked."""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

CHUNK = 2**20


def opened(path: Path, encoding: str) -> BinaryIO:
    """A file of text as bytes of UTF-8. Bytes that are none in `encoding` become U+FFFD, each by itself; what
    claims to be UTF-8 is handed on as it is. An ending .gz is unpacked."""
    if codecs.lookup(encoding).name == "utf-8":
        return _unpacked(path)
    return io.BufferedReader(ByteStream(_recoded(path, encoding)), CHUNK)


def _unpacked(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


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
