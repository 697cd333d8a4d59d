"""One attack on each limit of a real coordinator: bombs, idle sockets, floods, and calls that never end.

Passed: each limit held, memory never stood 32 MiB above where it was before the attack, the honest caller was
answered within a second all the time, and whoever only sat there was let go."""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

from eigenveil_common.rpc import HANDSHAKE_MS, MESSAGE_BYTES, METADATA_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from eigenveil_server.rpc.callers import MAX_CALLS_PER_CALLER
from tests.torture.front import frames as h2
from tests.torture.front.besieged import (
    ANSWER_SECONDS,
    HELLO,
    MIB,
    Siege,
    besieged,
    client_hello,
    other_process,
)

MOST_GROWTH = 32 * MIB
IDLE_SOCKETS = 2000
STREAMS = 1000
STREAMS_SECONDS = 8.0  # the front door reads 400 of them a second
POLLS = 200
SLOW = 100
LET_GO_SECONDS = HANDSHAKE_MS / 1000 + 5
REFUSED, TOO_MUCH = ("12",), ("8",)  # UNIMPLEMENTED; RESOURCE_EXHAUSTED
# 10 s for the ClientHello, 10 s for the rest, and what a crowd of one address waits for its turns in between.
IDLE_SECONDS = 2 * HANDSHAKE_MS / 1000 + 10
CLIENT_HELLO = client_hello()
INITIAL_WINDOW_SIZE = 4
NO_BYTES, BROKEN_OFF = b"", CLIENT_HELLO[:100]
STATUS = b"grpc-status"
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Attack = Callable[[Siege, float], Awaitable[str]]


class ExceededLimit(Exception):
    """A limit was not kept."""


async def _open(siege: Siege, tls: ssl.SSLContext | None) -> Pair:
    return await asyncio.open_connection("127.0.0.1", siege.port, ssl=tls)


async def _received(pair: Pair, seconds: float, until: bytes = b"\n never") -> tuple[bytes, bool]:
    """Bytes of the coordinator in that time, or until it sends these, and True if it ended the connection."""
    text = b""
    with suppress(OSError, ssl.SSLError):
        try:
            async with asyncio.timeout(seconds):
                while until not in text and (piece := await pair[0].read(65_536)):
                    text += piece
        except TimeoutError:
            return text, False
    return text, until not in text


def _leave(pairs: Sequence[Pair]) -> None:
    for _, writer in pairs:
        writer.transport.abort()


async def _refused(siege: Siege, text: bytes, wanted: Sequence[str]) -> None:
    """Say it on a connection that has acknowledged the coordinator's settings."""
    pair = await _open(siege, siege.tls())
    pair[1].write(h2.HELLO + h2.frame(h2.SETTINGS, 1, 0))
    await _received(pair, 0.2)
    pair[1].write(h2.window_update(0, 2**24) + text)
    answer, _ = await _received(pair, 5.0, STATUS)
    pair[1].transport.abort()
    if h2.status(answer) not in wanted:
        raise ExceededLimit(f"status {h2.status(answer) or 'none'}, wanted {wanted[0]}")


async def compression(siege: Siege, scale: float) -> str:
    """Zeros that are a thousand times as many once they are unpacked."""
    for size in (2**20, 64 * 2**20):
        packed = h2.call(1, "PutChunk", h2.message(h2.bomb(size), 1), ("grpc-encoding", "gzip"))
        await _refused(siege, packed, REFUSED)
    return "gzip refused"


async def metadata(siege: Siege, scale: float) -> str:
    """Headers beyond 16 KiB, in one piece and in many."""
    one = [("x-big", "a" * 2 * METADATA_BYTES)]
    many = [(f"x-{number}", "a" * 100) for number in range(METADATA_BYTES // 50)]
    for more in (one, many):
        whole = h2.head(f"{h2.SERVICE}/Hello", *more)
        first, *rest = (whole[at : at + 16_000] for at in range(0, len(whole), 16_000))
        frames = b"".join(h2.frame(h2.CONTINUATION, 0, 1, piece) for piece in rest)
        opened = h2.frame(h2.HEADERS, 0, 1, first) + frames + h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1)
        await _refused(siege, opened + h2.data(1, h2.message(b"")), TOO_MUCH)
    return "metadata refused"


async def messages(siege: Siege, scale: float) -> str:
    for size in (MESSAGE_BYTES + 1, 2**32 - 1):  # refused at its prefix, before it is read
        await _refused(siege, h2.call(1, "PutChunk", h2.message(bytes(2**20), length=size)), TOO_MUCH)
    return "large messages refused"


async def idle_sockets(siege: Siege, scale: float) -> str:
    """Of the honest caller's own address, as behind one NAT. A tenth sends a whole ClientHello: more than 120
    of these a second are a flood of handshakes, which callers of that address do feel."""
    return await _idle(siege, scale, ("127.0.0.1",), (NO_BYTES, BROKEN_OFF) * 4 + (NO_BYTES, CLIENT_HELLO))


async def idle_sockets_of_others(siege: Siege, scale: float) -> str:
    addresses = tuple(f"127.0.0.{number}" for number in range(2, 10))
    return await _idle(siege, scale, addresses, (NO_BYTES, BROKEN_OFF, CLIENT_HELLO))


async def _idle(siege: Siege, scale: float, addresses: Sequence[str], text: Sequence[bytes]) -> str:
    began, count = time.monotonic(), max(30, int(IDLE_SOCKETS * scale))
    with other_process() as begin:
        left = await begin(sit, siege.port, count, addresses, text)
    if left:
        raise ExceededLimit(f"{left} of {count} idle sockets were still there after {IDLE_SECONDS:.0f} s")
    return f"{count} idle sockets let go in {time.monotonic() - began:.0f} s"


def sit(port: int, count: int, addresses: Sequence[str], text: Sequence[bytes]) -> int:
    """Open sockets that say this and then nothing more; how many are still open in the end.

    In a process of its own and at the lowest priority, as in `denial`."""
    os.nice(19)
    with ExitStack() as opened, selectors.DefaultSelector() as ends:
        for number in range(count):
            with suppress(ConnectionError):
                local = addresses[number % len(addresses)], 0
                sock = opened.enter_context(socket.create_connection(("127.0.0.1", port), 10.0, local))
                sock.sendall(text[number % len(text)])
                ends.register(sock, selectors.EVENT_READ)
        until = time.monotonic() + IDLE_SECONDS
        while ends.get_map() and (seconds := until - time.monotonic()) > 0:
            for key, _ in ends.select(seconds):
                if _is_over(cast(socket.socket, key.fileobj)):
                    ends.unregister(key.fileobj)
        return len(ends.get_map())


def _is_over(sock: socket.socket) -> bool:
    try:
        return not sock.recv(65_536)
    except ConnectionError:
        return True


async def pings(siege: Siege, scale: float) -> str:
    for _ in range(max(2, int(10 * scale))):
        pair = await _open(siege, siege.tls())
        pair[1].write(h2.HELLO + h2.frame(h2.PING, 0, 0, bytes(8)) * 20_000)
        text, end = await _received(pair, 3.0)
        if not end and h2.GOAWAY not in [kind for kind, *_ in h2.parse(text)]:
            raise ExceededLimit("20,000 pings were answered")
        pair[1].transport.abort()
    return "pings cut off"


async def streams(siege: Siege, scale: float) -> str:
    """A thousand calls at once on one connection, and none of its settings acknowledged."""
    pair = await _open(siege, siege.tls())
    opened = h2.head(f"{h2.SERVICE}/NextWork")
    numbers = range(1, 2 * STREAMS, 2)
    calls = (h2.frame(h2.HEADERS, h2.END_HEADERS, n, opened) + h2.data(n, h2.message(b"")) for n in numbers)
    pair[1].write(h2.HELLO + b"".join(calls))
    text, end = await _received(pair, STREAMS_SECONDS)
    over = {
        n
        for kind, flags, n, _ in h2.parse(text)
        if kind == h2.RST_STREAM or (kind == h2.HEADERS and flags & h2.END_STREAM)
    }
    pair[1].transport.abort()
    if not end and STREAMS - len(over) > MAX_CALLS_PER_CALLER:
        raise ExceededLimit(f"{STREAMS - len(over)} calls of one site wait at a time")
    return f"{len(over)} of {STREAMS} streams refused"


async def unread(siege: Siege, scale: float) -> str:
    """Calls whose replies wait for a window that is never granted, over several connections."""
    tls, waiting = siege.tls(), 0
    pairs = [await _open(siege, tls) for _ in range(4)]
    greeting = h2.message(HELLO.SerializeToString())
    calls = b"".join(h2.call(number, "Hello", greeting) for number in range(1, POLLS, 2))
    for _, writer in pairs:
        writer.write(
            h2.PREFACE + h2.settings((INITIAL_WINDOW_SIZE, 0)) + h2.frame(h2.SETTINGS, h2.ACK, 0) + calls
        )
    for pair in pairs:
        text, end = await _received(pair, STREAMS_SECONDS / 4)
        frames = h2.parse(text)
        begun = {stream for kind, _, stream, _ in frames if kind == h2.HEADERS}
        over = {stream for kind, flags, stream, _ in frames if kind == h2.HEADERS and flags & h2.END_STREAM}
        waiting += 0 if end else len(begun - over)
    _leave(pairs)
    if waiting > MAX_CALLS_PER_CALLER:
        raise ExceededLimit(f"{waiting} replies to one site wait at a time")
    return f"{waiting} replies wait to be read"


async def long_polls(siege: Siege, scale: float) -> str:
    """More long polls than one site may have, over several connections."""
    stubs = [CoordinatorStub(siege.channel(siege.attacker)) for _ in range(4)]
    polls = [stubs[n % 4].NextWork(pb.NextWorkRequest(), timeout=20) for n in range(POLLS)]
    await asyncio.sleep(2.0)
    refused = sum(poll.done() for poll in polls)
    for poll in polls:
        poll.cancel()
    if POLLS - refused > MAX_CALLS_PER_CALLER:
        raise ExceededLimit(f"{POLLS - refused} long polls of one site wait at a time")
    return f"{refused} of {POLLS} polls refused"


async def slow_headers(siege: Siege, scale: float) -> str:
    """A header block that comes a byte at a time and has no end."""
    tls = siege.tls()
    pairs = [await _open(siege, tls) for _ in range(max(5, int(SLOW * scale)))]
    for _, writer in pairs:
        writer.write(h2.HELLO + h2.frame(h2.HEADERS, 0, 1, h2.head(f"{h2.SERVICE}/Hello")))
    ended = await asyncio.gather(*(_drip(pair) for pair in pairs))
    _leave(pairs)
    if not all(ended):
        raise ExceededLimit(f"{ended.count(False)} slow connections were still there")
    return f"{len(pairs)} slow connections let go"


async def _drip(pair: Pair) -> bool:
    until = time.monotonic() + LET_GO_SECONDS
    drop = h2.frame(h2.CONTINUATION, 0, 1, h2.block([("a", "b")]))
    while time.monotonic() < until:
        with suppress(OSError):
            pair[1].write(drop)
        if (await _received(pair, 0.5))[1]:
            return True
    return False


ATTACKS: Mapping[str, Attack] = {
    "compression": compression, "metadata": metadata, "messages": messages, "pings": pings,
    "streams": streams, "unread replies": unread, "long polls": long_polls, "idle sockets": idle_sockets,
    "idle sockets of others": idle_sockets_of_others, "slow headers": slow_headers,
}  # fmt: skip


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """Every attack, one after the other, on one coordinator."""
    text, found, growth, slowest = [], [], 0, 0.0
    async with besieged(folder) as siege:
        for name, attack in ATTACKS.items():
            async with siege.watched() as seen:
                try:
                    text.append(await attack(siege, scale))
                except ExceededLimit as problem:
                    found.append(f"{name}: NOT HELD: {problem}")
            late = max(seen.seconds(), default=ANSWER_SECONDS)
            found += seen.faults(name, MOST_GROWTH)
            found += [f"{name}: a good call took {late:.1f} s"] if late >= ANSWER_SECONDS else []
            growth, slowest = max(growth, seen.growth), max(slowest, late)
        found += siege.faults
    figures = f"at most +{growth / MIB:.1f} MiB, good calls at most {1000 * slowest:.0f} ms"
    return found, f"{', '.join(text)}; {figures}"
