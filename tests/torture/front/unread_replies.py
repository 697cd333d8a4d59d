"""Replies that nobody reads: three certificates ask for a dictionary of 0.9 MB and grant no window for it.

They read all that comes, so that TCP shows nothing of it, and come back as soon as they are let go. Passed:
under each attack no honest call was lost, 99 of 100 were answered within a second, among them calls for the
same dictionary, and the coordinator's memory never stood 128 MiB above where it was. The first attack
lasts for longer than a stream may be stuck, and is ended by the coordinator, which says why."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn
from eigenveil.dictionary.formats import sign_dictionary
from eigenveil.identity import Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from eigenveil_server.front.http2 import STUCK_SECONDS
from eigenveil_server.storage import directory
from tests.server.rig import Credentials, Rig
from tests.torture.front import frames as h2
from tests.torture.front.besieged import (
    LOST_AFTER,
    MIB,
    Act,
    Seen,
    Siege,
    attack,
    attackers_tls,
    besieged,
    other_process,
)

ATTACKERS = ("eve", "mallory", "trudy")
MEMBERS = {**dict.fromkeys(ATTACKERS, Role.ANALYST), "ada": Role.ANALYST, "anna": Role.SITE}
MOST_GROWTH = 128 * MIB
COLUMNS, MEANING = 1900, "m" * 400
CONNECTIONS, CALLS = 8, 100  # of each certificate; of each connection
SECONDS, LEAST_SECONDS, PAUSE = 30.0, 10.0, 0.02
LASTING, LASTING_SECONDS = "no window", STUCK_SECONDS + 15.0  # longer than a stream may be stuck
INITIAL_WINDOW_SIZE, WIDE = 4, 2**30
NOTHING = h2.frame(h2.SETTINGS, h2.ACK, 0)
REQUESTED = tuple(range(1, 2 * CALLS, 2))
CALLED = b"".join(h2.call(number, "GetDictionary", h2.message(b"")) for number in REQUESTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """First bytes of each connection, and the bytes that it repeats each second."""

    first: bytes
    more: Callable[[int], bytes] = lambda second: b""


def _windows(size: int) -> bytes:
    return h2.PREFACE + h2.settings((INITIAL_WINDOW_SIZE, size)) + NOTHING


ATTACKS = {
    "no window": Attack(first=_windows(0) + CALLED),
    "a byte a second": Attack(
        first=_windows(0) + CALLED,
        more=lambda _: b"".join(h2.window_update(number, 1) for number in REQUESTED[:40]),
    ),
    "small windows of streams": Attack(first=_windows(100) + h2.window_update(0, WIDE) + CALLED),
    "small window of the connection": Attack(first=_windows(WIDE) + CALLED),
    "window taken back": Attack(
        first=h2.PREFACE + h2.settings() + NOTHING + h2.settings((INITIAL_WINDOW_SIZE, 0)) + CALLED,
        more=lambda second: h2.settings((INITIAL_WINDOW_SIZE, second % 2)),
    ),
    "priorities": Attack(
        first=_windows(0) + CALLED, more=lambda _: h2.frame(h2.PRIORITY, 0, 1, bytes(5)) * 500
    ),
}


async def hold(
    name: str, port: int, credentials: Mapping[str, Credentials], folder: Path, seconds: float
) -> None:
    """One of `ATTACKS` by all connections of three certificates, without end."""
    ways = [
        attackers_tls(credentials[attacker], folder) for attacker in ATTACKERS for _ in range(CONNECTIONS)
    ]
    await asyncio.gather(*(_again(ATTACKS[name], port, tls) for tls in ways))


async def _again(one: Attack, port: int, tls: ssl.SSLContext) -> None:
    while True:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(2 * STUCK_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
                writer.write(one.first)
                talking = asyncio.create_task(_talk(one, writer))
                try:
                    while piece := await reader.read(65_536):
                        writer.write(_pongs(piece))
                finally:
                    talking.cancel()
                    writer.transport.abort()
        await asyncio.sleep(0.1)


def _pongs(text: bytes) -> bytes:
    """The answers to pings: gRPC itself lets go whoever gives none, after a minute."""
    pings = [payload for kind, flags, _, payload in h2.parse(text) if kind == h2.PING and not flags & h2.ACK]
    return b"".join(h2.frame(h2.PING, h2.ACK, 0, payload) for payload in pings)


async def _talk(one: Attack, writer: asyncio.StreamWriter) -> None:
    for second in count():
        await asyncio.sleep(1.0)
        writer.write(one.more(second))


async def publish(rig: Rig, folder: Path) -> None:
    columns = tuple(
        DictionaryColumn(name=f"c{index}", meaning=MEANING, lower=-1.0, upper=1.0, source="known")
        for index in range(COLUMNS)
    )
    large = Dictionary(name="large", version=1, columns=columns)
    signed = sign_dictionary(large, rig.config.federation, rig.daemon.runtime.keys.release.sign)
    with rig.daemon.runtime.repository.store.writer.transaction() as change:
        directory.publish(change, large, signed, 0)


def acts(siege: Siege) -> list[Act]:
    """Greetings of a site and of an analyst, the dictionary, and greetings on new connections."""
    ada, anna = siege.greeter("ada"), siege.greeter("anna")
    stub = CoordinatorStub(siege.channel(siege.credentials["ada"]))

    async def read() -> None:
        await stub.GetDictionary(pb.GetDictionaryRequest(), timeout=LOST_AFTER)

    return [siege.greet_anew, read, *[ada, anna] * 4]


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """Every attack, one after the other, on one coordinator."""
    found, result, lasted = list[str](), list[str](), False
    async with besieged(folder, MEMBERS, publish) as siege:
        calls = acts(siege)
        with other_process() as begin:
            for name in ATTACKS:
                seconds = max(LEAST_SECONDS, scale * (LASTING_SECONDS if name == LASTING else SECONDS))
                lasted |= seconds > STUCK_SECONDS
                attacking = begin(attack, partial(hold, name), *siege.attacked, seconds)
                seen = await siege.watch(calls, attacking.done, Seen(), PAUSE)
                await attacking
                found += seen.faults(name, MOST_GROWTH)
                result.append(f"{name} {seen}")
        found += siege.faults
        if lasted and b"why=unread" not in siege.errors.read_bytes():
            found.append("no caller that did not read was let go")
    return found, ", ".join(result)
