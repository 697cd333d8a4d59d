"""A whole federation in one process and in virtual time: the real engine, service, stores, workers and
daemons, over a network that loses what it is told to lose. Everybody can die at a failpoint."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import grpc

from eigenveil.dictionary.site_rules import ANY
from eigenveil.errors import Code, EigenveilError, InternalError
from eigenveil.site.record_view import to_grid
from eigenveil.study.study import Study
from eigenveil_client.connection import channel as transport
from eigenveil_client.connection import session_start
from eigenveil_client.connection.identity import StoredIdentity, load_identity
from eigenveil_client.records.summary import RecordsSummary, RowSink
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.daemon import answers, connection, sender
from eigenveil_client.site.daemon import service as site_daemon
from eigenveil_client.site.daemon.service import SiteDaemon
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.engine import engine
from eigenveil_client.site.engine.engine import LocalEngine
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.policy_sections import KNOWN, TrustRules
from eigenveil_client.site.state.rollback import RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.files import arm, disarm
from eigenveil_common.rpc import error_from
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from eigenveil_server import process
from eigenveil_server.config import Config
from eigenveil_server.daemon import Daemon
from eigenveil_server.pki.registry import Registry
from eigenveil_server.process import unix_ms
from eigenveil_server.rpc import service
from eigenveil_server.storage import repository
from eigenveil_server.studies import uploads
from tests.server.rig import FEDERATION, SITES
from tests.torture.masked.known import KnownShare
from tests.torture.model import Witness, read
from tests.torture.programs.lossy import SERVICE, Caller, Channel, Entrance, Listening, Network, Server
from tests.torture.programs.operations import ANALYST, COORDINATOR, NoNoise, one_hot
from tests.torture.programs.virtual import Inline, VirtualLoop

SMALL = 64  # bytes: answers over 8 numbers are uploaded in chunks
SHORTEST_PAUSE, MAX_BACKOFF_SECONDS = 0.05, 2.0
LIVE: ContextVar[str] = ContextVar("live")  # whose code runs, and in which of its lives


class Died(BaseException):
    """This daemon ended here, as by kill -9."""


@dataclass(slots=True)
class World:
    """Everybody, alive or dead. `jump` is what clocks are wrong by, in milliseconds."""

    loop: VirtualLoop
    folder: Path
    config: Config
    network: Network
    analyst: StoredIdentity
    sites: Sequence[str] = SITES
    manual: Collection[str] = ()  # sites where a person decides about each study
    loader: Executor = field(default_factory=Inline)  # of records
    epoch: int = field(default_factory=unix_ms)
    witness: Witness = field(default_factory=Witness)
    faults: list[str] = field(default_factory=list)
    jump: Counter[str] = field(default_factory=Counter)
    lives: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    daemon: Daemon | None = None
    due: set[str] = field(default_factory=set)  # sites whose certificate is due at their next connection
    stores: dict[str, SiteStore] = field(default_factory=dict)
    tasks: dict[str, set[asyncio.Task[Any]]] = field(default_factory=lambda: defaultdict(set))

    def clock(self, who: str) -> int:
        """Milliseconds, as `who` sees them."""
        return self.epoch + int(1000 * self.loop.time()) + self.jump[who]

    def alive(self, who: str) -> bool:
        return self.daemon is not None if who == COORDINATOR else who in self.stores

    async def start(self, who: str) -> None:
        if self.alive(who):
            return
        self.lives[who] += 1
        task = self.loop.create_task(self._begin(who))
        await asyncio.wait({task})
        if not task.cancelled() and not isinstance(task.exception(), Died):
            task.result()

    async def _begin(self, who: str) -> None:
        LIVE.set(self._life(who))
        self.belongs(asyncio.current_task())
        if who == COORDINATOR:
            await self._start_coordinator()
        else:
            self._start_site(who)

    async def _start_coordinator(self) -> None:
        self.daemon = Daemon(
            self.config, clock=lambda: self.clock(COORDINATOR), noise=NoNoise(), fatal=_fatal
        )
        self.network.server = None
        await self.daemon.start()
        self.network.server = self._server(Listening.of(SERVICE))

    def _server(self, listening: Listening) -> Server:
        life = LIVE.get()

        async def answer(channel: Channel, method: str, data: bytes) -> Any:
            LIVE.set(life)
            self.belongs(asyncio.current_task())
            return await listening.answer(method, data, Caller(channel, self.network.defects))

        return answer

    def _start_site(self, who: str) -> None:
        folder = self.folder / who
        config = SiteConfig(
            name=who, records=RecordsConfig(source=folder), identity=folder / "identity",
            state=folder / "state.db",
            policy=Policy(
                approval=Approval.MANUAL if who in self.manual else Approval.AUTO, analysts=(ANY,),
                algorithms=("gauss-cov", "private-oja", "refined-cov"),
                budget_epsilon=1000.0, minimum_records=40, secrecy=TrustRules(trust=KNOWN),
            ),
        )  # fmt: skip
        store = SiteStore(
            config.state, config.policy.budget, RollbackGuard(config.identity),
            clock=lambda: self.clock(who) // 1000,
        )  # fmt: skip
        self.stores[who] = store
        member = load_identity(config.identity)
        engine = LocalEngine(partial(self._records, who), config.engine, config.scratch, 100_000)
        worker = SiteWorker(member, config.policy, store, engine, self.loader)
        daemon = SiteDaemon(worker, lambda: load_identity(config.identity))
        self.loop.create_task(self._serve(who, daemon))

    def _records(self, who: str, study: Study, retain: RowSink) -> RecordsSummary:
        rows = one_hot(who, self.sites)
        retain(to_grid(rows, study))
        return RecordsSummary(persons=len(rows), file=who.encode(), quality=())

    async def renew_in_time(self, stub: Any, stored: StoredIdentity) -> None:
        """Renew a certificate at once if a program says so."""
        if stored.identity.name in self.due:
            self.due.remove(stored.identity.name)
            stored = replace(stored, renews=datetime.now(UTC) - timedelta(days=1))
        await session_start.renew_in_time(stub, stored)

    async def _serve(self, who: str, daemon: SiteDaemon) -> None:
        try:
            await daemon.run()
        except (Died, asyncio.CancelledError):
            pass
        except Exception as problem:  # noqa: BLE001 - a daemon never ends by itself
            self.faults.append(f"{who} ended: {type(problem).__name__}: {problem}")

    def belongs(self, task: asyncio.Task[Any] | None) -> None:
        if task is not None and (life := LIVE.get(None)) is not None:
            self.tasks[life].add(task)

    def doom(self, who: str, name: str, passage: int) -> None:
        """Let `who` die at a passage of a failpoint in this life, or in its next one."""
        left = [passage]

        def action() -> None:
            life = LIVE.get("")
            if life.startswith(f"{who}#") and life == self._life(who):
                left[0] -= 1
                if left[0] == 0:
                    self.loop.call_soon(self.bury, who, life)
                    raise Died

        arm(name, action)

    def _life(self, who: str) -> str:
        return f"{who}#{self.lives[who]}"

    def kill(self, who: str) -> None:
        if self.alive(who):
            self.bury(who, self._life(who))

    def bury(self, who: str, life: str) -> None:
        """Nothing of a life goes on: first its disk, then its lines, then whatever it was doing."""
        if life != self._life(who) or not self.alive(who):
            return
        self.kills += 1
        if who == COORDINATOR:
            assert self.daemon is not None
            self.daemon.runtime.repository.store.close()
            self.daemon._lock.close()
            self.daemon = self.network.server = None
            self.network.drop()
        else:
            self.stores.pop(who).close()
            self.network.drop(who)
        for task in self.tasks.pop(life, set()):
            task.cancel()
        self.look()

    def look(self) -> None:
        paths = {name: self.folder / name / "state.db" for name in self.sites}
        here = {name: path for name, path in paths.items() if path.exists()}
        if len(here) == len(self.sites):
            self.witness.look(read(self.config.files.database, here))

    def states(self) -> dict[str, str]:
        path = self.config.files.database
        return dict(read(path, {}).states)

    def close(self) -> None:
        for who in (COORDINATOR, *self.sites):
            self.kill(who)

    async def query(self, method: str, message: Any) -> Any:
        """Ask the coordinator as the analyst, until there is an answer or a refusal."""
        while True:
            try:
                with closing(self.network.connect(self.analyst)) as channel:
                    stub = CoordinatorStub(channel)  # type: ignore[call-overload]
                    return await getattr(stub, method)(message)
            except grpc.aio.AioRpcError as problem:
                failure = error_from(problem)
                if failure.code is not Code.UNREACHABLE:
                    raise failure from problem
                await asyncio.sleep(SHORTEST_PAUSE)


def _fatal(problem: InternalError) -> NoReturn:
    raise Died from problem


@contextmanager
def world(
    loop: VirtualLoop,
    folder: Path,
    template: Path,
    seed: int,
    sites: Sequence[str] = SITES,
    long_poll_seconds: float = 5.0,
    manual: Collection[str] = (),
) -> Iterator[World]:
    """A federation of its own, with small limits and pauses that depend on the seed alone."""
    shutil.copytree(template, folder, dirs_exist_ok=True)
    config = Config(
        federation=FEDERATION, state=folder / COORDINATOR, port=0, enrol_port=0, budget_epsilon=1000.0,
        long_poll_seconds=long_poll_seconds,
    )  # fmt: skip
    network = Network(loop=loop)
    analyst = load_identity(folder / ANALYST / "identity")
    here = World(
        loop=loop, folder=folder, config=config, network=network, analyst=analyst, sites=sites, manual=manual
    )
    chance = random.Random(seed)

    def task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        made = asyncio.Task(work, loop=loop, **options)
        here.belongs(made)
        return made

    def surprised(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        if problem is not None and not isinstance(problem, Died | EigenveilError | grpc.aio.AioRpcError):
            here.faults.append(f"{context['message']}: {type(problem).__name__}: {problem}")

    loop.set_task_factory(task)
    loop.set_exception_handler(surprised)
    try:
        with _simulated(here, chance):
            yield here
    finally:
        disarm()
        here.close()
        loop.set_task_factory(None)


@contextmanager
def _simulated(here: World, chance: random.Random) -> Iterator[None]:
    """Put the network, threads and pauses of the simulation in place of real ones."""
    network = here.network

    def backoff_seconds(attempt: int) -> float:
        return chance.uniform(SHORTEST_PAUSE, min(MAX_BACKOFF_SECONDS, 0.1 * 2.0 ** min(attempt, 10)))

    async def dial(caller: StoredIdentity) -> Channel:
        try:
            return network.connect(caller)
        except grpc.aio.AioRpcError as problem:
            raise error_from(problem) from problem

    inline = mock.Mock(side_effect=lambda *_, **__: Inline())
    with (
        mock.patch.multiple(service, INLINE_BYTES=SMALL, CHUNK_BYTES=SMALL),
        mock.patch.object(uploads, "CHUNK_BYTES", SMALL),
        mock.patch.object(process, "ThreadPoolExecutor", inline),
        mock.patch.object(repository, "ThreadPoolExecutor", inline),
        mock.patch.object(engine, "ThreadPoolExecutor", inline),
        mock.patch("eigenveil_server.daemon.registered_methods_server", Listening),
        mock.patch("eigenveil_server.daemon.Gateway", Entrance),
        mock.patch.object(Registry, "_check_due"),  # certificates are renewed when a program says so
        mock.patch.object(site_daemon, "open_channel", dial),
        mock.patch.object(site_daemon, "renew_in_time", here.renew_in_time),
        mock.patch.object(site_daemon, "backoff_seconds", backoff_seconds),
        mock.patch.object(connection, "backoff_seconds", backoff_seconds),
        mock.patch.object(sender, "backoff_seconds", backoff_seconds),
        mock.patch.object(answers, "OsNoise", KnownShare),
        mock.patch.object(transport, "backoff_seconds", backoff_seconds),
    ):
        yield
