"""The coordinator process: storage, engine and two listeners, started and stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from dataclasses import dataclass
from typing import IO, NoReturn

import grpc

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.noise import NoiseSource, OsNoise
from eigenveil_common import log
from eigenveil_common.rpc import OPTIONS
from eigenveil_proto.v1.eigenveil_pb2_grpc import (
    add_CoordinatorServicer_to_server,
    add_EnrolmentServicer_to_server,
)
from eigenveil_server.clock import Clock, unix_ms
from eigenveil_server.config import Config
from eigenveil_server.engine import Engine
from eigenveil_server.enrolment import Enrolment
from eigenveil_server.gate import Gate, Peers, anybody
from eigenveil_server.keys import load_keys
from eigenveil_server.leaf import Leaf
from eigenveil_server.registry import Registry
from eigenveil_server.resources import Fatal, Resources
from eigenveil_server.service import Service
from eigenveil_server.setup import existing_store
from eigenveil_server.uploads import Uploads

STOP_SECONDS = 2.0
ENROL_BYTES = 64 * 1024
ENROL_CALLS = 32
COMMON_OPTIONS = (
    *OPTIONS,
    ("grpc.so_reuseport", 0),  # two coordinators on one port would each get half the calls
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


def end_process(problem: InternalError) -> NoReturn:
    """After a failed write nothing may be released: leave at once, running nothing more."""
    log.logger.critical("storage-failed %s; the process ends", problem)
    os._exit(problem.exit_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where the two listeners are."""

    port: int
    enrol_port: int


class Daemon:
    """One serving coordinator.

    Raises on construction:
        RequestError: another process serves this folder, a file is damaged, or the budget is below
            what is committed.
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
            self._lock = undo.enter_context(_only_one(config))
            keys = load_keys(config.files)
            self.resources = Resources.of(
                config, keys, store, clock=clock, noise=noise or OsNoise(), fatal=fatal
            )
            undo.pop_all()
        self.registry = Registry(store, config.federation, clock)
        self.engine = Engine(self.resources, config, Uploads(config.max_uploads))
        self._leaf = Leaf(config, keys, clock)
        self._peers = Peers(self.registry, config.federation, clock)

    async def start(self) -> Ports:
        """Resume the studies and open both listeners.

        Raises:
            RequestError: a port is taken.
        """
        self._main = self._main_server()
        self._enrol = self._enrol_server()
        ports = Ports(
            port=self._bind(self._main, self.config.port, client_certificates=True),
            enrol_port=self._bind(self._enrol, self.config.enrol_port, client_certificates=False),
        )
        await self.engine.start()
        await self._main.start()
        await self._enrol.start()
        log.event("serving", federation=self.config.federation, port=ports.port)
        return ports

    def _main_server(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            interceptors=[Gate(self._peers.admit, self.resources.fatal)],
            options=(*COMMON_OPTIONS, ("grpc.max_concurrent_streams", self.config.max_streams)),
            maximum_concurrent_rpcs=self.config.max_calls,
        )
        service = Service(self.config, self.resources, self.engine, self.registry)
        add_CoordinatorServicer_to_server(service, server)
        return server

    def _enrol_server(self) -> grpc.aio.Server:
        options = dict(COMMON_OPTIONS) | {
            "grpc.max_receive_message_length": ENROL_BYTES,
            "grpc.max_concurrent_streams": 1,
        }
        server = grpc.aio.server(
            interceptors=[Gate(anybody, self.resources.fatal)],
            options=tuple(options.items()),
            maximum_concurrent_rpcs=ENROL_CALLS,
        )
        service = Enrolment(self.config, self.resources.keys, self.registry)
        add_EnrolmentServicer_to_server(service, server)
        return server

    def _bind(self, server: grpc.aio.Server, port: int, *, client_certificates: bool) -> int:
        address = self.config.address
        where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        credentials = self._leaf.credentials(client_certificates=client_certificates)
        try:
            return server.add_secure_port(where, credentials)
        except RuntimeError as problem:
            raise RequestError(
                Code.BAD_CONFIG, f"cannot listen on {where}; is another process using it?"
            ) from problem

    async def stop(self) -> None:
        """Answer the long polls, close the listeners, stop the studies where they are."""
        self.engine.closing = True
        self.resources.work.ring()
        self.resources.news.ring()
        await self._main.stop(STOP_SECONDS)
        await self._enrol.stop(STOP_SECONDS)
        await self.resources.finished()
        await self.engine.stop()
        await asyncio.to_thread(self.resources.close)
        self._lock.close()
        log.event("stopped", federation=self.config.federation)


def _only_one(config: Config) -> IO[bytes]:
    """Hold the folder's lock until the process ends, however it ends."""
    try:
        file = config.files.lock.open("wb")
    except OSError as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"cannot write in {config.files.folder}: {problem.strerror}"
        ) from problem
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        file.close()
        raise RequestError(
            Code.CONFLICT, f"another coordinator serves {config.files.folder}; stop it first"
        ) from problem
    return file
