"""Twenty thousand connections that shake hands properly and then speak HTTP/2 badly, to a real coordinator.

Passed: the process lives and met no defect, its memory never stood 32 MiB above where it was when the first
twentieth was over, and an honest caller was answered within a second all the time, also on new connections.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from pathlib import Path

from tests.server.rig import Credentials
from tests.torture.front.besieged import (
    ANSWER_SECONDS,
    MIB,
    Siege,
    attackers_tls,
    besieged,
    other_process,
    send_bytes,
)
from tests.torture.front.frames import SEQUENCES

CONNECTIONS = 20_000
MOST_GROWTH = 32 * MIB
AT_ONCE = 4  # the door, whose limits are off here, admits 10 new ones of a certificate a second
LISTEN_SECONDS = 0.05
SEED = 20_261
UNLIMITED = ("tests.torture.front.unlimited", "connections")


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """All of them, each kind of sequence as often as any other."""
    connections = int(CONNECTIONS * scale)
    async with besieged(folder, command=UNLIMITED) as siege:
        await _attack(siege, connections // 20, SEED)  # what is allocated once is allocated by then
        async with siege.watched() as seen:
            closed = await _attack(siege, connections, SEED + 1)
        found = [*seen.faults("HTTP/2", MOST_GROWTH), *siege.faults]
        if max(seen.seconds(), default=ANSWER_SECONDS) >= ANSWER_SECONDS:
            found.append("an honest call took a second")
    return found, f"{connections} sequences of {len(SEQUENCES)} kinds, {closed} ended by it; {seen}"


async def _attack(siege: Siege, connections: int, seed: int) -> int:
    with other_process() as begin:
        ended: int = await begin(attack, siege.port, siege.attacker, siege.folder, connections, seed)
        return ended


def attack(port: int, stored: Credentials, folder: Path, connections: int, seed: int) -> int:
    """Make the connections, several at a time; how many the coordinator ended."""
    return asyncio.run(_all(port, attackers_tls(stored, folder), connections, seed))


async def _all(port: int, tls: ssl.SSLContext, connections: int, seed: int) -> int:
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: None)  # broken TLS is the point
    attempts, rng = iter(range(connections)), random.Random(seed)

    async def some() -> int:
        texts = (SEQUENCES[turn % len(SEQUENCES)](rng) for turn in attempts)
        return sum([await send_bytes(port, text, LISTEN_SECONDS, tls) for text in texts])

    return sum(await asyncio.gather(*(some() for _ in range(AT_ONCE))))
