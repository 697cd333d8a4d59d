"""Attacks of one certificate on everybody else: idle connections, rapid resets, calls and handshakes without
end, studies that take minutes to plan.

The attacker holds the certificates of one site and of one analyst and sits in a process of its own. Passed:
under each attack no honest call was lost, 99 of 100 were answered within a second, also on new connections
and plans, and a study took at most half as long again as just after it, beside the same honest calls. Of
both, the median of all that began and ended meanwhile counts, three at least. The attacker shares the machine
with everybody, which a distant one would not. So it runs at the lowest priority, and the undisturbed studies
run beside a process that uses as much processor time at that priority and attacks nobody. An attack that
slowed studies down, but lost and delayed no call, is tried again, three times in all."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from eigenveil.identity import Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from tests.server.rig import Client, Credentials, answering, study_toml
from tests.torture.front import frames as h2
from tests.torture.front.besieged import (
    HELLO,
    LOST_AFTER,
    LOWEST,
    P99,
    Act,
    Attack,
    Seen,
    Siege,
    attack,
    attackers_tls,
    besieged,
    channel_of,
    other_process,
    send_bytes,
)

IDLE = 600
SECONDS, LEAST_SECONDS = 20.0, 10.0  # of each attack
CALM_SECONDS = 8.0  # after each
SLICE = 0.01
TRIES = 3  # of an attack that slows studies down: a busy machine disturbs one, and a real denial all
STUDIES = 3  # at least, timed before and under each attack
SLOWER = 1.5
PAUSE = 0.02
QUOTA = "max_submissions_per_day = 10000\n"  # a fast machine makes more honest studies than the usual 200
SITES = ("bert", "carl")
MEMBERS = {"anna": Role.SITE, "eve": Role.ANALYST, "ada": Role.ANALYST, "bert": Role.SITE, "carl": Role.SITE}


def faults(name: str, seen: Seen, undisturbed: float) -> list[str]:
    found, few = seen.faults(name), len(seen.studies) < STUDIES
    if few or statistics.median(seen.studies) > SLOWER * undisturbed:
        took = "too long to tell" if few else f"{statistics.median(seen.studies):.2f} s"
        found.append(f"{name}: a study took {took}, {undisturbed:.2f} s undisturbed")
    return found


def saying(at_once: int, listen: float, text: bytes) -> Attack:
    """An attack that connects as the site anna, says this and stays for so long, over and over."""

    async def act(port: int, credentials: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
        tls = attackers_tls(credentials["anna"], folder)

        async def once() -> None:
            await send_bytes(port, text, listen, tls)

        await many(at_once, seconds, once)

    return act


GREET, UNKNOWN = (h2.head(f"{h2.SERVICE}/{name}") for name in ("Hello", "Nothing"))
GREETING = h2.message(HELLO.SerializeToString())
RESETS = b"".join(
    h2.frame(h2.HEADERS, h2.END_HEADERS, n, GREET) + h2.frame(h2.RST_STREAM, 0, n, bytes(4))
    for n in range(1, 400, 2)
)
WAITING = b"".join(
    h2.frame(h2.HEADERS, h2.END_HEADERS, n, UNKNOWN) + h2.data(n, h2.message(b"")) for n in range(1, 400, 2)
)


async def plans(port: int, credentials: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Studies that are as wide as may be, explained again and again."""
    toml = study_toml(columns=2000, components=10, sites=SITES)
    async with channel_of(port, credentials["eve"]) as channel:
        stub = CoordinatorStub(channel)

        async def explain() -> None:
            with suppress(grpc.aio.AioRpcError):
                await stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=toml), timeout=seconds)

        await many(4, seconds, explain)


ATTACKS: dict[str, Attack] = {
    "idle connections": saying(IDLE // 4, 60.0, h2.HELLO),
    "rapid resets": saying(8, 0.02, h2.HELLO + RESETS),
    "handshakes": saying(8, 0.0, b""),
    "calls": saying(4, 2.0, h2.HELLO + b"".join(h2.call(n, "Hello", GREETING) for n in range(1, 2000, 2))),
    "unknown methods": saying(8, 0.5, h2.HELLO + WAITING),  # which wait until gRPC drops them
    "wide plans": plans,
}


async def many(at_once: int, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    """Act over and over, so many at once."""
    until = time.monotonic() + seconds

    async def again() -> None:
        while time.monotonic() < until:
            await act()
            await asyncio.sleep(0)

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(again() for _ in range(at_once)))


async def act(
    name: str, port: int, credentials: Mapping[str, Credentials], folder: Path, seconds: float
) -> None:
    await ATTACKS[name](port, credentials, folder, seconds)


def burn(share: float, seconds: float) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    until, used = time.monotonic() + seconds, time.process_time()
    owed = 0.0
    while time.monotonic() < until:
        owed += SLICE * share
        while time.process_time() - used < owed and time.monotonic() < until:
            pass
        time.sleep(SLICE * max(0.0, 1 - share))


@dataclass(slots=True, kw_only=True)
class Federation:
    """Honest members beside the attacker. `repeats`: a call is lost only if it still fails when it is
    repeated, as every client of ours repeats it, until it would have waited too long."""

    siege: Siege
    credentials: Mapping[str, Credentials]
    ada: Client
    submitted: int = 0
    repeats: bool = False

    async def study(self) -> float:
        self.submitted += 1
        name = f"study-{self.submitted}"
        began = time.monotonic()
        digest = await self.ada.submit(
            study_toml(name=name, sites=SITES, algorithm="dp-pca", epsilon=0.3, components=1), name
        )
        events = await self.ada.events(digest)
        if events[-1].state != pb.STUDY_STATE_RELEASED:
            raise AssertionError(f"{name}: {events[-1].failure}")
        return time.monotonic() - began

    async def under(self, attacking: asyncio.Task[Any]) -> Seen:
        """Studies, calls, new connections and small plans, until the attack is over."""
        seen, repeats = Seen(), LOST_AFTER if self.repeats else 0.0
        watching = asyncio.create_task(
            self.siege.watch(self._acts(), attacking.done, seen, PAUSE, repeats=repeats)
        )
        while not attacking.done():
            try:
                took = await asyncio.wait_for(self.study(), 10 * LOST_AFTER)
            except (TimeoutError, grpc.aio.AioRpcError) as problem:
                seen.lost.append(f"a study: {problem!r}"[:200])
                break
            if not attacking.done():
                seen.studies.append(took)
        await attacking
        return await watching

    def _acts(self) -> list[Act]:
        async def explain() -> None:
            small = pb.ExplainStudyRequest(study_toml=study_toml(sites=SITES))
            await self.ada.stub.ExplainStudy(small, timeout=LOST_AFTER)

        async def greet() -> None:
            await self.ada.stub.Hello(HELLO, timeout=LOST_AFTER)

        return [self.siege.greet_anew, explain, greet, greet, greet]


@asynccontextmanager
async def beside(siege: Siege, *, repeats: bool = False) -> AsyncIterator[Federation]:
    """The honest members of a coordinator that is attacked: sites that answer, and an analyst."""
    async with answering({name: siege.client(name) for name in SITES}):
        yield Federation(siege=siege, credentials=siege.credentials, ada=siege.client("ada"), repeats=repeats)


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """Every attack, one after the other, on one coordinator."""
    seconds = max(LEAST_SECONDS, SECONDS * scale)
    found, response = [], []
    async with besieged(folder, MEMBERS, settings=QUOTA) as siege, beside(siege) as here:
        await here.study()  # what is loaded once is loaded by then
        with other_process() as begin:
            for name in ATTACKS:
                for _ in range(TRIES):
                    attacking = begin(attack, partial(act, name), *siege.attacked, seconds)
                    seen = await here.under(attacking)
                    calm = await here.under(begin(burn, attacking.result(), CALM_SECONDS))
                    undisturbed = statistics.median(calm.studies or [0.0])  # of none: nothing to compare
                    wrong = faults(name, seen, undisturbed)
                    if not wrong or seen.lost or seen.p99() >= P99:
                        break
                found += wrong
                compared = seen.studies and undisturbed
                ratio = statistics.median(seen.studies) / undisturbed if compared else float("inf")
                response.append(f"{name} p99 {1000 * seen.p99():.0f} ms, study x {ratio:.2f}")
        found += siege.faults
    return found, ", ".join(response)
