"""A coordinator in a process of its own, honest callers, and what both suffer while others attack.

Honest callers call every 50 ms, now and then over a connection that they open for that one call; the
coordinator's memory is read each time. Attackers sit in another process at the lowest priority."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import ssl
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc

from eigenveil.identity import Role
from eigenveil_client.connection.tls import CLIENT_OPTIONS
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from eigenveil_server.front.quota import CONNECTIONS_A_SECOND
from tests.fuzz.hunt import resident_bytes
from tests.server.process import ENVIRONMENT
from tests.server.rig import Client, Credentials, Rig, made, serving
from tests.support import a_hello

HELLO = a_hello()
MEMBERS = {"anna": Role.SITE, "ada": Role.ANALYST}  # who attacks, and who is honest
PAUSE = 0.05
P99 = ANSWER_SECONDS = 1.0  # in which 99 of 100 honest calls, or all, are answered
LOST_AFTER = 10.0
LOWEST = 19  # of all priorities
AT_ONCE = 32  # members who may enrol from one address without a pause
MIB = 2**20
Act = Callable[[], Awaitable[None]]
Attack = Callable[[int, Mapping[str, Credentials], Path, float], Coroutine[object, object, None]]


@dataclass(slots=True)
class Seen:
    """Honest callers during an attack: seconds of each call by its kind; and by how many bytes and
    descriptors the coordinator grew at most."""

    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    lost: list[str] = field(default_factory=list)
    studies: list[float] = field(default_factory=list)
    growth: int = 0
    descriptors: int = 0

    def seconds(self, kind: str = "") -> list[float]:
        return sorted(one for name, some in self.waits.items() if kind in name for one in some)

    def p99(self, kind: str = "") -> float:
        """The time that 99 of 100 calls took at most; infinite if there was none."""
        seconds = self.seconds(kind)
        return seconds[int(0.99 * len(seconds))] if seconds else float("inf")

    def faults(self, name: str, most_growth: float = float("inf")) -> list[str]:
        calls, found = len(self.seconds()), list[str]()
        if self.lost:
            found.append(f"{name}: {len(self.lost)} of {calls} honest calls lost ({self.lost[-1]})")
        if self.p99() >= P99:
            found.append(f"{name}: p99 {self.p99():.2f} s")
        if self.growth >= most_growth:
            found.append(f"{name}: +{self.growth / MIB:.0f} MiB")
        return found

    def __str__(self) -> str:
        return f"p99 {1000 * self.p99():.0f} ms, +{self.growth / MIB:.0f} MiB"


@dataclass(slots=True, kw_only=True)
class Siege:
    process: asyncio.subprocess.Process
    port: int
    enrol_port: int
    console_port: int = 0
    credentials: Mapping[str, Credentials]
    folder: Path
    errors: Path
    channels: list[grpc.aio.Channel] = field(default_factory=list)

    @property
    def attacker(self) -> Credentials:
        return self.credentials["anna"]

    @property
    def honest(self) -> Credentials:
        return self.credentials["ada"]

    @property
    def faults(self) -> list[str]:
        """Faults of the process that was started: its end, or a defect."""
        if self.process.returncode is not None:
            last = self.errors.read_bytes()[-300:].decode(errors="replace")
            return [f"the coordinator ended with {self.process.returncode}: ...{last}"]
        return ["the coordinator met a defect"] if b"defect in" in self.errors.read_bytes() else []

    @property
    def attacked(self) -> tuple[int, Mapping[str, Credentials], Path]:
        return self.port, self.credentials, self.folder

    def channel(self, credentials: Credentials) -> grpc.aio.Channel:
        self.channels.append(channel_of(self.port, credentials, CLIENT_OPTIONS))
        return self.channels[-1]

    def client(self, name: str) -> Client:
        client = client_of(self.port, self.credentials[name], CLIENT_OPTIONS)
        self.channels.append(client.channel)
        return client

    def tls(self) -> ssl.SSLContext:
        return attackers_tls(self.attacker, self.folder)

    def greeter(self, name: str) -> Act:
        stub = CoordinatorStub(self.channel(self.credentials[name]))

        async def greet() -> None:
            await stub.Hello(HELLO, timeout=LOST_AFTER)

        return greet

    async def greet_anew(self) -> None:
        async with self.channel(self.honest) as channel:
            await CoordinatorStub(channel).Hello(HELLO, timeout=LOST_AFTER)
        self.channels.pop()

    async def watch(
        self,
        acts: Sequence[Act],
        over: Callable[[], bool],
        seen: Seen,
        pause: float = PAUSE,
        repeats: float = 0.0,
    ) -> Seen:
        """Make honest calls in turns until it is over or the process has ended. A call is lost only if it
        still fails when it was repeated, as clients repeat it, for so many seconds."""
        pid = self.process.pid
        memory, files = resident_bytes(pid), _descriptors(pid)
        for act in cycle(acts):
            if over() or self.process.returncode is not None:
                return seen
            began = time.monotonic()
            while problem := await _problem(act):
                if time.monotonic() - began >= repeats:
                    seen.lost.append(problem)
                    break
                await asyncio.sleep(pause)
            seen.waits[act.__name__].append(time.monotonic() - began)
            with suppress(FileNotFoundError, IndexError):  # the process ended: the caller will report it
                seen.growth = max(seen.growth, resident_bytes(pid) - memory)
                seen.descriptors = max(seen.descriptors, _descriptors(pid) - files)
            await asyncio.sleep(pause)
        return seen

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Seen]:
        seen, ended, greet = Seen(), asyncio.Event(), self.greeter("ada")
        await greet()
        acts = [greet] * 4 + [self.greet_anew]
        task = asyncio.create_task(self.watch(acts, ended.is_set, seen, repeats=LOST_AFTER))
        try:
            yield seen
        finally:
            ended.set()
            await task


async def _problem(act: Act) -> str:
    try:
        await act()
    except grpc.aio.AioRpcError as problem:
        return f"{problem.code().name}: {problem.details()}"
    except (OSError, TimeoutError) as problem:
        return f"{type(problem).__name__}: {problem}"[:200]
    return ""


def _descriptors(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def channel_of(
    port: int, credentials: Credentials, options: Sequence[tuple[str, int | str]] = ()
) -> grpc.aio.Channel:
    """A channel to a local coordinator that shares its connection with no other."""
    tls = grpc.ssl_channel_credentials(credentials.ca, credentials.key, credentials.certificate)
    own = (*options, ("grpc.use_local_subchannel_pool", 1))
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", tls, options=own)


def client_of(port: int, member: Credentials, options: Sequence[tuple[str, int | str]]) -> Client:
    channel = channel_of(port, member, options)
    return Client(name=member.name, stub=CoordinatorStub(channel), channel=channel)


@contextmanager
def other_process() -> Iterator[Callable[..., asyncio.Task[Any]]]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield lambda act, *words: asyncio.create_task(asyncio.to_thread(pool.apply, act, words))


def attack(
    act: Attack, port: int, credentials: Mapping[str, Credentials], folder: Path, seconds: float
) -> float:
    """Run an attack in this process for so long; return the share of a processor that it used."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    began, used = time.monotonic(), time.process_time()

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, about: None)  # broken TLS is the point
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await act(port, credentials, folder, seconds)

    asyncio.run(work())
    return (time.process_time() - used) / (time.monotonic() - began)


async def send_bytes(
    port: int, text: bytes, listen: float, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1"
) -> bool:
    """Connect from an address, send this and read for so long; whether the other end closed before."""
    try:
        async with asyncio.timeout(listen + 10.0):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=tls, local_addr=(address, 0)
            )
    except (OSError, TimeoutError):
        await asyncio.sleep(0.01)
        return True
    writer.write(text)
    try:
        async with asyncio.timeout(listen):
            while await reader.read(65_536):
                pass
    except TimeoutError:
        return False
    except OSError:
        return True
    finally:
        writer.transport.abort()
    return True


def attackers_tls(credentials: Credentials, folder: Path) -> ssl.SSLContext:
    """A TLS client with a certificate of the federation that will say h2 and then anything."""
    pair = folder / f"{credentials.name}.attacker.pem"
    if not pair.exists():
        pair.write_bytes(credentials.key + credentials.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=credentials.ca.decode())
    context.load_cert_chain(pair)
    context.set_alpn_protocols(["h2"])
    return context


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@asynccontextmanager
async def besieged(
    folder: Path,
    members: Mapping[str, Role] = MEMBERS,
    prepare: Callable[[Rig, Path], Awaitable[None]] | None = None,
    settings: str = "",
    command: Sequence[str] = ("eigenveil_server.cli",),
) -> AsyncIterator[Siege]:
    """A coordinator that has enrolled `members`, and whom `prepare` enrols besides; `command` is the module
    that serves, and `settings` are the end of its coordinator.toml."""
    config = made(folder / "coordinator")
    async with serving(config) as rig:
        credentials = {}
        for name, role in members.items():
            credentials[name] = await rig.credentials(role, name)
            if len(members) > AT_ONCE:
                await asyncio.sleep(1 / CONNECTIONS_A_SECOND)
        if prepare is not None:
            await prepare(rig, folder)
    with (config.state / "coordinator.toml").open("a") as file:
        file.write(settings)
    errors = folder / "errors.log"
    with errors.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *command, "serve", "--config", str(config.state / "coordinator.toml")),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line, errors.read_bytes()
    message = json.loads(line)
    siege = Siege(
        process=process, port=message["port"], enrol_port=message["enrol_port"],
        console_port=message.get("console_port", 0), credentials=credentials, folder=folder, errors=errors,
    )  # fmt: skip
    try:
        yield siege
    finally:
        for channel in siege.channels:
            await channel.close()
        if process.returncode is None:
            process.kill()
        await process.wait()
