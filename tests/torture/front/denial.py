"""What one certificate can do to everybody else: idle connections, rapid resets, calls and handshakes without
end, studies that take minutes to plan.

The attacker holds the certificates of one site and of one analyst and sits in a process of its own. Passed:
under each attack no honest call was lost, 99 of 100 were answered within a second, also on new connections
and plans, and a study took at most half as long again as just after it, beside the same honest calls. Of
both, the median of all that began and ended meanwhile counts, three at least. The attacker shares the machine
with everybody, which a distant one would not. So it runs at the lowest priority, and the undisturbed studies
run beside a process that uses as much processor time at that priority and attacks nobody. An attack that
slowed studies down, but lost and delayed no call, is tried again, three times in all.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from eigenveil.identity import Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from tests.server.rig import Client, Credentials, answering, study_toml
from tests.torture.front.besieged import HELLO, Siege, apart, attackers_tls, besieged, channel_of, p99
from tests.torture.front.frames import (
    END_HEADERS,
    HEADERS,
    RST_STREAM,
    SERVICE,
    call,
    data,
    frame,
    head,
    message,
)
from tests.torture.front.frames import HELLO as OPENING
from tests.torture.line import Line

IDLE = 600
SECONDS, LEAST_SECONDS = 20.0, 10.0  # of each attack
CALM_SECONDS = 8.0  # after each
SLICE = 0.01
TRIES = 3  # of an attack that slows studies down: a busy machine disturbs one, and a real denial all
STUDIES = 3  # at least, timed before and under each attack
LOST_AFTER = 10.0
P99, SLOWER = 1.0, 1.5
PAUSE = 0.02
LOWEST = 19  # of all priorities
SITES = ("bert", "carl")
MEMBERS = {"anna": Role.SITE, "eve": Role.ANALYST, "ada": Role.ANALYST, "bert": Role.SITE, "carl": Role.SITE}
Attack = Callable[[int, Mapping[str, Credentials], Path, float], Coroutine[object, object, None]]


@dataclass(slots=True)
class Honest:
    """What honest callers saw during one attack; times in seconds."""

    waits: list[float] = field(default_factory=list)
    lost: int = 0
    studies: list[float] = field(default_factory=list)

    @property
    def p99(self) -> float:
        """Ninety-nine of a hundred calls took no longer."""
        return p99(self.waits)


def faults(name: str, honest: Honest, undisturbed: float) -> list[str]:
    """What an attack did that it should not be able to."""
    found = lost_or_late(name, honest)
    few = len(honest.studies) < STUDIES
    if few or statistics.median(honest.studies) > SLOWER * undisturbed:
        took = "too long to tell" if few else f"{statistics.median(honest.studies):.2f} s"
        found.append(f"{name}: a study took {took}, {undisturbed:.2f} s undisturbed")
    return found


def lost_or_late(name: str, honest: Honest) -> list[str]:
    """The calls that an attack cost somebody else."""
    found = []
    if honest.lost:
        found.append(f"{name}: {honest.lost} of {len(honest.waits)} honest calls lost")
    if honest.p99 >= P99:
        found.append(f"{name}: p99 {honest.p99:.2f} s")
    return found


# ------------------------------------------------------------------ the attacks, in a process of their own


async def idle(port: int, held: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Connections that never make a call, opened again as they are closed."""
    tls = attackers_tls(held["anna"], folder)
    await many(IDLE // 4, seconds, partial(_say, port, tls, OPENING, 60.0))


async def resets(port: int, held: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Calls that are taken back at once, 200 at a time."""
    tls, opened = attackers_tls(held["anna"], folder), head(f"{SERVICE}/Hello")
    calls = (
        frame(HEADERS, END_HEADERS, n, opened) + frame(RST_STREAM, 0, n, bytes(4)) for n in range(1, 400, 2)
    )
    await many(8, seconds, partial(_say, port, tls, OPENING + b"".join(calls), 0.02))


async def handshakes(port: int, held: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    await many(8, seconds, partial(_say, port, attackers_tls(held["anna"], folder), b"", 0.0))


async def calls(port: int, held: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """More calls than anybody can answer."""
    greeting = message(HELLO.SerializeToString())
    text = OPENING + b"".join(call(n, "Hello", greeting) for n in range(1, 2000, 2))
    await many(4, seconds, partial(_say, port, attackers_tls(held["anna"], folder), text, 2.0))


async def unknown(port: int, held: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Calls of a method that there is not, which wait until gRPC drops them."""
    opened = head(f"{SERVICE}/Nothing")
    text = OPENING + b"".join(
        frame(HEADERS, END_HEADERS, n, opened) + data(n, message(b"")) for n in range(1, 400, 2)
    )
    await many(8, seconds, partial(_say, port, attackers_tls(held["anna"], folder), text, 0.5))


async def plans(port: int, held: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Studies that are as wide as may be, explained again and again."""
    toml = study_toml(columns=2000, components=10, sites=SITES)
    async with channel_of(port, held["eve"]) as channel:
        stub = CoordinatorStub(channel)

        async def explain() -> None:
            with suppress(grpc.aio.AioRpcError):
                await stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=toml), timeout=seconds)

        await many(4, seconds, explain)


ATTACKS: dict[str, Attack] = {
    "idle connections": idle, "rapid resets": resets, "handshakes": handshakes,
    "calls": calls, "unknown methods": unknown, "wide plans": plans,
}  # fmt: skip


async def many(at_once: int, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    """Act over and over, so many at once."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: None)  # broken TLS is the point
    until = time.monotonic() + seconds

    async def again() -> None:
        while time.monotonic() < until:
            await act()
            await asyncio.sleep(0)

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(again() for _ in range(at_once)))


async def _say(port: int, tls: ssl.SSLContext, text: bytes, listen: float) -> None:
    """Connect, say it, and stay for so long or until the other end has had enough."""
    try:
        async with asyncio.timeout(listen + 10.0):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    except (OSError, TimeoutError):
        await asyncio.sleep(0.01)
        return
    writer.write(text)
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(listen):
            while await reader.read(65_536):
                pass
    writer.transport.abort()


def attack(name: str, port: int, held: Mapping[str, Credentials], folder: Path, seconds: float) -> float:
    """Run one of `ATTACKS` to its end; return the share of a processor that it used."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    began, used = time.monotonic(), time.process_time()
    asyncio.run(ATTACKS[name](port, held, folder, seconds))
    return (time.process_time() - used) / (time.monotonic() - began)


def burn(share: float, seconds: float) -> None:
    """Use that share of a processor, in slices, and attack nobody."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    until, used = time.monotonic() + seconds, time.process_time()
    owed = 0.0
    while time.monotonic() < until:
        owed += SLICE * share
        while time.process_time() - used < owed and time.monotonic() < until:
            pass
        time.sleep(SLICE * max(0.0, 1 - share))


# ------------------------------------------------------------------ everybody else


@dataclass(slots=True, kw_only=True)
class Federation:
    """Honest members beside the attacker. `repeats`: a call is lost only if it still fails when it is
    repeated, as every client of ours repeats it, until it would have waited too long."""

    siege: Siege
    held: Mapping[str, Credentials]
    ada: Client
    asked: int = 0
    repeats: bool = False

    async def study(self) -> float:
        self.asked += 1
        name = f"study-{self.asked}"
        began = time.monotonic()
        digest = await self.ada.submit(
            study_toml(name=name, sites=SITES, algorithm="dp-pca", epsilon=0.3, components=1), name
        )
        events = await self.ada.events(digest)
        if events[-1].state != pb.STUDY_STATE_RELEASED:
            raise AssertionError(f"{name}: {events[-1].failure}")
        return time.monotonic() - began

    async def under(self, attacking: asyncio.Task[Any]) -> Honest:
        """Studies, calls, new connections and small plans, until the attack is over."""
        honest = Honest()
        asking = asyncio.create_task(self._ask(honest, attacking))
        while not attacking.done():
            try:
                took = await asyncio.wait_for(self.study(), 10 * LOST_AFTER)
            except (TimeoutError, grpc.aio.AioRpcError):
                honest.lost += 1
                break
            if not attacking.done():
                honest.studies.append(took)
        await attacking
        await asking
        return honest

    async def _ask(self, honest: Honest, attacking: asyncio.Task[Any]) -> None:
        turn = 0
        while not attacking.done():
            turn += 1
            began = time.monotonic()
            while not await self._answered(turn):
                if not self.repeats or time.monotonic() - began > LOST_AFTER:
                    honest.lost += 1
                    break
                await asyncio.sleep(PAUSE)
            honest.waits.append(time.monotonic() - began)
            await asyncio.sleep(PAUSE)

    async def _answered(self, turn: int) -> bool:
        """Call once: over a new connection, for a small plan, or just so."""
        try:
            if turn % 5 == 0:
                async with self.siege.channel(self.held["ada"]) as channel:
                    await CoordinatorStub(channel).Hello(HELLO, timeout=LOST_AFTER)
                self.siege.channels.pop()
            elif turn % 5 == 1:
                small = pb.ExplainStudyRequest(study_toml=study_toml(sites=SITES))
                await self.ada.stub.ExplainStudy(small, timeout=LOST_AFTER)
            else:
                await self.ada.stub.Hello(HELLO, timeout=LOST_AFTER)
        except grpc.aio.AioRpcError:
            return False
        return True


@asynccontextmanager
async def beside(siege: Siege, *, repeats: bool = False) -> AsyncIterator[Federation]:
    """The honest members of a coordinator that is attacked: sites that answer, and an analyst."""
    async with answering({name: siege.client(name) for name in SITES}):
        yield Federation(siege=siege, held=siege.held, ada=siege.client("ada"), repeats=repeats)


def run(scale: float) -> Line:
    """Every attack, one after the other, on one coordinator."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(deny(Path(folder), tuple(ATTACKS), scale))


async def deny(
    folder: Path, names: Sequence[str], scale: float, command: Sequence[str] = ("eigenveil_server.cli",)
) -> Line:
    """The named attacks on a coordinator that `command` serves."""
    found, response = [], []
    async with besieged(folder, command, MEMBERS) as siege, beside(siege) as here:
        await here.study()  # what is loaded once is loaded by then
        with apart() as begin:
            for name in names:
                words = (name, siege.port, siege.held, folder, max(LEAST_SECONDS, SECONDS * scale))
                for _ in range(TRIES):
                    attacking = begin(attack, *words)
                    honest = await here.under(attacking)
                    calm = await here.under(begin(burn, attacking.result(), CALM_SECONDS))
                    undisturbed = statistics.median(calm.studies)
                    wrong = faults(name, honest, undisturbed)
                    if not wrong or honest.lost or honest.p99 >= P99:
                        break
                found += wrong
                ratio = statistics.median(honest.studies) / undisturbed if honest.studies else float("inf")
                response.append(f"{name} p99 {1000 * honest.p99:.0f} ms, study x {ratio:.2f}")
        if siege.fate:
            found.append(siege.fate)
    detail = "; ".join(found) if found else ", ".join(response)
    return Line(number=6, title="denial by one certificate", passed=not found, detail=detail)
