"""Every limit of a coordinator that costs memory, reached at the same time by many certificates.

Each attack is one row of `ATTACKS`: a coroutine that reaches its limits and stays there. All of them run at
once, in a process at the lowest priority, beside honest studies and calls. Passed: the coordinator and the
processes that it started never had 2 GiB together, no honest call was lost, and 99 of 100 were answered
within a second.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import numpy as np

from eigenveil.identity import Role
from eigenveil_common.rpc import CHUNK_BYTES, MESSAGE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from eigenveil_server.planning.pool import SMALL_BYTES
from tests.fuzz.hunt import resident_bytes
from tests.server.rig import Client, Credentials, study_toml
from tests.torture.front import declined_floods, denial, half_sent, unread_replies
from tests.torture.front.besieged import HELLO, apart, attackers_tls, besieged, channel_of, client_hello
from tests.torture.front.denial import Attack, Federation
from tests.torture.front.frames import HELLO as OPENING
from tests.torture.line import Line

MOST_BYTES = 2 * 2**30
SECONDS, LEAST_SECONDS = 90.0, 30.0
LOOK_SECONDS = 0.02
STRANGERS, CROWD = 1200, 96  # sockets; certificates with 16 connections each fill the listener
WIDE = unread_replies.COLUMNS  # columns: an answer of 16 MB, of which four fit the places for uploads
UPLOADERS = ("dora", "emil", "fred", "gina")
ANALYSTS = ("eve", "mallory", "trudy", "ruth")
POLLS, WATCHES, LISTS, LARGE = 32, 16, 8, 3
HALF_SENT = 3  # of one certificate, which may send four
HELD_SECONDS = 600


def crowd(stored: Mapping[str, Credentials]) -> list[Credentials]:
    """The certificates of those who only attack."""
    return [one for name, one in stored.items() if name.startswith("crowd")]


@contextmanager
def _quiet() -> Iterator[None]:
    """Whatever the coordinator refuses is the point."""
    with suppress(OSError, TimeoutError, ssl.SSLError, grpc.aio.AioRpcError):
        yield


async def _stay(seconds: float, acts: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Act over and over, all of them at once."""

    async def again(act: Callable[[], Awaitable[None]]) -> None:
        while True:
            with _quiet():
                await act()
            await asyncio.sleep(0.05)

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*map(again, acts))


async def _sit(port: int, message: bytes, address: str, tls: ssl.SSLContext | None) -> None:
    """Connect from an address, say it, and stay until the other end has had enough."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, local_addr=(address, 0))
    try:
        writer.write(message)
        while await reader.read(65_536):
            pass
    finally:
        writer.transport.abort()


@asynccontextmanager
async def _stub(port: int, stored: Credentials) -> AsyncIterator[Client]:
    async with channel_of(port, stored, [("grpc.max_send_message_length", 2 * MESSAGE_BYTES)]) as channel:
        yield Client(name=stored.name, stub=CoordinatorStub(channel), channel=channel)


async def strangers(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Sockets that say nothing, or half of a ClientHello, or all of it."""
    hello = client_hello()
    message, count = (b"", hello[:100], hello), STRANGERS
    await _stay(
        seconds,
        [partial(_sit, port, message[n % 3], f"127.0.1.{1 + n % 200}", None) for n in range(count)],
    )


async def connections(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """As many connections as each certificate may have."""
    acts = []
    for place, one in enumerate(crowd(stored)):
        tls, address = attackers_tls(one, folder), f"127.0.2.{1 + place % 200}"
        acts += [partial(_sit, port, OPENING, address, tls)] * 12
    await _stay(seconds, acts)


async def requests(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Messages of 4 MiB but for their last byte: one certificate less than it may, all more than there is."""
    acts = [
        partial(half_sent.hold, port, attackers_tls(one, folder), HALF_SENT, HELD_SECONDS)
        for one in crowd(stored)
    ]
    await _stay(seconds, acts)


async def large(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Whole messages of 4 MiB that are refused when they have come."""
    async with _stub(port, stored["trudy"]) as trudy:
        message = pb.SubmitStudyRequest(study_toml="#" * (MESSAGE_BYTES - 100), submission="large")

        async def send() -> None:
            await trudy.stub.SubmitStudy(message)

        await _stay(seconds, [send] * LARGE)


async def plans(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Studies that take all the memory of each lane of planning."""
    rows = ",".join(f'{{name="c{n}",unit="",lower=0,upper=1}}' for n in range(700))
    narrow = study_toml(columns=0, components=690, algorithm="dp-pca", sites=UPLOADERS)
    small = f"columns=[{rows}]\n{narrow}"
    assert len(small) <= SMALL_BYTES
    wide = study_toml(columns=WIDE, components=1900, algorithm="dp-pca", sites=UPLOADERS)
    deep = f"{narrow}\n{'a.' * 10_000}a = 1"
    async with _stub(port, stored["eve"]) as eve, _stub(port, stored["mallory"]) as mallory:

        async def explain(analyst: Client, toml: str) -> None:
            await analyst.stub.ExplainStudy(pb.ExplainStudyRequest(study_toml=toml))

        acts = [(eve, wide), (mallory, small), (mallory, deep), (eve, deep)]
        await _stay(seconds, [partial(explain, *act) for act in acts])


async def uploads(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Answers of 16 MB of as many sites as there are places, all but the last chunk of each."""
    await _stay(seconds, [partial(_upload, port, stored[name]) for name in UPLOADERS])


async def invite(port: int, stored: Mapping[str, Credentials]) -> None:
    """Have a wide study ask its first question of all who will upload."""
    toml = study_toml(
        name="wide", columns=WIDE, components=2, epsilon=1.0, sites=UPLOADERS, deadline_seconds=HELD_SECONDS
    )

    async def agree(name: str) -> None:
        async with _stub(port, stored[name]) as site:
            await site.stub.Hello(HELLO)
            await site.query()

    async with _stub(port, stored["trudy"]) as trudy:
        await trudy.submit(toml, "wide")
    await asyncio.gather(*map(agree, UPLOADERS))


async def _upload(port: int, stored: Credentials) -> None:
    async with _stub(port, stored) as site:
        await site.stub.Hello(HELLO)
        round_query = await site.query()
        values = np.zeros(round_query.query.length, dtype=np.int64)
        message = site.contribution(round_query, values)
        opened = await site.open_upload(message)
        for index, start in enumerate(range(0, len(message.values) - CHUNK_BYTES, CHUNK_BYTES)):
            piece = message.values[start : start + CHUNK_BYTES]
            await site.stub.PutChunk(pb.PutChunkRequest(upload=opened.upload, index=index, data=piece))
        await asyncio.sleep(HELD_SECONDS)


async def polls(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:

    async def wait(one: Credentials) -> None:
        async with _stub(port, one) as site:
            round_query = [site.stub.NextWork(pb.NextWorkRequest()) for _ in range(POLLS)]
            await asyncio.gather(*round_query, return_exceptions=True)

    await _stay(seconds, [partial(wait, one) for one in crowd(stored)])


async def readers(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Watches of studies, and lists of everything."""

    async def look(analyst: Client) -> None:
        await analyst.stub.ListStudies(pb.ListStudiesRequest())
        await analyst.stub.ListSites(pb.ListSitesRequest())

    async def watch(analyst: Client) -> None:
        (first, *_) = (await analyst.stub.ListStudies(pb.ListStudiesRequest())).studies
        async for _ in analyst.stub.WatchStudy(pb.WatchStudyRequest(plan_digest=first.plan_digest)):
            pass

    async with _stub(port, stored["eve"]) as eve, _stub(port, stored["trudy"]) as trudy:
        acts = [partial(look, one) for one in (eve, trudy) for _ in range(LISTS)]
        acts += [partial(watch, one) for one in (eve, trudy) for _ in range(WATCHES // 2)]
        await _stay(seconds, acts)


async def unread(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Dictionaries that are asked for and not read, on the connections of three certificates."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await unread_replies.hold("no window", port, stored, folder)


async def submissions(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Signed studies as fast as they are taken, and lists of them."""
    wide, small = (study_toml(columns=columns, sites=("anna",), epsilon=0.3) for columns in (WIDE, 4))
    await declined_floods.submit_and_list(port, stored["ruth"], seconds, wide, small)


ATTACKS: dict[str, Attack] = {
    "strangers": strangers,
    "connections": connections,
    "half-sent requests": requests,
    "large requests": large,
    "plans": plans,
    "uploads": uploads,
    "long polls": polls,
    "watches and lists": readers,
    "unread replies": unread,
    "submissions": submissions,
}


@dataclass(slots=True)
class Memory:
    """The most that the coordinator, the processes that it started, and all of them had at any moment."""

    daemon: int = 0
    children: int = 0
    group: int = 0

    async def watch(self, pid: int) -> None:
        while True:
            with suppress(FileNotFoundError, IndexError):
                daemon, children = resident_bytes(pid), sum(map(_resident, started_by(pid)))
                self.daemon, self.children = max(self.daemon, daemon), max(self.children, children)
                self.group = max(self.group, daemon + children)
            await asyncio.sleep(LOOK_SECONDS)


def _resident(pid: int) -> int:
    with suppress(FileNotFoundError, IndexError):
        return resident_bytes(pid)
    return 0


def started_by(pid: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    found = []
    for threads in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in threads.read_text().split()]
    return found + [inner for child in found for inner in started_by(child)]


def attack(
    port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float, names: Sequence[str]
) -> None:
    """Run the named attacks at once, to their end."""
    os.setpriority(os.PRIO_PROCESS, 0, denial.LOWEST)

    async def all_of_them() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, about: None)  # broken TLS is the point
        await asyncio.gather(*(ATTACKS[name](port, stored, folder, seconds) for name in names))

    asyncio.run(all_of_them())


def run(scale: float) -> Line:
    """Every attack at once on one coordinator."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(besiege(Path(folder), tuple(ATTACKS), scale))


@asynccontextmanager
async def federation(folder: Path, scale: float) -> AsyncIterator[Federation]:
    """As of `denial`, with everybody who attacks."""
    many = [f"crowd-{n}" for n in range(max(3, int(CROWD * scale)))]
    members = dict(denial.MEMBERS)
    members |= dict.fromkeys((*many, *UPLOADERS), Role.SITE) | dict.fromkeys(ANALYSTS, Role.ANALYST)
    async with (
        besieged(folder, members=members, prepare=unread_replies.publish) as siege,
        denial.beside(siege, repeats=True) as here,
    ):
        yield here


async def besiege(folder: Path, names: Sequence[str], scale: float) -> Line:
    seconds, memory = max(LEAST_SECONDS, SECONDS * scale), Memory()
    async with federation(folder, scale) as here:
        await here.study()  # what is loaded once is loaded by then
        if "uploads" in names:
            await invite(here.siege.port, here.held)
        watching = asyncio.create_task(memory.watch(here.siege.process.pid))
        with apart() as begin:
            honest = await here.under(begin(attack, here.siege.port, here.held, folder, seconds, names))
        watching.cancel()
        found = faults(memory, honest, here.siege.fate)
    result = (
        f"the coordinator at most {memory.daemon / 2**20:.0f} MiB, its processes "
        f"{memory.children / 2**20:.0f}, together {memory.group / 2**20:.0f} of {MOST_BYTES / 2**20:.0f}; "
        f"{len(honest.waits)} honest calls, p99 {1000 * honest.p99:.0f} ms, {len(honest.studies)} studies"
    )
    detail = "; ".join([*found, result])
    return Line(
        number=6, title="all limits at once", passed=not found, detail=detail,
    )  # fmt: skip


def faults(memory: Memory, honest: denial.Honest, fate: str) -> list[str]:
    """What the attacks did that they should not be able to."""
    found = [fate] if fate else []
    if memory.group >= MOST_BYTES:
        found.append("more memory than is promised")
    if honest.lost:
        found.append(f"{honest.lost} honest calls lost")
    if honest.p99 >= denial.P99:
        found.append(f"p99 {honest.p99:.2f} s")
    if not honest.studies:
        found.append("no honest study ended")
    return found
