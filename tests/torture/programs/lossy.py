"""A network between daemons in one process, which loses, repeats, delays and cuts as it is told.

It stands where gRPC stands: sites call stubs made of a `Channel`, and the service's own methods answer."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, NoReturn, Self

import grpc

from eigenveil.errors import Code
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_common.rpc import CODE_KEY
from eigenveil_server.front.quota import ConnectionInfo, GatewayClient
from tests.torture.programs.virtual import VirtualLoop

SLOWEST = 0.02  # seconds, of one message
BLACK_HOLE = 3.0  # seconds until a caller gives up on a line that is cut
FOR_EVER = 1e9  # seconds
LATEST_REPEAT = 4.0  # seconds after which a repeated request arrives at the latest
LOSE_REQUEST, LOSE_ANSWER, REPEAT = "lose-request", "lose-answer", "repeat"
SERVICE = "eigenveil.v1.Coordinator"


def failure(status: grpc.StatusCode, text: str, code: str = "") -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata((CODE_KEY, code)) if code else grpc.aio.Metadata()
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), trailing, text)


def lost(text: str) -> grpc.aio.AioRpcError:
    return failure(grpc.StatusCode.UNAVAILABLE, text)


@dataclass(slots=True)
class Caller:
    """Context of a call for a handler, as gRPC's; `defects` gets what should never happen."""

    channel: Channel
    defects: list[str]

    def peer(self) -> str:
        return self.channel.peer

    async def abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: tuple[tuple[str, str], ...]
    ) -> NoReturn:
        response = dict(trailing_metadata)[CODE_KEY]
        if response == Code.BUG.value:
            self.defects.append(details)
        raise failure(code, details, response)


class Entrance:
    """Stands for `Gateway`: nobody listens, and what TLS would have shown is what the channel holds."""

    shown: ClassVar[dict[str, bytes]] = {}

    def __init__(self, folder: object, **options: object) -> None:
        self.grpc_address = ""

    def of(self, peer: str) -> ConnectionInfo:
        """The connection of a channel."""
        return ConnectionInfo(
            peer=peer, certificate=self.shown[peer], client=GatewayClient(name=peer, role=None)
        )

    async def open(self, host: str, port: int) -> int:
        return 1

    async def close(self) -> None: ...

    def sweep(self) -> None: ...


class Listening:
    """Stands for `registered_methods_server`: keeps the handlers, behind their interceptors."""

    latest: ClassVar[dict[str, Listening]] = {}

    def __init__(self, *interceptors: grpc.aio.ServerInterceptor, **options: Any) -> None:
        self._interceptors = interceptors
        self._handlers: dict[str, Any] = {}

    @classmethod
    def of(cls, service: str) -> Listening:
        """The server that was made last for this service."""
        return cls.latest[service]

    def add_generic_rpc_handlers(self, handlers: object) -> None: ...

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        if not self._handlers:
            self._handlers |= handlers
            self.latest[service] = self

    def add_insecure_port(self, address: str) -> int:
        return 1

    async def start(self) -> None: ...

    async def stop(self, grace: float | None) -> None: ...

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        await asyncio.sleep(FOR_EVER)
        return False

    async def answer(self, method: str, data: bytes, caller: Caller) -> Any:
        raw = self._handlers[method]
        Entrance.shown[caller.peer()] = caller.channel.certificate

        async def continuation(details: object) -> Any:
            return raw

        details: Any = SimpleNamespace(method=f"/{SERVICE}/{method}", invocation_metadata=())
        handler: Any = raw
        for interceptor in self._interceptors:
            handler = await interceptor.intercept_service(continuation, details)
        return await handler.unary_unary(raw.request_deserializer(data), caller)


Server = Callable[["Channel", str, bytes], Awaitable[Any]]


@dataclass(slots=True)
class Network:
    """`server` answers while it is set. `due` are faults for the next calls, by caller."""

    loop: VirtualLoop
    server: Server | None = None
    due: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    cut: set[str] = field(default_factory=set)
    channels: list[Channel] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    dialled: int = 0

    def connect(self, caller: StoredIdentity) -> Channel:
        who = caller.identity.name
        if self.server is None or who in self.cut:
            raise lost("no connection")
        self.dialled += 1
        channel = Channel(
            network=self, who=who, certificate=_shown(caller), peer=f"ipv4:10.0.0.1:{self.dialled}"
        )
        self.channels.append(channel)
        return channel

    def drop(self, who: str | None = None) -> None:
        for channel in [one for one in self.channels if who in (None, one.who)]:
            channel.snap()

    def heal(self) -> None:
        self.due.clear()
        for who in tuple(self.cut):
            self.mend(who)

    def mend(self, who: str) -> None:
        self.cut.discard(who)
        self.drop(who)

    async def call(self, channel: Channel, method: str, request: bytes) -> Any:
        who = channel.who
        due = self.due[who]
        fault = due.pop(0) if due else ""
        self.done[fault] += 1
        await self._travel(who)
        if fault == LOSE_REQUEST:
            raise lost("the network ate the request")
        if fault == REPEAT:
            self.loop.call_later(
                self.loop.chance.uniform(0, LATEST_REPEAT), self._again, channel, method, request
            )
        answer = await self._answer(channel, method, request)
        await self._travel(who)
        if fault == LOSE_ANSWER:
            raise lost("the network ate the answer")
        self.done[method] += 1
        return answer

    async def _travel(self, who: str) -> None:
        await asyncio.sleep(self.loop.chance.uniform(0, SLOWEST))
        if who in self.cut:
            await asyncio.sleep(BLACK_HOLE)
            raise lost("the line is cut")

    async def _answer(self, channel: Channel, method: str, request: bytes) -> Any:
        work = self._spawn(self._served(channel, method, request))
        try:
            await asyncio.wait((work, channel.snapped), return_when=asyncio.FIRST_COMPLETED)
            if channel.snapped.done():
                raise lost("the connection broke")
            return work.result()
        finally:
            work.cancel()

    async def _served(self, channel: Channel, method: str, request: bytes) -> Any:
        if self.server is None:
            raise lost("nobody serves")
        return await self.server(channel, method, request)

    def _again(self, channel: Channel, method: str, request: bytes) -> None:
        if self.server is not None and channel.who not in self.cut:
            self._spawn(self._served(channel, method, request))

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has seen it; for a repeated request nobody does


def _shown(caller: StoredIdentity) -> bytes:
    pem = caller.pair.read_bytes()
    return pem[pem.index(b"-----BEGIN CERTIFICATE") :]


@dataclass(slots=True)
class Channel:
    network: Network
    who: str
    certificate: bytes
    peer: str
    snapped: asyncio.Future[None] = field(init=False)

    def __post_init__(self) -> None:
        self.snapped = self.network.loop.create_future()

    def close(self) -> None:
        self.snap()

    def snap(self) -> None:
        if self in self.network.channels:
            self.network.channels.remove(self)
        if not self.snapped.done():
            self.snapped.set_result(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.snap()

    def unary_unary(self, path: str, request_serializer: Any = None, **options: Any) -> Callable[..., Any]:
        method = path.rsplit("/", 1)[-1]

        async def call(request: Any, timeout: float = 60.0) -> Any:
            if self.snapped.done():
                raise lost("the connection is closed")
            sent = request_serializer(request)
            try:
                return await asyncio.wait_for(self.network.call(self, method, sent), timeout)
            except TimeoutError as problem:
                raise failure(grpc.StatusCode.DEADLINE_EXCEEDED, "too slow") from problem

        return call

    def unary_stream(self, path: str, **options: Any) -> None: ...
