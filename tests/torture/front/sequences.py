"""What a peer with a valid certificate may say after the handshake, in every wrong way we know.

Each function makes one connection's worth of bytes from a seeded generator.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz.mutations import mutate_bytes
from tests.support import a_hello
from tests.torture.front import frames as h2

GREETING = h2.message(a_hello().SerializeToString())
GOOD = h2.HELLO + h2.call(1, "Hello", GREETING)
BOMB = h2.bomb(64 * 2**20)
ODD = (0, 1, 2, 127, 2**14, 2**14 + 1, 2**24 - 1, 2**31 - 1, 2**31, 2**32 - 1)
Sequence = Callable[[random.Random], bytes]


def _hello(stream: int = 1) -> bytes:
    return h2.call(stream, "Hello", GREETING)


def bad_preface(rng: random.Random) -> bytes:
    """Not HTTP/2, or nearly."""
    web = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n\r\n"
    return rng.choice(
        (web, mutate_bytes(h2.HELLO, rng), h2.PREFACE * 2, h2.PREFACE[: rng.randrange(24)], rng.randbytes(99))
    )


def wrong_order(rng: random.Random) -> bytes:
    """Right frames at the wrong moment."""
    frames = [
        h2.settings(),
        h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.head(f"{h2.SERVICE}/Hello")),
        h2.data(1, GREETING),
    ]
    frames += [
        h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1, b""),
        h2.frame(h2.DATA, h2.END_STREAM, 3, b"x"),
        h2.window_update(5, 1),
    ]
    frames += [
        h2.frame(h2.PUSH_PROMISE, h2.END_HEADERS, 1, bytes(4)),
        h2.frame(h2.RST_STREAM, 0, 7, bytes(4)),
        _hello(3),
    ]
    rng.shuffle(frames)
    return h2.PREFACE + b"".join(frames)


def changed_bytes(rng: random.Random) -> bytes:
    """A good call with wrong bytes."""
    return h2.HELLO + mutate_bytes(GOOD[len(h2.HELLO) :], rng)


def false_lengths(rng: random.Random) -> bytes:
    """Frames longer or shorter than they say, or than any may be."""
    kind, payload = rng.randrange(12), rng.randbytes(rng.choice((0, 1, 5, 9, 100, 20_000)))
    length = rng.choice((*ODD[:7], len(payload) + 1, max(0, len(payload) - 1)))
    return h2.HELLO + h2.frame(kind, rng.randrange(256), rng.choice((0, 1)), payload, length) + _hello()


def header_garbage(rng: random.Random) -> bytes:
    """Header blocks that cannot be decoded, or point nowhere."""
    garbage = rng.choice(
        (
            rng.randbytes(rng.choice((1, 10, 300))),
            h2.integer(2**62, 7, 128),
            b"\xff" * 40,
            h2.integer(rng.choice(ODD), 5, 32) + h2.head(f"{h2.SERVICE}/Hello"),
            b"\x10" + h2.integer(2**31, 7) + b"a",
            b"\x10\x01a\x85" + b"\xff" * 5,
            mutate_bytes(h2.head(f"{h2.SERVICE}/Hello"), rng),
        )
    )
    return h2.HELLO + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, garbage) + h2.data(1, GREETING)


def endless_headers(rng: random.Random) -> bytes:
    """h2.HEADERS without an end, and h2.CONTINUATION after h2.CONTINUATION."""
    piece = rng.choice((b"", b"\x10\x01a\x01b", h2.block([("x-a", "b" * 1000)])))
    many = h2.frame(h2.CONTINUATION, 0, 1, piece) * rng.choice((10, 300))
    return h2.HELLO + h2.frame(h2.HEADERS, 0, 1, h2.head(f"{h2.SERVICE}/Hello")) + many


def windows(rng: random.Random) -> bytes:
    """Credit of nothing, too much credit, credit for nobody."""
    stream = rng.choice((0, 1, 3, 2**31 - 1))
    updates = h2.window_update(stream, rng.choice(ODD)) * rng.choice((1, 3, 500))
    return h2.HELLO + _hello() + updates + h2.settings((4, rng.choice(ODD)))


def streams(rng: random.Random) -> bytes:
    """Streams that are even, zero, used, skipped or backwards."""
    numbers = rng.choices((0, 1, 2, 3, 4, 5, 99, 2**31 - 1), k=6)
    return h2.HELLO + b"".join(_hello(number) for number in numbers)


def rapid_reset(rng: random.Random) -> bytes:
    """Calls that are taken back at once."""
    opened = h2.head(f"{h2.SERVICE}/{rng.choice(('Hello', 'NextWork'))}")
    calls = range(1, 2 * rng.choice((20, 200, 600)), 2)
    return h2.HELLO + b"".join(
        h2.frame(h2.HEADERS, h2.END_HEADERS, n, opened) + h2.frame(h2.RST_STREAM, 0, n, bytes(4))
        for n in calls
    )


def floods(rng: random.Random) -> bytes:
    """The same small frame a thousand times."""
    small = (
        h2.settings(), h2.window_update(0, 1), *(
            h2.frame(kind, flags, stream, payload)
            for kind, flags, stream, payload in (
                (h2.SETTINGS, 1, 0, b""), (h2.PING, 0, 0, bytes(8)), (h2.PING, 1, 0, bytes(8)),
                (h2.DATA, 0, 1, b""), (h2.PRIORITY, 0, 3, bytes(5)), (h2.RST_STREAM, 0, 1, bytes(4)),
                (rng.randrange(16, 256), 0, 0, b"x"), (h2.GOAWAY, 0, 0, bytes(8)),
            )
        ),
    )  # fmt: skip
    return h2.HELLO + _hello() + rng.choice(small) * 1000


def large_headers(rng: random.Random) -> bytes:
    """Metadata beyond what a call may carry."""
    size = rng.choice((9_000, 17_000, 60_000))
    more = rng.choice(([("x-big", "a" * size)], [(f"x-{n}", "a" * 40) for n in range(size // 80)]))
    whole = h2.head(f"{h2.SERVICE}/Hello", *more)
    pieces = [whole[at : at + 16_000] for at in range(0, len(whole), 16_000)]
    frames = [h2.frame(h2.CONTINUATION, 0, 1, piece) for piece in pieces[1:]]
    return (
        h2.HELLO
        + h2.frame(h2.HEADERS, 0, 1, pieces[0])
        + b"".join(frames)
        + h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1)
    )


def half_closed(rng: random.Random) -> bytes:
    """More after the end; trailers that end nothing; headers twice."""
    opened = h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.head(f"{h2.SERVICE}/Hello"))
    more = (
        h2.data(1, GREETING), opened, h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.block([("x", "y")])),
        h2.frame(h2.DATA, h2.PADDED, 1, b"\xff"),
    )  # fmt: skip
    ended = rng.choice(
        (
            opened + h2.data(1, GREETING),
            h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, h2.head(f"{h2.SERVICE}/Hello")),
        )
    )
    return h2.HELLO + ended + rng.choice(more) * rng.choice((1, 5))


def framing_lies(rng: random.Random) -> bytes:
    """gRPC messages that are not what their prefix says, or are twice, or are bombs."""
    body = GREETING[5:]
    lies = (
        h2.message(body, length=rng.choice(ODD)), h2.message(body, flag=1), h2.message(body, flag=255),
        GREETING * 2, GREETING[:3], b"", h2.message(rng.randbytes(50)),
        h2.message(mutate_bytes(body, rng)), h2.message(BOMB, flag=1),
    )  # fmt: skip
    encoding = rng.choice(((), (("grpc-encoding", "gzip"),), (("grpc-encoding", "snappy"),)))
    return h2.HELLO + h2.call(1, rng.choice(("Hello", "PutChunk", "Contribute")), rng.choice(lies), *encoding)


def odd_calls(rng: random.Random) -> bytes:
    """Headers that no gRPC client sends."""
    path = rng.choice(
        (f"{h2.SERVICE}/Hello", f"{h2.SERVICE}/Nothing", "/", "", "x" * 5000, "/a/b/c", "/\x00/\xff", "*")
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
            h2.END_HEADERS,
            h2.END_HEADERS | h2.END_STREAM,
            h2.END_HEADERS | h2.PADDED,
            h2.END_HEADERS | h2.WITH_PRIORITY,
        )
    )
    return h2.HELLO + h2.frame(h2.HEADERS, flags, 1, h2.head(path, more, drop=drop)) + h2.data(1, GREETING)


def false_settings(rng: random.Random) -> bytes:
    """Settings that cannot be, or leave no room to answer."""
    pairs = [(rng.choice((*range(8), 0xFE03, 0xFFFF)), rng.choice(ODD)) for _ in range(rng.randrange(1, 6))]
    odd = (
        h2.frame(h2.SETTINGS, 1, 0, b"x" * 6), h2.frame(h2.SETTINGS, 0, 0, b"x" * 7),
        h2.frame(h2.SETTINGS, 0, 1), h2.settings(*pairs),
    )  # fmt: skip
    return h2.PREFACE + h2.settings(*pairs) + rng.choice(odd) + _hello()


SEQUENCES: tuple[Sequence, ...] = (
    bad_preface, wrong_order, changed_bytes, false_lengths, header_garbage, endless_headers, windows, streams,
    rapid_reset, floods, large_headers, half_closed, framing_lies, odd_calls, false_settings,
)  # fmt: skip
