"""HTTP/2 as bytes: whole frames, headers and gRPC messages, right ones and wrong ones.

Nothing here keeps state or refuses anything, which is what a library for honest clients would do.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
SERVICE = "/eigenveil.v1.Coordinator"
MOST_IN_A_FRAME = 16_384


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """One frame; `length` is what its header claims, if not the truth."""
    claimed = len(payload) if length is None else length
    return claimed.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(k.to_bytes(2, "big") + v.to_bytes(4, "big") for k, v in pairs))


HELLO = PREFACE + settings()  # what every connection begins with


def window_update(stream: int, by: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, by.to_bytes(4, "big"))


def head(path: str, *more: tuple[str, str], drop: Iterable[str] = ()) -> bytes:
    """The header block of a gRPC call, without those named in `drop`; nothing is indexed."""
    headers = [
        (":method", "POST"), (":scheme", "https"), (":path", path), (":authority", "127.0.0.1"),
        ("te", "trailers"), ("content-type", "application/grpc"), *more,
    ]  # fmt: skip
    return block([pair for pair in headers if pair[0] not in drop])


def integer(value: int, bits: int, first: int = 0) -> bytes:
    """A number as HPACK writes it: `bits` bits of a byte that begins with `first`, then more bytes."""
    most = 2**bits - 1
    if value < most:
        return bytes((first | value,))
    out, value = [first | most], value - most
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def block(headers: Iterable[tuple[str, str]]) -> bytes:
    """A header block of literals that are never indexed: it means the same on every connection."""
    return b"".join(b"\x10" + _text(name) + _text(value) for name, value in headers)


def _text(value: str) -> bytes:
    raw = value.encode("latin-1")
    return integer(len(raw), 7) + raw


def message(body: bytes, flag: int = 0, length: int | None = None) -> bytes:
    """A gRPC message; `length` is what its prefix claims, if not the truth."""
    return bytes((flag,)) + (len(body) if length is None else length).to_bytes(4, "big") + body


def data(stream: int, body: bytes, *, end: bool = True) -> bytes:
    pieces = [body[at : at + MOST_IN_A_FRAME] for at in range(0, len(body), MOST_IN_A_FRAME)] or [b""]
    frames = [frame(DATA, 0, stream, piece) for piece in pieces[:-1]]
    return b"".join([*frames, frame(DATA, END_STREAM if end else 0, stream, pieces[-1])])


def call(stream: int, method: str, body: bytes, *more: tuple[str, str]) -> bytes:
    """A whole call of a method of the coordinator; `body` has its gRPC prefix already."""
    return frame(HEADERS, END_HEADERS, stream, head(f"{SERVICE}/{method}", *more)) + data(stream, body)


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    piece = bytes(2**20)
    return b"".join([*(packer.compress(piece) for _ in range(size // len(piece))), packer.flush()])


def parse(text: bytes) -> list[tuple[int, int, int, bytes]]:
    """The whole frames in what a peer said: kind, flags, stream, payload."""
    frames, at = [], 0
    while at + 9 <= len(text):
        length = int.from_bytes(text[at : at + 3], "big")
        stream = int.from_bytes(text[at + 5 : at + 9], "big")
        if at + 9 + length <= len(text):
            frames.append((text[at + 3], text[at + 4], stream, text[at + 9 : at + 9 + length]))
        at += 9 + length
    return frames


def status(text: bytes) -> str:
    """The first gRPC status in what a coordinator said; empty if there is none."""
    at = text.find(b"grpc-status")
    length = text[at + 11] & 127 if at >= 0 else 0
    return text[at + 12 : at + 12 + length].decode("latin-1")
