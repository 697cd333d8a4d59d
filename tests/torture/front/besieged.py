"""A coordinator in a process of its own, one honest caller, and what both suffer while others attack.

The honest caller asks every 50 ms, now and then over a connection that it opens for that one call; the
coordinator's memory is read each time. Attackers hold a site's certificate, or nothing at all.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from eigenveil.identity import Role
from eigenveil_client.connection.tls import CLIENT_OPTIONS
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from eigenveil_server.front.quota import CONNECTIONS_A_SECOND
from tests.fuzz.hunt import resident_bytes
from tests.server.process import ENVIRONMENT
from tests.server.rig import Client, Credentials, Rig, made, serving
from tests.support import a_hello

if TYPE_CHECKING:
    from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorAsyncStub

HELLO = a_hello()
MEMBERS = {"anna": Role.SITE, "ada": Role.ANALYST}  # who attacks, and who is honest
PAUSE = 0.05
FRESH_EVERY = 5  # honest calls
ANSWER_SECONDS = 1.0
GIVE_UP_SECONDS = 10.0
AT_ONCE = 32  # members who may enrol from one address without a pause


@dataclass(slots=True, kw_only=True)
class Watch:
    """What the honest caller has seen so far; times in seconds, memory in bytes."""

    calls: int = 0
    repeats: int = 0
    failures: int = 0
    last: str = ""
    slowest: float = 0.0
    slowest_fresh: float = 0.0
    before: int = 0
    most: int = 0

    @property
    def growth(self) -> int:
        """The most memory at any moment, above what it was at the start."""
        return self.most - self.before

    @property
    def answered(self) -> bool:
        """Whether every honest call was answered in time."""
        return self.calls > 0 and not self.failures and max(self.slowest, self.slowest_fresh) < ANSWER_SECONDS

    def __str__(self) -> str:
        slow = f"{1000 * self.slowest:.0f} ms (new connection {1000 * self.slowest_fresh:.0f} ms)"
        failed = f", {self.failures} failed" if self.failures else ""
        failed += f" ({self.last})" if self.repeats else ""
        grown = f"+{self.growth / 2**20:.1f} MiB"
        return f"{grown}, {self.calls} good calls at most {slow}, {self.repeats} repeated{failed}"


@dataclass(slots=True, kw_only=True)
class Siege:
    """One coordinator under attack."""

    process: asyncio.subprocess.Process
    port: int
    enrol_port: int
    console_port: int = 0
    held: Mapping[str, Credentials]
    folder: Path
    errors: Path
    channels: list[grpc.aio.Channel] = field(default_factory=list)

    @property
    def attacker(self) -> Credentials:
        return self.held["anna"]

    @property
    def honest(self) -> Credentials:
        return self.held["ada"]

    @property
    def fate(self) -> str:
        """What became of the process that was started; empty while it serves and has met no defect."""
        if self.process.returncode is not None:
            last = self.errors.read_bytes()[-300:].decode(errors="replace")
            return f"the coordinator ended with {self.process.returncode}: ...{last}"
        return "the coordinator met a defect" if b"defect in" in self.errors.read_bytes() else ""

    def channel(self, held: Credentials) -> grpc.aio.Channel:
        """A connection of its own."""
        self.channels.append(channel_of(self.port, held, CLIENT_OPTIONS))
        return self.channels[-1]

    def client(self, name: str) -> Client:
        """A member on a connection of its own."""
        channel = self.channel(self.held[name])
        return Client(name=name, stub=CoordinatorStub(channel), channel=channel)

    def tls(self) -> ssl.SSLContext:
        return attackers_tls(self.attacker, self.folder)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Watch]:
        """Let the honest caller ask throughout the block, now and then on a fresh connection."""
        watch, ended = Watch(), asyncio.Event()
        stub = CoordinatorStub(self.channel(self.honest))
        await stub.Hello(HELLO, timeout=GIVE_UP_SECONDS)
        watch.before = watch.most = resident_bytes(self.process.pid)
        task = asyncio.create_task(self._ask(stub, watch, ended))
        try:
            yield watch
        finally:
            ended.set()
            await task

    async def _ask(self, stub: CoordinatorAsyncStub, watch: Watch, ended: asyncio.Event) -> None:
        while not ended.is_set() and self.process.returncode is None:
            watch.calls += 1
            if watch.calls % FRESH_EVERY:
                watch.slowest = max(watch.slowest, await _timed(stub, watch))
            else:
                async with self.channel(self.honest) as channel:
                    seconds = await _timed(CoordinatorStub(channel), watch)
                self.channels.pop()
                watch.slowest_fresh = max(watch.slowest_fresh, seconds)
            with suppress(FileNotFoundError, IndexError):  # the process ended: the caller will say so
                watch.most = max(watch.most, resident_bytes(self.process.pid))
            await asyncio.sleep(PAUSE)


def channel_of(
    port: int, held: Credentials, options: Sequence[tuple[str, int | str]] = ()
) -> grpc.aio.Channel:
    """A channel to a local coordinator that shares its connection with no other."""
    credentials = grpc.ssl_channel_credentials(held.ca, held.key, held.certificate)
    own = (*options, ("grpc.use_local_subchannel_pool", 1))
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=own)


def p99(seconds: Sequence[float]) -> float:
    """The time that 99 of 100 took at most; infinite if there was none."""
    return sorted(seconds)[int(0.99 * len(seconds))] if seconds else float("inf")


@contextmanager
def apart() -> Iterator[Callable[..., asyncio.Task[Any]]]:
    """A function that begins a call with these arguments in another process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield lambda act, *words: asyncio.create_task(asyncio.to_thread(pool.apply, act, words))


async def _timed(stub: CoordinatorAsyncStub, watch: Watch) -> float:
    """Seconds until the answer, however often the call is repeated, as every honest client repeats it."""
    began = time.monotonic()
    while (took := time.monotonic() - began) < GIVE_UP_SECONDS:
        try:
            await stub.Hello(HELLO, timeout=GIVE_UP_SECONDS)
        except grpc.aio.AioRpcError as problem:
            watch.repeats += 1
            watch.last = f"{problem.code().name}: {problem.details()}"
            await asyncio.sleep(PAUSE)
        else:
            return time.monotonic() - began
    watch.failures += 1
    return took


def attackers_tls(held: Credentials, folder: Path) -> ssl.SSLContext:
    """A TLS client with a certificate of the federation that will say h2 and then anything."""
    pair = folder / f"{held.name}.attacker.pem"
    if not pair.exists():
        pair.write_bytes(held.key + held.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=held.ca.decode())
    context.load_cert_chain(pair)
    context.set_alpn_protocols(["h2"])
    return context


def client_hello() -> bytes:
    """The first record of a TLS 1.3 handshake."""
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
    command: Sequence[str] = ("eigenveil_server.cli",),
    members: Mapping[str, Role] = MEMBERS,
    prepare: Callable[[Rig, Path], Awaitable[None]] | None = None,
    settings: str = "",
) -> AsyncIterator[Siege]:
    """A coordinator that has enrolled `members`, and whom `prepare` enrols besides; `command` is the module
    that serves, and `settings` are the end of its coordinator.toml."""
    config = made(folder / "coordinator")
    async with serving(config) as rig:
        held = {}
        for name, role in members.items():
            held[name] = await rig.credentials(role, name)
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
        console_port=message.get("console_port", 0), held=held, folder=folder, errors=errors,
    )  # fmt: skip
    try:
        yield siege
    finally:
        for channel in siege.channels:
            await channel.close()
        if process.returncode is None:
            process.kill()
        await process.wait()
