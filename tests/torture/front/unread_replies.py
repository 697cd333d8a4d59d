"""Replies that nobody reads: three certificates ask for a dictionary of 0.9 MB and grant no window for it.

They read all that comes, so that TCP shows nothing of it, and come back as soon as they are let go. Passed:
under each attack no honest call was lost, 99 of 100 were answered within a second, among them calls for the
same dictionary, and the coordinator's memory never stood 128 MiB above where it was. The first attack
lasts for longer than a stream may be stuck, and is ended by the coordinator, which says why.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import grpc

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn
from eigenveil.dictionary.formats import sign_dictionary
from eigenveil.identity import Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from eigenveil_server.front.http2 import STUCK_SECONDS
from eigenveil_server.storage import directory
from tests.fuzz.hunt import resident_bytes
from tests.server.rig import Credentials, Rig
from tests.torture.front.besieged import HELLO, Siege, apart, attackers_tls, besieged, p99
from tests.torture.front.denial import LOST_AFTER, LOWEST, P99, PAUSE
from tests.torture.front.frames import (
    ACK,
    PING,
    PREFACE,
    PRIORITY,
    SETTINGS,
    call,
    frame,
    message,
    parse,
    settings,
    window_update,
)
from tests.torture.line import Line

ATTACKERS = ("eve", "mallory", "trudy")
MEMBERS = {**dict.fromkeys(ATTACKERS, Role.ANALYST), "ada": Role.ANALYST, "anna": Role.SITE}
MOST_GROWTH = 128 * 2**20
COLUMNS, MEANING = 1900, "m" * 400
CONNECTIONS, CALLS = 8, 100  # of each certificate; of each connection
SECONDS, LEAST_SECONDS = 30.0, 10.0
LASTING, LASTING_SECONDS = "no window", STUCK_SECONDS + 15.0  # longer than a stream may be stuck
INITIAL_WINDOW_SIZE, WIDE = 4, 2**30
NOTHING = frame(SETTINGS, ACK, 0)
ASKED = tuple(range(1, 2 * CALLS, 2))
CALLED = b"".join(call(number, "GetDictionary", message(b"")) for number in ASKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What each connection begins with, and what it goes on to say each second."""

    opening: bytes
    more: Callable[[int], bytes] = lambda second: b""


def _windows(size: int) -> bytes:
    return PREFACE + settings((INITIAL_WINDOW_SIZE, size)) + NOTHING


def _each(by: int) -> bytes:
    return b"".join(window_update(number, by) for number in ASKED[:40])


ATTACKS = {
    "no window": Attack(opening=_windows(0) + CALLED),
    "a byte a second": Attack(opening=_windows(0) + CALLED, more=lambda second: _each(1)),
    "small windows of streams": Attack(opening=_windows(100) + window_update(0, WIDE) + CALLED),
    "small window of the connection": Attack(opening=_windows(WIDE) + CALLED),
    "window taken back": Attack(
        opening=PREFACE + settings() + NOTHING + settings((INITIAL_WINDOW_SIZE, 0)) + CALLED,
        more=lambda second: settings((INITIAL_WINDOW_SIZE, second % 2)),
    ),
    "priorities": Attack(
        opening=_windows(0) + CALLED, more=lambda second: frame(PRIORITY, 0, 1, bytes(5)) * 500
    ),
}


@dataclass(slots=True)
class Seen:
    """What honest callers saw; `growth` of the coordinator's memory in bytes."""

    waits: list[float] = field(default_factory=list)
    lost: int = 0
    growth: int = 0
    last: str = ""

    @property
    def p99(self) -> float:
        return p99(self.waits)

    def faults(self, name: str) -> list[str]:
        """What the attack did that it should not be able to."""
        found = (
            [f"{name}: {self.lost} of {len(self.waits)} honest calls lost ({self.last})"] if self.lost else []
        )
        found += [f"{name}: p99 {self.p99:.2f} s"] if self.p99 >= P99 else []
        return found + ([f"{name}: +{self.growth / 2**20:.0f} MiB"] if self.growth >= MOST_GROWTH else [])


# ------------------------------------------------------------------ the attackers, in a process of their own


def attack(name: str, port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Let three certificates do this until the time is over."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    asyncio.run(_attack(name, port, stored, folder, seconds))


async def _attack(
    name: str, port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: None)  # broken TLS is the point
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await hold(name, port, stored, folder)


async def hold(name: str, port: int, stored: Mapping[str, Credentials], folder: Path) -> None:
    """One of `ATTACKS` by all connections of three certificates, without end."""
    ways = [attackers_tls(stored[attacker], folder) for attacker in ATTACKERS for _ in range(CONNECTIONS)]
    await asyncio.gather(*(_again(ATTACKS[name], port, tls) for tls in ways))


async def _again(one: Attack, port: int, tls: ssl.SSLContext) -> None:
    while True:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(2 * STUCK_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
                writer.write(one.opening)
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
    pings = [payload for kind, flags, _, payload in parse(text) if kind == PING and not flags & ACK]
    return b"".join(frame(PING, ACK, 0, payload) for payload in pings)


async def _talk(one: Attack, writer: asyncio.StreamWriter) -> None:
    for second in count():
        await asyncio.sleep(1.0)
        writer.write(one.more(second))


# ------------------------------------------------------------------ everybody else


async def publish(rig: Rig, folder: Path) -> None:
    """Put a dictionary of 0.9 MB in force."""
    columns = tuple(
        DictionaryColumn(name=f"c{index}", meaning=MEANING, lower=-1.0, upper=1.0, source="known")
        for index in range(COLUMNS)
    )
    large = Dictionary(name="large", version=1, columns=columns)
    signed = sign_dictionary(large, rig.config.federation, rig.daemon.runtime.keys.release.sign)
    with rig.daemon.runtime.repository.store.writer.transaction() as change:
        directory.publish(change, large, signed, 0)


async def _ask(siege: Siege, attacking: asyncio.Task[None]) -> Seen:
    """Greetings of a site and of an analyst, the dictionary, and greetings on new connections."""
    seen, before = Seen(), resident_bytes(siege.process.pid)
    ada, anna = (CoordinatorStub(siege.channel(siege.held[name])) for name in ("ada", "anna"))
    for turn in count():
        if attacking.done() or siege.process.returncode is not None:
            break
        began = time.monotonic()
        try:
            if turn % 10 == 0:
                async with siege.channel(siege.held["ada"]) as channel:
                    await CoordinatorStub(channel).Hello(HELLO, timeout=LOST_AFTER)
                siege.channels.pop()
            elif turn % 10 == 1:
                await ada.GetDictionary(pb.GetDictionaryRequest(), timeout=LOST_AFTER)
            else:
                await (ada, anna)[turn % 2].Hello(HELLO, timeout=LOST_AFTER)
        except grpc.aio.AioRpcError as problem:
            seen.lost += 1
            seen.last = f"{problem.code().name}: {problem.details()}"
        seen.waits.append(time.monotonic() - began)
        seen.growth = max(seen.growth, resident_bytes(siege.process.pid) - before)
        await asyncio.sleep(PAUSE)
    await attacking
    return seen


def run(scale: float) -> Line:
    """Every attack, one after the other, on one coordinator."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(besiege(Path(folder), tuple(ATTACKS), scale))


async def besiege(
    folder: Path, names: Sequence[str], scale: float, command: Sequence[str] = ("eigenveil_server.cli",)
) -> Line:
    """The named attacks on a coordinator that `command` serves."""
    found, result, growth, lasted = list[str](), list[str](), 0, False
    async with besieged(folder, command, MEMBERS, publish) as siege:
        with apart() as begin:
            for name in names:
                seconds = max(LEAST_SECONDS, scale * (LASTING_SECONDS if name == LASTING else SECONDS))
                lasted |= seconds > STUCK_SECONDS
                seen = await _ask(siege, begin(attack, name, siege.port, siege.held, folder, seconds))
                found += seen.faults(name)
                growth = max(growth, seen.growth)
                result.append(f"{name} p99 {1000 * seen.p99:.0f} ms, +{seen.growth / 2**20:.0f} MiB")
        if siege.fate:
            found.append(siege.fate)
        if lasted and b"why=unread" not in siege.errors.read_bytes():
            found.append("nobody who did not read was let go")
    detail = "; ".join(found) if found else ", ".join(result)
    return Line(
        number=6, title="unread replies", passed=not found, detail=detail,
    )  # fmt: skip
