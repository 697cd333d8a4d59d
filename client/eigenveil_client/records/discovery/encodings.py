"""Encoding of a text file, from its bytes: a byte order mark, valid UTF-8, or the code page of western
Europe in which its letters make words."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass, field

UTF8 = "utf-8"
MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Letters and signs of clinical files beyond ASCII. A wrong code page turns them into signs that are not here.
USUAL = frozenset("äöüÄÖÜßéèêëàâáåæøçñíìîïóòôúùûœÉÈÀÇÅÆØÑ°µμ²³±½–—’“”„€§×≤≥%·´")
CODE_PAGES = ("latin-1", "cp1252", "cp850", "mac_roman")
KEPT = 2**16  # bytes beyond ASCII that decide
NULLS = 0.2  # share of zero bytes in text of two bytes a letter


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEncoding:
    """Name of an encoding as Python knows it, and its evidence."""

    name: str
    evidence: str


@dataclass(slots=True)
class _Bytes:
    """Bytes seen so far: whether they are UTF-8, and the lines with others than ASCII."""

    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder(UTF8)(errors="strict")
    )
    valid: bool = True
    beyond: bool = False
    kept: bytearray = field(default_factory=bytearray)

    def take(self, chunk: bytes) -> None:
        if self.valid:
            try:
                self.decoder.decode(chunk)
            except UnicodeDecodeError:
                self.valid = False
        if not chunk.isascii():
            self.beyond = True
            if len(self.kept) < KEPT:
                self.kept += bytes(byte for byte in chunk if byte > 0x7F)[:KEPT]


def find_encoding(chunks: Iterable[bytes]) -> FoundEncoding:
    """Return the encoding of a file's bytes, all of which are read."""
    scan, first = _Bytes(), b""
    for number, chunk in enumerate(chunks):
        if not number:
            first = chunk
            two = _two_bytes(first)
            if two is not None:
                return two
        scan.take(chunk)
    if scan.valid:
        mark = "a byte order mark" if first.startswith(codecs.BOM_UTF8) else "UTF-8 throughout"
        return FoundEncoding(name=UTF8, evidence=mark if scan.beyond else "no letter beyond ASCII")
    name = max(CODE_PAGES, key=lambda page: _usual(bytes(scan.kept), page))  # of equals, the first
    return FoundEncoding(name=name, evidence=f"no UTF-8, and its letters make words in {name}")


def _two_bytes(head: bytes) -> FoundEncoding | None:
    if head.startswith(MARKS):
        return FoundEncoding(name="utf-16", evidence="a byte order mark")
    even, odd = head[0:4096:2], head[1:4096:2]
    for zeros, name in ((odd, "utf-16-le"), (even, "utf-16-be")):
        if len(zeros) > 8 and zeros.count(0) > (1 - NULLS) * len(zeros):
            return FoundEncoding(name=name, evidence="two bytes a letter")
    return None


def _usual(beyond: bytes, page: str) -> float:
    """Return the share of bytes that are usual letters in a code page."""
    text = beyond.decode(page, errors="replace")
    return sum(letter in USUAL for letter in text) / max(1, len(text))
