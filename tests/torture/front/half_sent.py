"""Requests that come almost to their end, within the windows that a client of HTTP/2 is granted."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field

from eigenveil_common.rpc import MESSAGE_BYTES
from tests.torture.front import frames as h2

FIRST_WINDOW = 65_535
INITIAL_WINDOW_SIZE = 4
LOOK_SECONDS = 0.05
BODY = h2.message(bytes(MESSAGE_BYTES - 100))[:-1]  # its last byte never comes


@dataclass(slots=True, kw_only=True)
class HalfSent:
    writer: asyncio.StreamWriter
    streams: tuple[int, ...]
    first: int = FIRST_WINDOW  # of each stream
    granted: dict[int, int] = field(default_factory=dict)  # beyond that; 0 is the connection
    sent: dict[int, int] = field(default_factory=dict)

    def receive(self, text: bytes) -> bytes:
        at = 0
        for kind, flags, stream, payload in h2.parse(text):
            at += 9 + len(payload)
            if kind == h2.WINDOW_UPDATE:
                self.granted[stream] = self.granted.get(stream, 0) + int.from_bytes(payload, "big")
            elif kind == h2.SETTINGS and not flags:
                pairs = (payload[n : n + 6] for n in range(0, len(payload), 6))
                values = {int.from_bytes(p[:2], "big"): int.from_bytes(p[2:], "big") for p in pairs}
                self.first = values.get(INITIAL_WINDOW_SIZE, self.first)
                self.writer.write(h2.frame(h2.SETTINGS, 1, 0))
        return text[at:]

    def send(self) -> bool:
        some = False
        for stream in self.streams:
            sent = self.sent.get(stream, 0)
            left = FIRST_WINDOW + self.granted.get(0, 0) - sum(self.sent.values())
            size = min(
                h2.MOST_IN_A_FRAME, self.first + self.granted.get(stream, 0) - sent, left, len(BODY) - sent
            )
            if size > 0:
                self.writer.write(h2.frame(h2.DATA, 0, stream, BODY[sent : sent + size]))
                self.sent[stream] = sent + size
                some = True
        return some


async def hold(port: int, tls: ssl.SSLContext, count: int, seconds: float) -> None:
    """Send so many requests but for their last byte on one connection, and stay until it is closed."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    except OSError:
        await asyncio.sleep(LOOK_SECONDS)
        return
    half = HalfSent(writer=writer, streams=tuple(range(1, 2 * count, 2)))
    opened = h2.head(f"{h2.SERVICE}/PutChunk")
    writer.write(h2.HELLO + b"".join(h2.frame(h2.HEADERS, h2.END_HEADERS, n, opened) for n in half.streams))
    until, text = time.monotonic() + seconds, b""
    with suppress(OSError, ssl.SSLError):
        while time.monotonic() < until:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.001 if half.send() else LOOK_SECONDS):
                    piece = await reader.read(65_536)
                    if not piece:
                        break
                    text = half.receive(text + piece)
            await writer.drain()
    writer.transport.abort()
