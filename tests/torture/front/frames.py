"""HTTP/2 as bytes: frames, headers, gRPC messages and whole connections, right ones and wrong ones.

Nothing here keeps state or refuses anything, which is what a library for honest clients would do. Each of
`SEQUENCES` makes what a peer with a valid certificate may send after the handshake, from a seeded generator.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable

from tests.fuzz.mutations import mutate_bytes
from tests.support import a_hello

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


GREETING = message(a_hello().SerializeToString())
GOOD = HELLO + call(1, "Hello", GREETING)
BOMB = bomb(64 * 2**20)
ODD = (0, 1, 2, 127, 2**14, 2**14 + 1, 2**24 - 1, 2**31 - 1, 2**31, 2**32 - 1)
Sequence = Callable[[random.Random], bytes]


def _hello(stream: int = 1) -> bytes:
    return call(stream, "Hello", GREETING)


def bad_preface(rng: random.Random) -> bytes:
    """Not HTTP/2, or nearly."""
    web = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n\r\n"
    return rng.choice(
        (web, mutate_bytes(HELLO, rng), PREFACE * 2, PREFACE[: rng.randrange(24)], rng.randbytes(99))
    )


def wrong_order(rng: random.Random) -> bytes:
    """Right frames at the wrong moment."""
    frames = [
        settings(),
        frame(HEADERS, END_HEADERS, 1, head(f"{SERVICE}/Hello")),
        data(1, GREETING),
    ]
    frames += [
        frame(CONTINUATION, END_HEADERS, 1, b""),
        frame(DATA, END_STREAM, 3, b"x"),
        window_update(5, 1),
    ]
    frames += [
        frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)),
        frame(RST_STREAM, 0, 7, bytes(4)),
        _hello(3),
    ]
    rng.shuffle(frames)
    return PREFACE + b"".join(frames)


def changed_bytes(rng: random.Random) -> bytes:
    """A good call with wrong bytes."""
    return HELLO + mutate_bytes(GOOD[len(HELLO) :], rng)


def false_lengths(rng: random.Random) -> bytes:
    """Frames longer or shorter than they say, or than any may be."""
    kind, payload = rng.randrange(12), rng.randbytes(rng.choice((0, 1, 5, 9, 100, 20_000)))
    length = rng.choice((*ODD[:7], len(payload) + 1, max(0, len(payload) - 1)))
    return HELLO + frame(kind, rng.randrange(256), rng.choice((0, 1)), payload, length) + _hello()


def header_garbage(rng: random.Random) -> bytes:
    """Header blocks that cannot be decoded, or point nowhere."""
    garbage = rng.choice(
        (
            rng.randbytes(rng.choice((1, 10, 300))),
            integer(2**62, 7, 128),
            b"\xff" * 40,
            integer(rng.choice(ODD), 5, 32) + head(f"{SERVICE}/Hello"),
            b"\x10" + integer(2**31, 7) + b"a",
            b"\x10\x01a\x85" + b"\xff" * 5,
            mutate_bytes(head(f"{SERVICE}/Hello"), rng),
        )
    )
    return HELLO + frame(HEADERS, END_HEADERS, 1, garbage) + data(1, GREETING)


def endless_headers(rng: random.Random) -> bytes:
    """HEADERS without an end, and CONTINUATION after CONTINUATION."""
    piece = rng.choice((b"", b"\x10\x01a\x01b", block([("x-a", "b" * 1000)])))
    many = frame(CONTINUATION, 0, 1, piece) * rng.choice((10, 300))
    return HELLO + frame(HEADERS, 0, 1, head(f"{SERVICE}/Hello")) + many


def windows(rng: random.Random) -> bytes:
    """Credit of nothing, too much credit, credit for nobody."""
    stream = rng.choice((0, 1, 3, 2**31 - 1))
    updates = window_update(stream, rng.choice(ODD)) * rng.choice((1, 3, 500))
    return HELLO + _hello() + updates + settings((4, rng.choice(ODD)))


def streams(rng: random.Random) -> bytes:
    """Streams that are even, zero, used, skipped or backwards."""
    numbers = rng.choices((0, 1, 2, 3, 4, 5, 99, 2**31 - 1), k=6)
    return HELLO + b"".join(_hello(number) for number in numbers)


def rapid_reset(rng: random.Random) -> bytes:
    """Calls that are taken back at once."""
    opened = head(f"{SERVICE}/{rng.choice(('Hello', 'NextWork'))}")
    calls = range(1, 2 * rng.choice((20, 200, 600)), 2)
    return HELLO + b"".join(
        frame(HEADERS, END_HEADERS, n, opened) + frame(RST_STREAM, 0, n, bytes(4)) for n in calls
    )


def floods(rng: random.Random) -> bytes:
    """The same small frame a thousand times."""
    small = (
        settings(), window_update(0, 1), *(
            frame(kind, flags, stream, payload)
            for kind, flags, stream, payload in (
                (SETTINGS, 1, 0, b""), (PING, 0, 0, bytes(8)), (PING, 1, 0, bytes(8)),
                (DATA, 0, 1, b""), (PRIORITY, 0, 3, bytes(5)), (RST_STREAM, 0, 1, bytes(4)),
                (rng.randrange(16, 256), 0, 0, b"x"), (GOAWAY, 0, 0, bytes(8)),
            )
        ),
    )  # fmt: skip
    return HELLO + _hello() + rng.choice(small) * 1000


def large_headers(rng: random.Random) -> bytes:
    """Metadata beyond what a call may carry."""
    size = rng.choice((9_000, 17_000, 60_000))
    more = rng.choice(([("x-big", "a" * size)], [(f"x-{n}", "a" * 40) for n in range(size // 80)]))
    whole = head(f"{SERVICE}/Hello", *more)
    pieces = [whole[at : at + 16_000] for at in range(0, len(whole), 16_000)]
    frames = [frame(CONTINUATION, 0, 1, piece) for piece in pieces[1:]]
    return HELLO + frame(HEADERS, 0, 1, pieces[0]) + b"".join(frames) + frame(CONTINUATION, END_HEADERS, 1)


def half_closed(rng: random.Random) -> bytes:
    """More after the end; trailers that end nothing; headers twice."""
    opened = frame(HEADERS, END_HEADERS, 1, head(f"{SERVICE}/Hello"))
    more = (
        data(1, GREETING), opened, frame(HEADERS, END_HEADERS, 1, block([("x", "y")])),
        frame(DATA, PADDED, 1, b"\xff"),
    )  # fmt: skip
    ended = rng.choice(
        (
            opened + data(1, GREETING),
            frame(HEADERS, END_HEADERS | END_STREAM, 1, head(f"{SERVICE}/Hello")),
        )
    )
    return HELLO + ended + rng.choice(more) * rng.choice((1, 5))


def framing_lies(rng: random.Random) -> bytes:
    """gRPC messages that are not what their prefix says, or are twice, or are bombs."""
    body = GREETING[5:]
    lies = (
        message(body, length=rng.choice(ODD)), message(body, flag=1), message(body, flag=255),
        GREETING * 2, GREETING[:3], b"", message(rng.randbytes(50)),
        message(mutate_bytes(body, rng)), message(BOMB, flag=1),
    )  # fmt: skip
    encoding = rng.choice(((), (("grpc-encoding", "gzip"),), (("grpc-encoding", "snappy"),)))
    return HELLO + call(1, rng.choice(("Hello", "PutChunk", "Contribute")), rng.choice(lies), *encoding)


def odd_calls(rng: random.Random) -> bytes:
    """Headers that no gRPC client sends."""
    path = rng.choice(
        (f"{SERVICE}/Hello", f"{SERVICE}/Nothing", "/", "", "x" * 5000, "/a/b/c", "/\x00/\xff", "*")
    )
    more = rng.choice(
        (
            ("content-type", "text/html"), ("content-type", "application/grpc"), (":path", "/x"),
            ("grpc-timeout", "9" * 9 + "H"), ("grpc-timeout", "-1S"), ("grpc-timeout", "0n"),
            ("Upper", "case"), ("x-bin", "not base64 !"), ("connection", "close"),
            ("transfer-encoding", "chunked"), ("a\r\nb", "c\r\nd"), ("", ""),
            ("host", "other"), ("content-length", "7"),
        )
    )  # fmt: skip
    drop = rng.choice(((), (":path",), (":method",), ("te",), ("content-type",), (":scheme", ":authority")))
    flags = rng.choice(
        (
            END_HEADERS,
            END_HEADERS | END_STREAM,
            END_HEADERS | PADDED,
            END_HEADERS | WITH_PRIORITY,
        )
    )
    return HELLO + frame(HEADERS, flags, 1, head(path, more, drop=drop)) + data(1, GREETING)


def false_settings(rng: random.Random) -> bytes:
    """Settings that cannot be, or leave no room to answer."""
    pairs = [(rng.choice((*range(8), 0xFE03, 0xFFFF)), rng.choice(ODD)) for _ in range(rng.randrange(1, 6))]
    odd = (
        frame(SETTINGS, 1, 0, b"x" * 6), frame(SETTINGS, 0, 0, b"x" * 7),
        frame(SETTINGS, 0, 1), settings(*pairs),
    )  # fmt: skip
    return PREFACE + settings(*pairs) + rng.choice(odd) + _hello()


SEQUENCES: tuple[Sequence, ...] = (
    bad_preface, wrong_order, changed_bytes, false_lengths, header_garbage, endless_headers, windows, streams,
    rapid_reset, floods, large_headers, half_closed, framing_lies, odd_calls, false_settings,
)  # fmt: skip
