"""Half-open sockets by the thousand at each port that strangers reach: console, main one, enrolment.

They say nothing, or half a ClientHello, or a whole one, and come back as soon as they are let go. Passed:
under each attack no honest call and no honest page was lost, 99 of 100 of both were there within a second,
each page over a new connection, the coordinator's memory never stood 96 MiB above where it was, and of its
descriptors it never used more than that port's own share."""

from __future__ import annotations

import asyncio
import os
import resource
import selectors
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from eigenveil.identity import Role
from eigenveil_server import daemon
from eigenveil_server.console import listener
from eigenveil_server.front import pending_connections
from tests.torture.front.besieged import (
    LOST_AFTER,
    LOWEST,
    MIB,
    P99,
    Act,
    Seen,
    Siege,
    attackers_tls,
    besieged,
    client_hello,
    other_process,
)

MEMBERS = {"ada": Role.ANALYST, "anna": Role.SITE}
SETTINGS = '\n[console]\nlisten = "127.0.0.1:0"\n'
SOCKETS = 4096
ADDRESSES = tuple(f"127.0.0.{number}" for number in range(2, 34))
MOST_GROWTH = 96 * MIB
HONEST = 32  # descriptors for whoever is honest, and for files that are open for a moment
# Whoever had to make room in the midst of a handshake is closed in the next pass of the event loop.
LEAVING = pending_connections.AT_ONCE
SECONDS, LEAST_SECONDS = 30.0, 10.0
CLIENT_HELLO = client_hello()
# A handshake that has begun costs more, and its turn is waited for: one in sixteen.
FIRST_BYTES = (b"", CLIENT_HELLO[:100]) * 7 + (b"", CLIENT_HELLO)
SHARES: Mapping[str, int] = {
    "console": listener.MAX_PENDING_CONNECTIONS,
    "main": pending_connections.MAX_PENDING_CONNECTIONS,
    "enrolment": daemon.ENROL_LIMITS.strangers,
}


def faults(name: str, seen: Seen) -> list[str]:
    found = seen.faults(name, MOST_GROWTH)
    for kind in ("greet", "page"):
        found += [f"{name}: p99 of {kind} {seen.p99(kind):.2f} s"] if seen.p99(kind) >= P99 else []
    beyond = seen.descriptors > SHARES[name] + LEAVING + HONEST
    return found + ([f"{name}: +{seen.descriptors} descriptors"] if beyond else [])


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
                    one.sendall(FIRST_BYTES[made // len(ADDRESSES) % len(FIRST_BYTES)])
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


def pages(siege: Siege) -> Act:
    tls = attackers_tls(siege.honest, siege.folder)
    tls.set_alpn_protocols(["http/1.1"])

    async def page() -> None:
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

    return page


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """A crowd at each port, one after the other, on one coordinator."""
    seconds = max(LEAST_SECONDS, SECONDS * scale)
    found, result = list[str](), list[str]()
    async with besieged(folder, MEMBERS, settings=SETTINGS) as siege:
        ports = {"console": siege.console_port, "main": siege.port, "enrolment": siege.enrol_port}
        page = pages(siege)
        await page()  # what is loaded once is loaded by then
        acts = [page, siege.greeter("anna"), siege.greet_anew]
        with other_process() as begin:
            for name, port in ports.items():
                attacking = begin(crowd, port, SOCKETS, seconds)
                seen = await siege.watch(acts, attacking.done, Seen())
                await attacking
                found += faults(name, seen)
                of_pages = f"of pages {1000 * seen.p99('page'):.0f} ms"
                result.append(f"{name}: {seen}, {of_pages}, +{seen.descriptors} descriptors")
        found += siege.faults
    return found, "; ".join(result)
