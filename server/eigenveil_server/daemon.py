"""The coordinator process: storage, engine and two listeners, started and stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import grpc

from eigenveil.errors import Code, RequestError
from eigenveil.noise.source import NoiseSource, OsNoise
from eigenveil_common import log
from eigenveil_common.rpc import MOST_CONNECTIONS, SERVER_OPTIONS
from eigenveil_proto.v1.eigenveil_pb2_grpc import (
    CoordinatorServicer,
    EnrolmentServicer,
    add_CoordinatorServicer_to_server,
    add_EnrolmentServicer_to_server,
)
from eigenveil_server.clock import Clock, unix_ms
from eigenveil_server.compute import Compute
from eigenveil_server.config import Config, split_listen
from eigenveil_server.fatal import Fatal, end_process
from eigenveil_server.front import places, strangers
from eigenveil_server.front.admission import Arrival
from eigenveil_server.front.door import Door, House
from eigenveil_server.front.places import Share
from eigenveil_server.loop_delay import LoopDelay
from eigenveil_server.metrics import Metrics
from eigenveil_server.metrics_listener import MetricsListener
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.pki.server_certificate import ServerCertificate
from eigenveil_server.planning.pool import PlanningPool
from eigenveil_server.recovery.checkpoints import Checkpoints
from eigenveil_server.rpc.admissions import Admissions
from eigenveil_server.rpc.calls import Calls
from eigenveil_server.rpc.enrolment import Enrolment
from eigenveil_server.rpc.health import Health
from eigenveil_server.rpc.interceptor import Admit, Interceptor, Peers, anybody, named
from eigenveil_server.rpc.listener import listening
from eigenveil_server.rpc.service import Service
from eigenveil_server.rpc.site_sessions import SiteSessions
from eigenveil_server.rpc.watchdog import Watchdog
from eigenveil_server.storage.database import existing_store, only_one
from eigenveil_server.storage.integrity import check_start
from eigenveil_server.storage.repository import Repository
from eigenveil_server.studies.engine import Engine
from eigenveil_server.studies.runtime import Runtime
from eigenveil_server.studies.signal import Signals

if TYPE_CHECKING:
    from eigenveil_server.console.console import ConsoleServer

STOP_SECONDS = 2.0
WARM_SECONDS = 5.0  # after which a planning process is started that nobody has asked for
ENROL_BYTES = 64 * 1024
ENROL_CALLS = 32
ENROL_STRANGERS, ENROL_CONNECTIONS = 256, 384


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    port: int
    enrol_port: int
    console_port: int | None = None


class Daemon:
    """One serving coordinator.

    Raises on construction:
        RequestError: another process serves this folder or this database, a file is damaged, or the
            budget is below what is committed.
        InternalError: code `storage`.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock = unix_ms,
        noise: NoiseSource | None = None,
        fatal: Fatal = end_process,
    ) -> None:
        self.config = config
        with contextlib.ExitStack() as undo:
            store = existing_store(config)
            undo.callback(store.close)
            self._lock = undo.enter_context(only_one(config))
            store.claim()
            check_start(store)
            keys = load_keys(config.files)
            repository = Repository.of(config, store, clock, fatal)
            self.checkpoints = Checkpoints(config, store, repository.ledger, keys, clock, fatal)
            undo.pop_all()
        self.runtime = Runtime(
            repository=repository,
            keys=keys,
            noise=noise or OsNoise(),
            compute=Compute(),
            planning=PlanningPool(config.max_columns),
            signals=Signals(),
            metrics=Metrics(),
        )
        self.registry = Registry(store, config.federation, clock)
        self.engine = Engine(self.runtime, config)
        self._health: Health | None = None
        self._scrapes: MetricsListener | None = None
        self._delays = LoopDelay(self.runtime.metrics.late)
        self._warming: asyncio.TimerHandle | None = None
        self._leaf = ServerCertificate(config, keys, clock)
        self._calls = Calls()
        self.sessions = SiteSessions(store, self._calls, clock)
        self.admissions = Admissions(store, self.registry)
        self._peers = Peers(self.admissions, self.sessions, config.federation, clock)
        self._front = self._door("front", self._peers.stays, client_certificates=True)
        self._side = self._door("side", lambda arrival: None, client_certificates=False)
        self._console: ConsoleServer | None = None
        self._guard = Watchdog(keys.authorities, self._leaf, self._sweep, fatal)

    async def start(self) -> Ports:
        """Resume the studies and open both listeners.

        Raises:
            RequestError: a port is taken.
        """
        self._main = self._main_server()
        self._enrol = self._enrol_server()
        for server, door in ((self._main, self._front), (self._enrol, self._side)):
            server.add_insecure_port(door.inside)
        await self._watch()
        # Not at once: resuming goes first, and whoever starts and ends in between needs no planning.
        self._warming = asyncio.get_running_loop().call_later(WARM_SECONDS, self.runtime.planning.warm)
        await self.engine.start()
        await self._main.start()
        await self._enrol.start()
        try:
            ports = Ports(
                port=await self._open(self._front, self.config.port),
                enrol_port=await self._open(self._side, self.config.enrol_port),
                console_port=await self._open_console(),
            )
        except RequestError:
            # One that is let go of unstopped complains once the loop has ended, like a defect of ours.
            await self._main.stop(None)
            await self._enrol.stop(None)
            raise
        if self._health is not None:
            await self._health.start()
        self._guard.start()
        log.event("serving", federation=self.config.federation, port=ports.port)
        return ports

    async def _watch(self) -> None:
        """Metrics and health, where the operator wants them; probes are answered once all is served."""
        config, repository = self.config, self.runtime.repository
        if config.metrics:
            self._scrapes = self.runtime.metrics.scrapes(config, repository.store, repository.ledger)
            await self._scrapes.open(*split_listen(config.metrics))
            self._delays.start()
        if config.health:
            self._health = Health(config.health)

    async def _open_console(self) -> int | None:
        """The pages for operators and analysts, where the operator wants them."""
        if not self.config.console.listen:
            return None
        from eigenveil_server.console.console import ConsoleServer  # what it takes is loaded by who wants it
        from eigenveil_server.console.desk import Serving

        serving = Serving(
            config=self.config,
            runtime=self.runtime,
            engine=self.engine,
            registry=self.registry,
            admissions=self.admissions,
            directory=self._directory,
            sessions=self.sessions,
            front=self._front,
        )
        self._console = ConsoleServer(serving, self.config.console, self._leaf, self._peers)
        return await self._console.open()

    async def _sweep(self) -> None:
        """End whatever those who were shut out have here."""
        await self.admissions.refresh()
        for held in (self._calls, self._front, self._side, self._console):
            if held is not None:
                held.sweep()
        await self.engine.sweep()

    def _main_server(self) -> grpc.aio.Server:
        options = (*SERVER_OPTIONS, ("grpc.max_concurrent_streams", self.config.max_streams))
        guard = self._interceptor(self._peers.admit, self._front, self._calls)
        server = listening(guard, options=options, maximum_concurrent_rpcs=self.config.max_calls)
        service = Service(
            self.config, self.runtime, self.engine, self.registry, self.sessions, self.checkpoints
        )
        self._directory = service.directory
        add_CoordinatorServicer_to_server(service, server)
        # Elsewhere's methods are known here, so that they are refused; unknown ones are never answered.
        add_EnrolmentServicer_to_server(EnrolmentServicer(), server)  # type: ignore[abstract]
        return server

    def _door(self, name: str, stays: Callable[[Arrival], object], *, client_certificates: bool) -> Door:
        house = House(
            tls=partial(self._leaf.tls, client_certificates=client_certificates),
            name=named,
            stays=stays,
            closed=self.runtime.metrics.closed,
            share=self._share(client_certificates),
        )
        return Door(self.config.state / f"{name}.door", house)

    def _share(self, client_certificates: bool) -> Share:
        """Nobody but strangers enrols: the other listener's descriptors are not theirs to take."""
        if client_certificates:
            return Share(
                strangers=strangers.MOST_STRANGERS,
                connections=MOST_CONNECTIONS,
                calls=self.config.max_calls,
                for_sites=places.FOR_SITES,
            )
        return Share(strangers=ENROL_STRANGERS, connections=ENROL_CONNECTIONS, calls=ENROL_CALLS, for_sites=0)

    def _interceptor(self, admit: Admit, door: Door, calls: Calls) -> Interceptor:
        return Interceptor(admit, door.of, calls, self.runtime.repository.fatal, self.runtime.metrics.refused)

    def _enrol_server(self) -> grpc.aio.Server:
        fewer = {"grpc.max_receive_message_length": ENROL_BYTES, "grpc.max_concurrent_streams": 1}
        guard = self._interceptor(anybody, self._side, Calls())
        options = tuple((dict(SERVER_OPTIONS) | fewer).items())
        server = listening(guard, options=options, maximum_concurrent_rpcs=ENROL_CALLS)
        service = Enrolment(self.config, self.runtime.keys, self.registry)
        add_EnrolmentServicer_to_server(service, server)
        add_CoordinatorServicer_to_server(CoordinatorServicer(), server)  # type: ignore[abstract]
        return server

    async def _open(self, door: Door, port: int) -> int:
        address = self.config.listen or self.config.host
        try:
            return await door.open(address, port)
        except OSError as problem:
            raise RequestError(
                Code.BAD_CONFIG, f"cannot listen on {address}:{port}; is another process using it?"
            ) from problem

    async def stop(self) -> None:
        """Answer the long polls, close the listeners, stop the studies where they are."""
        self.engine.closing = True
        if self._warming is not None:
            self._warming.cancel()
        if self._health is not None:
            await self._health.stop()
        await self._guard.stop()
        if self._scrapes is not None:
            self._delays.stop()
            await self._scrapes.close()
        if self._console is not None:
            await self._console.close()
        self.runtime.signals.work.ring()
        self.runtime.signals.news.ring()
        await self._main.stop(STOP_SECONDS)
        await self._enrol.stop(STOP_SECONDS)
        for door in (self._front, self._side):
            await door.close()
        await self.runtime.repository.finished()
        await self.engine.stop()
        await asyncio.to_thread(self.runtime.close)
        self._lock.close()
        log.event("stopped", federation=self.config.federation)
