"""Every limit of a coordinator that costs memory, reached at the same time by many certificates.

Each attack is one row of `ATTACKS`: a coroutine that reaches its limits and stays there. All of them run at
once, in a process at the lowest priority, beside honest studies and calls. Passed: the coordinator and the
processes that it started never had 2 GiB together, no honest call was lost, and 99 of 100 were answered
within a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import numpy as np

from eigenveil.identity import Role
from eigenveil_common.rpc import CHUNK_BYTES, MESSAGE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.planning.pool import SMALL_BYTES
from tests.fuzz.hunt import resident_bytes
from tests.server.rig import Client, Credentials, study_toml
from tests.torture.front import declined_floods, denial, half_sent, unread_replies
from tests.torture.front import frames as h2
from tests.torture.front.besieged import (
    HELLO,
    MIB,
    Attack,
    attack,
    attackers_tls,
    besieged,
    client_hello,
    client_of,
    other_process,
    send_bytes,
)

MOST_BYTES = 2048 * MIB
SECONDS, LEAST_SECONDS = 90.0, 30.0
LOOK_SECONDS = 0.02
STRANGERS, CROWD = 1200, 96  # sockets; certificates with 16 connections each fill the listener
WIDE = unread_replies.COLUMNS  # columns: an answer of 16 MB, of which four fit the places for uploads
UPLOADERS = ("dora", "emil", "fred", "gina")
ANALYSTS = ("eve", "mallory", "trudy", "ruth")
POLLS, WATCHES, LISTS, LARGE = 32, 16, 8, 3
HALF_SENT = 3  # of one certificate, which may send four
STAY_SECONDS = 600
REFUSALS = (OSError, TimeoutError, grpc.aio.AioRpcError)  # of a coordinator: they are the point


def crowd(stored: Mapping[str, Credentials]) -> list[Credentials]:
    return [one for name, one in stored.items() if name.startswith("crowd")]


async def _stay(acts: Sequence[Callable[[], Awaitable[object]]]) -> None:
    async def again(act: Callable[[], Awaitable[object]]) -> None:
        while True:
            with suppress(*REFUSALS):
                await act()
            await asyncio.sleep(0.05)

    await asyncio.gather(*map(again, acts))


@asynccontextmanager
async def _stub(port: int, stored: Credentials) -> AsyncIterator[Client]:
    client = client_of(port, stored, [("grpc.max_send_message_length", 2 * MESSAGE_BYTES)])
    async with client.channel:
        yield client


async def strangers(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Sockets that say nothing, or half of a ClientHello, or all of it."""
    hello = client_hello()
    texts = (b"", hello[:100], hello)
    addresses = [f"127.0.1.{1 + n % 200}" for n in range(STRANGERS)]
    await _stay(
        [partial(send_bytes, port, texts[n % 3], STAY_SECONDS, None, one) for n, one in enumerate(addresses)]
    )


async def connections(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    acts = []
    for place, one in enumerate(crowd(stored)):
        tls, address = attackers_tls(one, folder), f"127.0.2.{1 + place % 200}"
        acts += [partial(send_bytes, port, h2.HELLO, STAY_SECONDS, tls, address)] * 12
    await _stay(acts)


async def requests(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Messages of 4 MiB but for their last byte: one certificate less than it may, all more than there is."""
    acts = [
        partial(half_sent.hold, port, attackers_tls(one, folder), HALF_SENT, STAY_SECONDS)
        for one in crowd(stored)
    ]
    await _stay(acts)


async def large(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Whole messages of 4 MiB that are refused when they have come."""
    async with _stub(port, stored["trudy"]) as trudy:
        message = pb.SubmitStudyRequest(study_toml="#" * (MESSAGE_BYTES - 100), submission="large")

        async def send() -> None:
            await trudy.stub.SubmitStudy(message)

        await _stay([send] * LARGE)


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
        await _stay([partial(explain, *act) for act in acts])


async def uploads(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Answers of 16 MB of as many sites as there are places, all but the last chunk of each."""
    await _stay([partial(_upload, port, stored[name]) for name in UPLOADERS])


async def invite(port: int, stored: Mapping[str, Credentials]) -> None:
    toml = study_toml(
        name="wide", columns=WIDE, components=2, epsilon=1.0, sites=UPLOADERS, deadline_seconds=STAY_SECONDS
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
        await asyncio.sleep(STAY_SECONDS)


async def polls(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:

    async def wait(one: Credentials) -> None:
        async with _stub(port, one) as site:
            round_query = [site.stub.NextWork(pb.NextWorkRequest()) for _ in range(POLLS)]
            await asyncio.gather(*round_query, return_exceptions=True)

    await _stay([partial(wait, one) for one in crowd(stored)])


async def readers(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
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
        await _stay(acts)


async def unread(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    """Dictionaries that are asked for and not read, on the connections of three certificates."""
    await unread_replies.hold("no window", port, stored, folder, seconds)


async def submissions(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    wide, small = (study_toml(columns=columns, sites=("anna",), epsilon=0.3) for columns in (WIDE, 4))
    await declined_floods.submit_and_list(port, stored["ruth"], seconds, wide, small)


ATTACKS: dict[str, Attack] = {
    "strangers": strangers, "connections": connections, "half-sent requests": requests,
    "large requests": large, "plans": plans, "uploads": uploads, "long polls": polls,
    "watches and lists": readers, "unread replies": unread, "submissions": submissions,
}  # fmt: skip


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
    found = []
    for threads in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in threads.read_text().split()]
    return found + [inner for child in found for inner in started_by(child)]


async def all_of_them(port: int, stored: Mapping[str, Credentials], folder: Path, seconds: float) -> None:
    await asyncio.gather(*(act(port, stored, folder, seconds) for act in ATTACKS.values()))


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """Every attack at once on one coordinator."""
    seconds, memory = max(LEAST_SECONDS, SECONDS * scale), Memory()
    many = [f"crowd-{n}" for n in range(max(3, int(CROWD * scale)))]
    members = dict(denial.MEMBERS)
    members |= dict.fromkeys((*many, *UPLOADERS), Role.SITE) | dict.fromkeys(ANALYSTS, Role.ANALYST)
    async with (
        besieged(folder, members, unread_replies.publish) as siege,
        denial.beside(siege, repeats=True) as here,
    ):
        await here.study()  # what is loaded once is loaded by then
        await invite(siege.port, siege.credentials)
        watching = asyncio.create_task(memory.watch(siege.process.pid))
        with other_process() as begin:
            honest = await here.under(begin(attack, all_of_them, *siege.attacked, seconds))
        watching.cancel()
        found = [*siege.faults, *honest.faults("all limits")]
    if memory.group >= MOST_BYTES:
        found.append("more memory than is promised")
    if not honest.studies:
        found.append("no honest study ended")
    return found, (
        f"the coordinator at most {memory.daemon / MIB:.0f} MiB, its processes "
        f"{memory.children / MIB:.0f}, together {memory.group / MIB:.0f} of {MOST_BYTES / MIB:.0f}; "
        f"{len(honest.seconds())} honest calls, p99 {1000 * honest.p99():.0f} ms, "
        f"{len(honest.studies)} studies"
    )
