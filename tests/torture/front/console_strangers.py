"""Half-open sockets by the thousand at each port that strangers reach: console, main one, enrolment.

They say nothing, or half a ClientHello, or a whole one, and come back as soon as they are let go. Passed:
under each attack no honest call and no honest page was lost, 99 of 100 of both were there within a second,
each page over a new connection, the coordinator's memory never stood 96 MiB above where it was, and of its
descriptors it never used more than that port's own share.
"""

from __future__ import annotations

import asyncio
import os
import resource
import selectors
import socket
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import grpc

from eigenveil.identity import Role
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from eigenveil_server import daemon
from eigenveil_server.console import listener
from eigenveil_server.front import pending_connections
from tests.fuzz.hunt import resident_bytes
from tests.server.rig import Credentials
from tests.torture.front.besieged import HELLO, Siege, apart, attackers_tls, besieged, client_hello, p99
from tests.torture.front.denial import LOST_AFTER, LOWEST, P99
from tests.torture.line import Line

MEMBERS = {"ada": Role.ANALYST, "anna": Role.SITE}
SETTINGS = '\n[console]\nlisten = "127.0.0.1:0"\n'
SOCKETS = 4096
ADDRESSES = tuple(f"127.0.0.{number}" for number in range(2, 34))
MOST_GROWTH = 96 * 2**20
HONEST = 32  # descriptors for whoever is honest, and for files that are open for a moment
# Whoever had to make room in the midst of a handshake is closed in the next pass of the event loop.
LEAVING = pending_connections.AT_ONCE
SECONDS, LEAST_SECONDS = 30.0, 10.0
PAUSE = 0.15  # whoever opens more than ten connections a second is no honest caller
CLIENT_HELLO = client_hello()
# A handshake that has begun costs more, and its turn is waited for: one in sixteen.
SAID = (b"", CLIENT_HELLO[:100]) * 7 + (b"", CLIENT_HELLO)
SHARES: Mapping[str, int] = {
    "console": listener.MAX_PENDING_CONNECTIONS,
    "main": pending_connections.MAX_PENDING_CONNECTIONS,
    "enrolment": daemon.ENROL_LIMITS.strangers,
}


@dataclass(slots=True)
class Seen:
    """What honest callers and visitors saw; of the coordinator, how much memory and how many descriptors more
    it had in use."""

    calls: list[float] = field(default_factory=list)
    pages: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    growth: int = 0
    descriptors: int = 0

    def faults(self, name: str) -> list[str]:
        """What the attack did that it should not be able to."""
        found = [f"{name}: {len(self.lost)} lost ({self.lost[-1]})"] if self.lost else []
        for kind, waits in (("calls", self.calls), ("pages", self.pages)):
            found += [f"{name}: p99 of {kind} {p99(waits):.2f} s"] if p99(waits) >= P99 else []
        found += [f"{name}: +{self.growth / 2**20:.0f} MiB"] if self.growth >= MOST_GROWTH else []
        beyond = self.descriptors > SHARES[name] + LEAVING + HONEST
        return found + ([f"{name}: +{self.descriptors} descriptors"] if beyond else [])

    def __str__(self) -> str:
        waits = f"p99 of calls {1000 * p99(self.calls):.0f} ms, of pages {1000 * p99(self.pages):.0f} ms"
        return f"{waits}, +{self.growth / 2**20:.0f} MiB, +{self.descriptors} descriptors"


def crowd(port: int, sockets: int, seconds: float) -> int:
    """Hold so many sockets open and open them again as they are closed; how many were closed."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    until, closed, made, stored = time.monotonic() + seconds, 0, 0, set[socket.socket]()
    with selectors.DefaultSelector() as ends:
        while time.monotonic() < until:
            for _ in range(min(64, sockets - len(stored))):
                with suppress(OSError):
                    one = socket.create_connection(
                        ("127.0.0.1", port), 0.5, (ADDRESSES[made % len(ADDRESSES)], 0)
                    )
                    made += 1
                    stored.add(one)
                    ends.register(one, selectors.EVENT_READ)
                    one.sendall(SAID[made // len(ADDRESSES) % len(SAID)])
            for key, _ in ends.select(0.02):
                one = cast(socket.socket, key.fileobj)
                with suppress(OSError):
                    if one.recv(65_536):
                        continue
                ends.unregister(one)
                stored.discard(one)
                one.close()
                closed += 1
    for one in stored:
        one.close()
    return closed


def _descriptors(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def _visitors_tls(stored: Credentials, folder: Path) -> ssl.SSLContext:
    made = attackers_tls(stored, folder)
    made.set_alpn_protocols(["http/1.1"])
    return made


async def _page(siege: Siege, tls: ssl.SSLContext) -> None:
    """The console's first page, over a connection of its own."""
    async with asyncio.timeout(LOST_AFTER):
        reader, writer = await asyncio.open_connection("127.0.0.1", siege.console_port, ssl=tls)
        try:
            host = f"Host: 127.0.0.1:{siege.console_port}"
            writer.write(f"GET / HTTP/1.1\r\n{host}\r\nConnection: close\r\n\r\n".encode())
            message = await reader.read(65_536)
        finally:
            writer.transport.abort()
    if not message.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(f"the console said {message[:40]!r}")


async def _call(siege: Siege) -> None:
    """A greeting over a connection of its own."""
    async with siege.channel(siege.held["ada"]) as channel:
        await CoordinatorStub(channel).Hello(HELLO, timeout=LOST_AFTER)
    siege.channels.pop()


async def _timed(act: Callable[[], Awaitable[None]], waits: list[float], lost: list[str]) -> None:
    began = time.monotonic()
    try:
        await act()
    except (OSError, TimeoutError, grpc.aio.AioRpcError) as problem:
        lost.append(f"{type(problem).__name__}: {problem}"[:200])
    waits.append(time.monotonic() - began)


async def _under(siege: Siege, attacking: asyncio.Task[int]) -> Seen:
    """Calls and pages by turns, on connections that are open and on new ones, until the attack is over."""
    seen, process = Seen(), siege.process.pid
    tls, stub = _visitors_tls(siege.honest, siege.folder), CoordinatorStub(siege.channel(siege.held["anna"]))
    memory, files = resident_bytes(process), _descriptors(process)

    async def greet() -> None:
        await stub.Hello(HELLO, timeout=LOST_AFTER)

    while not attacking.done() and siege.process.returncode is None:
        await _timed(lambda: _page(siege, tls), seen.pages, seen.lost)
        await _timed(greet, seen.calls, seen.lost)
        await _timed(lambda: _call(siege), seen.calls, seen.lost)
        seen.growth = max(seen.growth, resident_bytes(process) - memory)
        seen.descriptors = max(seen.descriptors, _descriptors(process) - files)
        await asyncio.sleep(PAUSE)
    await attacking
    return seen


def run(scale: float) -> Line:
    """A crowd at each port, one after the other, on one coordinator."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(besiege(Path(folder), scale))


async def besiege(folder: Path, scale: float, command: Sequence[str] = ("eigenveil_server.cli",)) -> Line:
    found, result, growth = list[str](), list[str](), 0
    async with besieged(folder, command, MEMBERS, settings=SETTINGS) as siege:
        ports = {"console": siege.console_port, "main": siege.port, "enrolment": siege.enrol_port}
        tls = _visitors_tls(siege.honest, siege.folder)
        await _page(siege, tls)  # what is loaded once is loaded by then
        with apart() as begin:
            for name, port in ports.items():
                seen = await _under(siege, begin(crowd, port, SOCKETS, max(LEAST_SECONDS, SECONDS * scale)))
                found += seen.faults(name)
                growth = max(growth, seen.growth)
                result.append(f"{name}: {seen}")
        if siege.fate:
            found.append(siege.fate)
    return Line(
        number=6, title="console strangers", passed=not found, detail="; ".join(found or result),
    )  # fmt: skip
