"""Coordinator process: storage, engine and two listeners, started and stopped in order, until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import click
import grpc

from eigenveil.errors import Code, RequestError
from eigenveil.noise.source import NoiseSource, OsNoise
from eigenveil_common import log
from eigenveil_common.notify.outbox import notifications
from eigenveil_common.process_limits import forbid_core_dumps, raise_file_limit, reuse_buffers
from eigenveil_common.rpc import MOST_CONNECTIONS, SERVER_OPTIONS
from eigenveil_proto.v1.eigenveil_pb2_grpc import (
    CoordinatorServicer,
    EnrolmentServicer,
    add_CoordinatorServicer_to_server,
    add_EnrolmentServicer_to_server,
)
from eigenveil_server.config import Config, split_listen
from eigenveil_server.front import pending_connections, quota
from eigenveil_server.front.gateway import Gateway
from eigenveil_server.front.quota import ConnectionInfo, ListenerLimits
from eigenveil_server.metrics import LoopDelay, Metrics, MetricsListener
from eigenveil_server.pki.keys import ServerCertificate, load_keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.pki.release_keys import complete as complete_key_change
from eigenveil_server.planning.pool import PlanningPool
from eigenveil_server.process import Clock, Compute, Fatal, end_process, short_turns, unix_ms
from eigenveil_server.recovery.checkpoints import Checkpoints
from eigenveil_server.rpc.callers import Admissions, Calls, Watchdog
from eigenveil_server.rpc.interceptor import (
    Admit,
    Authenticator,
    Interceptor,
    admit_uncertified,
    identity_in_certificate,
)
from eigenveil_server.rpc.listeners import Enrolment, Health, registered_methods_server
from eigenveil_server.rpc.service import Service
from eigenveil_server.rpc.sites import SiteSessions
from eigenveil_server.storage import directory
from eigenveil_server.storage.database import check_existing, existing_store, lock_folder
from eigenveil_server.storage.repository import Repository, check_start
from eigenveil_server.studies.engine import StudyEngine
from eigenveil_server.studies.runtime import Runtime

if TYPE_CHECKING:
    from eigenveil_server.console.console import ConsoleServer

STOP_SECONDS = 2.0
WARM_SECONDS = 5.0  # before a planning process is started in advance
ENROL_BYTES = 64 * 1024
ENROL_CALLS = 32
# Enrolment is open to all, so its share of descriptors is small.
ENROL_LIMITS = ListenerLimits(strangers=256, connections=384, calls=ENROL_CALLS, for_sites=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    port: int
    enrol_port: int
    console_port: int | None = None


class Daemon:
    """Serving coordinator. Raises on construction RequestError: another process serves this folder or this
    database, a file is damaged, or the budget is below the committed cost."""

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
            check_existing(config)
            self._lock = undo.enter_context(lock_folder(config))
            store = existing_store(config)
            undo.callback(store.close)
            store.acquire_server_lock()
            with check_start(store):
                repository = Repository.of(config, store, clock, fatal)
            complete_key_change(config.files, store)
            keys = load_keys(config.files)
            self.checkpoints = Checkpoints(config, store, repository.ledger, keys, clock, fatal)
            undo.pop_all()
        self.runtime = Runtime(
            capabilities=directory.capabilities(store.reader),
            repository=repository,
            keys=keys,
            noise=noise or OsNoise(),
            compute=Compute(),
            planning=PlanningPool(config.max_columns),
            metrics=Metrics(),
        )
        self.registry = Registry(store, config.federation, clock)
        self.engine = StudyEngine(self.runtime, config)
        self._health: Health | None = None
        self._metrics_listener: MetricsListener | None = None
        self._delays = LoopDelay(self.runtime.metrics.event_loop_delays.observe)
        self._warming: asyncio.TimerHandle | None = None
        self._leaf = ServerCertificate(config, keys, clock)
        self._calls = Calls()
        self.sessions = SiteSessions(store, self._calls, clock)
        self.admissions = Admissions(store, self.registry)
        self._authenticator = Authenticator(self.admissions, self.sessions, config.federation, clock)
        main_limits = ListenerLimits(
            strangers=pending_connections.MAX_PENDING_CONNECTIONS,
            connections=MOST_CONNECTIONS,
            calls=config.max_calls,
            for_sites=quota.FOR_SITES,
        )
        check_admitted = self._authenticator.check_admitted
        self._main_gateway = self._gateway("front", main_limits, check_admitted, client_certificates=True)
        self._enrol_gateway = self._gateway("side", ENROL_LIMITS, lambda _: None, client_certificates=False)
        self._console: ConsoleServer | None = None
        self._guard = Watchdog(keys.authorities, self._leaf, self._sweep, fatal)

    async def start(self) -> Ports:
        """Resume the studies and open both listeners. Raises RequestError: a port is taken."""
        self._main = self._main_server()
        self._enrol = self._enrol_server()
        for server, gateway in ((self._main, self._main_gateway), (self._enrol, self._enrol_gateway)):
            server.add_insecure_port(gateway.grpc_address)
        await self._watch()
        # Delayed: resuming comes first, and a process that ends soon needs no planning.
        self._warming = asyncio.get_running_loop().call_later(WARM_SECONDS, self.runtime.planning.warm)
        await self.engine.start()
        await self._main.start()
        await self._enrol.start()
        try:
            ports = Ports(
                port=await self._open(self._main_gateway, self.config.port),
                enrol_port=await self._open(self._enrol_gateway, self.config.enrol_port),
                console_port=await self._open_console(),
            )
        except RequestError:
            # A server that is not stopped logs errors after the event loop has ended.
            await self._main.stop(None)
            await self._enrol.stop(None)
            raise
        if self._health is not None:
            await self._health.start()
        self._guard.start()
        log.event("serving", federation=self.config.federation, port=ports.port)
        return ports

    async def _watch(self) -> None:
        """Open the listeners for metrics and health, if configured. Probes are answered after `start`."""
        config, repository = self.config, self.runtime.repository
        if config.metrics:
            make_listener = self.runtime.metrics.make_listener
            self._metrics_listener = make_listener(config, repository.store, repository.ledger)
            await self._metrics_listener.open(*split_listen(config.metrics))
            self._delays.start()
        if config.health:
            self._health = Health(config.health)

    async def _open_console(self) -> int | None:
        """Open the console, if configured. Return its port."""
        if not self.config.console.listen:
            return None
        from eigenveil_server.console.console import ConsoleServer
        from eigenveil_server.console.page_context import DaemonServices

        serving = DaemonServices(
            config=self.config,
            runtime=self.runtime,
            engine=self.engine,
            registry=self.registry,
            admissions=self.admissions,
            directory=self._directory,
            sessions=self.sessions,
            front=self._main_gateway,
        )
        self._console = ConsoleServer(serving, self.config.console, self._leaf, self._authenticator)
        return await self._console.open()

    async def _sweep(self) -> None:
        """End calls, connections, pages and work of callers that are no longer admitted."""
        await self.admissions.refresh()
        for part in (self._calls, self._main_gateway, self._enrol_gateway, self._console):
            if part is not None:
                part.sweep()
        await self.engine.sweep()

    def _main_server(self) -> grpc.aio.Server:
        options = (*SERVER_OPTIONS, ("grpc.max_concurrent_streams", self.config.max_streams))
        guard = self._interceptor(self._authenticator.admit, self._main_gateway, self._calls)
        calls = self.config.max_calls
        server = registered_methods_server(guard, options=options, maximum_concurrent_rpcs=calls)
        service = Service(
            self.config, self.runtime, self.engine, self.registry, self.sessions, self.checkpoints
        )
        self._directory = service.directory
        add_CoordinatorServicer_to_server(service, server)
        # Registered here to be refused: calls of unregistered methods are never answered.
        add_EnrolmentServicer_to_server(EnrolmentServicer(), server)  # type: ignore[abstract]
        return server

    def _gateway(
        self,
        name: str,
        limits: ListenerLimits,
        check_admitted: Callable[[ConnectionInfo], object],
        *,
        client_certificates: bool,
    ) -> Gateway:
        return Gateway(
            self.config.state / f"{name}.door",
            tls=partial(self._leaf.tls, client_certificates=client_certificates),
            identify=identity_in_certificate,
            check_admitted=check_admitted,
            closed=self.runtime.metrics.closed,
            limits=limits,
        )

    def _interceptor(self, admit: Admit, gateway: Gateway, calls: Calls) -> Interceptor:
        return Interceptor(
            admit, gateway.of, calls, self.runtime.repository.fatal, self.runtime.metrics.refused
        )

    def _enrol_server(self) -> grpc.aio.Server:
        fewer = {"grpc.max_receive_message_length": ENROL_BYTES, "grpc.max_concurrent_streams": 1}
        guard = self._interceptor(admit_uncertified, self._enrol_gateway, Calls())
        options = tuple((dict(SERVER_OPTIONS) | fewer).items())
        server = registered_methods_server(guard, options=options, maximum_concurrent_rpcs=ENROL_CALLS)
        add_EnrolmentServicer_to_server(Enrolment(self.config, self.runtime.keys, self.registry), server)
        add_CoordinatorServicer_to_server(CoordinatorServicer(), server)  # type: ignore[abstract]
        return server

    async def _open(self, gateway: Gateway, port: int) -> int:
        address = self.config.listen or self.config.host
        try:
            return await gateway.open(address, port)
        except OSError as problem:
            raise RequestError(
                Code.BAD_CONFIG, f"cannot listen on {address}:{port}; is another process using it?"
            ) from problem

    async def stop(self) -> None:
        """Answer the long polls, close the listeners, and stop the studies at their present state."""
        self.engine.closing = True
        if self._warming is not None:
            self._warming.cancel()
        if self._health is not None:
            await self._health.stop()
        await self._guard.stop()
        if self._metrics_listener is not None:
            self._delays.stop()
            await self._metrics_listener.close()
        if self._console is not None:
            await self._console.close()
        self.runtime.work.notify()
        self.runtime.news.notify()
        await self._main.stop(STOP_SECONDS)
        await self._enrol.stop(STOP_SECONDS)
        for gateway in (self._main_gateway, self._enrol_gateway):
            await gateway.close()
        await self.runtime.repository.finished()
        await self.engine.stop()
        await asyncio.to_thread(self.runtime.close)
        self._lock.close()
        log.event("stopped", federation=self.config.federation)


SHUTDOWN_SECONDS = 10.0


def serve_until_stopped(config: Config) -> NoReturn:
    """Serve until SIGTERM or SIGINT, and end the process."""
    forbid_core_dumps()
    raise_file_limit()
    reuse_buffers()
    log.to_stderr(config.log_format)
    with short_turns():
        asyncio.run(_serve(config))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without waiting: drawing noise cannot be interrupted, and a kill is always safe


async def _serve(config: Config) -> None:
    gc.disable()  # what is read at the start stays
    daemon = Daemon(config)
    with notifications(
        config.notify.channels,
        federation=config.federation,
        analysts=dict(config.notify.analysts),
        count=lambda outcome: daemon.runtime.metrics.notices.labels(outcome).inc(),
    ):
        # A long ledger is a million long-lived values: exclude them from garbage collection.
        gc.freeze()
        gc.enable()
        await _until_stopped(config, await daemon.start())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(daemon.stop(), SHUTDOWN_SECONDS)


async def _until_stopped(config: Config, ports: Ports) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    opened = {name: port for name, port in asdict(ports).items() if port is not None}
    serving = {"event": "serving", "federation": config.federation, "host": config.host, **opened}
    click.echo(json.dumps(serving, sort_keys=True))
    sys.stdout.flush()
    await stop.wait()
    log.event("stopping", federation=config.federation)
