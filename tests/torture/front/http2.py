"""Twenty thousand connections that shake hands properly and then speak HTTP/2 badly, to a real coordinator.

Passed: the process lives and met no defect, its memory never stood 32 MiB above where it was when the first
twentieth was over, and an honest caller was answered within a second all the time, also on new connections.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.server.rig import Credentials
from tests.torture.front.besieged import Siege, Watch, apart, attackers_tls, besieged
from tests.torture.front.sequences import SEQUENCES
from tests.torture.line import Line

CONNECTIONS = 20_000
MOST_GROWTH = 32 * 2**20
AT_ONCE = 4  # the door, whose limits are off here, admits 10 new ones of a certificate a second
LISTEN_SECONDS = 0.05
SEED = 20_261
# Of 20,000 connections of one certificate the front door would let few come near gRPC.
UNLIMITED = ("tests.torture.front.unlimited", "places")


def run(scale: float) -> Line:
    """All of them, each kind of sequence as often as any other."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_run(Path(folder), int(CONNECTIONS * scale)))


async def _run(folder: Path, connections: int) -> Line:
    async with besieged(folder, UNLIMITED) as siege:
        await _attack(siege, connections // 20, SEED)  # what is allocated once is allocated by then
        async with siege.watched() as watch:
            message = await _attack(siege, connections, SEED + 1)
        return verdict(connections, message, watch, siege.fate)


def verdict(connections: int, closed: int, watch: Watch, fate: str) -> Line:
    return Line(
        number=6,
        title="malformed HTTP/2",
        passed=not fate and watch.answered and watch.growth < MOST_GROWTH,
        detail=f"{connections} sequences of {len(SEQUENCES)} kinds, {closed} ended by it; {watch}"
        + (f"; {fate}" if fate else ""),
    )


async def _attack(siege: Siege, connections: int, seed: int) -> int:
    """From a process of its own, so that the honest caller does not share its turns; how many were ended."""
    with apart() as begin:
        ended: int = await begin(attack, siege.port, siege.attacker, siege.folder, connections, seed)
        return ended


def attack(port: int, stored: Credentials, folder: Path, connections: int, seed: int) -> int:
    """Make the connections, several at a time; how many the coordinator ended."""
    return asyncio.run(_all(port, attackers_tls(stored, folder), connections, seed))


async def _all(port: int, tls: ssl.SSLContext, connections: int, seed: int) -> int:
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: None)  # broken TLS is the point
    attempts, rng = iter(range(connections)), random.Random(seed)

    async def some() -> int:
        return sum([await _one(port, tls, SEQUENCES[turn % len(SEQUENCES)](rng)) for turn in attempts])

    return sum(await asyncio.gather(*(some() for _ in range(AT_ONCE))))


async def _one(port: int, tls: ssl.SSLContext, message: bytes) -> bool:
    """Say it and listen for a moment; whether the coordinator ended the connection."""
    ended = True
    with suppress(OSError, ssl.SSLError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        writer.write(message)
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                while await reader.read(65_536):
                    pass
        except TimeoutError:
            ended = False
        finally:
            writer.transport.abort()
    return ended
