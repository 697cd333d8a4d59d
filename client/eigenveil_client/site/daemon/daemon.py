"""The site's process: dials out, asks for work, answers it; for ever, whatever breaks in between.

It opens no listening socket.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import grpc

from eigenveil import __version__
from eigenveil.dictionary.statement import SiteStatement
from eigenveil.errors import EigenveilError, InternalError, PeerError
from eigenveil_client.connection.channel import call, pause
from eigenveil_client.connection.held_dictionary import take_dictionary
from eigenveil_client.connection.identity import StoredIdentity, open_channel
from eigenveil_client.connection.renewal import Generation, introduce, renew_in_time
from eigenveil_client.site.daemon.connection import Lost, SiteConnection, remote
from eigenveil_client.site.daemon.metrics import Contact
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.peers.kind import PEERS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_common.log import event
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

STABLE_SECONDS = 5.0  # a connection that held so long is tried again at once when it breaks
EXPIRY_WARNING = timedelta(days=2)
LIST_WARNING = timedelta(days=30)
CLOCK_WARNING_MS = 60_000


class SiteDaemon:
    """Runs `worker` against the coordinator. `identity` is read anew for every connection, so a
    renewed certificate needs no restart. `statement` is what the site states of itself, None for nothing."""

    def __init__(
        self,
        worker: SiteWorker,
        identity: Callable[[], StoredIdentity],
        statement: SiteStatement | None = None,
    ) -> None:
        self._worker = worker
        self._store = worker.store
        self._identity = identity
        self._statement = None if statement is None else statement.to_proto()
        self.contact = Contact()
        self._said: str | None = None
        self._warned: set[str] = set()

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            InternalError: code `storage`; nothing was sent after it.
            RequestError: the configuration does not hold any more (such as a key others can read), or the
                coordinator's ledger went backwards, or it showed another card of a peer than the one that
                was confirmed here, or confirmed cards are gone or damaged; nothing was sent after it.
        """
        unending = (self._serve(), self._store.keep_noted(), self._store.traffic.keep_flushed())
        tasks = [asyncio.create_task(work) for work in unending]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, InternalError):  # what had to be written at the end was not
                    raise ended

    async def _serve(self) -> None:
        attempt = 0
        while True:
            self._store.checkpoints.check()
            began = time.monotonic()
            try:
                async with await self._connect() as channel:
                    stub = self._store.traffic.counted(rpc.CoordinatorStub(channel))
                    connection = await self._greet(stub)
                    self._say("connected")
                    self.contact.connected = True
                    self.contact.connections += 1
                    await self._work(connection, stub)
            except Lost as lost:
                self.contact.lost[lost.problem.code.value] += 1
                self._say("disconnected", code=lost.problem.code.value, detail=lost.problem)
            finally:
                self.contact.connected = False
            attempt = 0 if time.monotonic() - began > STABLE_SECONDS else attempt + 1
            await asyncio.sleep(pause(attempt))

    def _say(self, name: str, **words: object) -> None:
        """Log a state once, not on every attempt."""
        state = f"{name} {words.get('code', '')}"
        if state != self._said:
            event(name, logging.WARNING if words else logging.INFO, **words)
            self._said = state

    def _warn(self, name: str, **words: object) -> None:
        """Log a warning once, not for every connection."""
        if f"{name} {words}" not in self._warned:
            self._warned.add(f"{name} {words}")
            event(name, logging.WARNING, **words)

    async def _connect(self) -> grpc.aio.Channel:
        try:
            self._shown = identity = self._identity()
            self._store.confirmed.keep(identity.folder)
            Roster(PEERS, identity.folder).check_unchanged()
            self.contact.ends = identity.expires.timestamp()
            if identity.expires - datetime.now(UTC) < EXPIRY_WARNING:
                self._warn("certificate-ends-soon", at=f"{identity.expires:%Y-%m-%dT%H:%MZ}")
            if identity.authorities.ends - datetime.now(UTC) < LIST_WARNING:
                self._warn("authorities-end-soon", at=f"{identity.authorities.ends:%Y-%m-%dT%H:%MZ}")
            return await open_channel(identity)
        except PeerError as problem:
            raise Lost(problem) from problem

    async def _greet(self, stub: rpc.CoordinatorAsyncStub) -> SiteConnection:
        software, generation = f"eigenveil-site {__version__}", Generation(self._shown.folder)
        checkpoint = self._store.checkpoints.latest()
        self._store.note_ledger()
        try:
            hello = await introduce(
                stub, software, self._shown, generation, checkpoint=checkpoint, statement=self._statement
            )
        except InternalError:
            raise
        except EigenveilError as problem:
            raise Lost(problem) from problem
        await self._learn(stub)
        if abs(hello.unix_time_ms - time.time() * 1000) > CLOCK_WARNING_MS:
            self._warn("clocks-differ")
        return SiteConnection(self._worker, stub, hello.limits, self.contact)

    async def _learn(self, stub: rpc.CoordinatorAsyncStub) -> None:
        """Keep the federation's dictionary beside the identity, for people here; a site works without one.

        Raises:
            InternalError: code `storage`.
        """
        try:
            sent = await remote(call(stub.GetDictionary, pb.GetDictionaryRequest(), attempts=1))
            await asyncio.to_thread(take_dictionary, self._shown, sent)
        except Lost as lost:
            self._warn("dictionary-missed", code=lost.problem.code.value)
        except PeerError as problem:
            self._warn("dictionary-refused", code=problem.code.value, detail=problem)

    async def _work(self, connection: SiteConnection, stub: rpc.CoordinatorAsyncStub) -> None:
        """Work until the connection is lost or old, or its certificate was renewed."""
        renewal = asyncio.create_task(renew_in_time(stub, self._shown))
        try:
            await connection.run(renewal.done)
            if renewal.done():
                renewal.result()
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
