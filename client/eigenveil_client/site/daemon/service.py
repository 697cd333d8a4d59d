"""Daemon of a site and its process: requests work from the coordinator and answers it, with retries, without
a listening socket."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import grpc

from eigenveil import __version__
from eigenveil.dictionary.directory import SiteStatement
from eigenveil.dictionary.site_rules import ANY, analysts_line
from eigenveil.errors import Code, EigenveilError, InternalError, PeerError, RequestError
from eigenveil.identity import Role
from eigenveil.protocol.capabilities import OWN
from eigenveil_client.connection.channel import backoff_seconds, call
from eigenveil_client.connection.identity import StoredIdentity, load_identity, open_channel
from eigenveil_client.connection.session_start import (
    Generation,
    accept_dictionary,
    greet_coordinator,
    renew_in_time,
)
from eigenveil_client.records.isolated import reader
from eigenveil_client.site.config import SiteConfig, statement_of
from eigenveil_client.site.daemon.connection import ConnectionLost, SiteConnection, remote
from eigenveil_client.site.daemon.metrics import Contact, write_periodically
from eigenveil_client.site.daemon.reminders import remind_periodically
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.engine.engine import make_engine
from eigenveil_client.site.engine.progress import LoadProgress, progress_file
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.roster.peers import PEERS
from eigenveil_client.site.roster.roster import Roster
from eigenveil_client.site.state.store_access import exclusive_lock, note_configuration, open_site_store
from eigenveil_common import log
from eigenveil_common.doctor import Check, Level, fail, ok, warn
from eigenveil_common.log import event
from eigenveil_common.notify.outbox import notifications
from eigenveil_common.process_limits import forbid_core_dumps
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

STABLE_SECONDS = 5.0  # a connection that lasted so long is retried at once
EXPIRY_WARNING = timedelta(days=2)
LIST_WARNING = timedelta(days=30)
CLOCK_WARNING_MS = 60_000
TIDY_SECONDS = 1.0


class SiteDaemon:
    """Daemon that runs `worker` against the coordinator. `identity` is read again for every connection, so a
    renewed certificate needs no restart."""

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
        self._logged_state: str | None = None
        self._warned: set[str] = set()

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            InternalError: code `storage`; nothing was sent after it.
            RequestError: nothing was sent after it. The configuration is no longer valid (such as a key that
                others can read), the coordinator's ledger went backwards, or the key cards of peers were
                changed, or are missing or damaged."""
        store = self._store
        background = (
            self._serve(),
            store.note_periodically(),
            store.traffic.flush_periodically(),
            remind_periodically(self._worker),
            tidy_periodically(self._worker),
        )
        tasks = [asyncio.create_task(work) for work in background]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, InternalError):  # a final write failed
                    raise ended

    async def _serve(self) -> None:
        attempt = 0
        while True:
            self._store.checkpoints.check()
            began = time.monotonic()
            try:
                async with await self._connect() as channel:
                    stub = self._store.traffic.counted(rpc.CoordinatorStub(channel))
                    connection = await self._open_connection(stub)
                    self._log_state("connected")
                    self.contact.connected = True
                    self.contact.connections += 1
                    await self._work(connection, stub)
            except ConnectionLost as failure:
                self.contact.disconnects[failure.problem.code.value] += 1
                self._log_state("disconnected", code=failure.problem.code.value, detail=failure.problem)
            finally:
                self.contact.connected = False
            attempt = 0 if time.monotonic() - began > STABLE_SECONDS else attempt + 1
            await asyncio.sleep(backoff_seconds(attempt))

    def _log_state(self, name: str, **fields: object) -> None:
        """Log a state once, not on every attempt."""
        state = f"{name} {fields.get('code', '')}"
        if state != self._logged_state:
            event(name, logging.WARNING if fields else logging.INFO, **fields)
            self._logged_state = state

    def _warn_once(self, name: str, **fields: object) -> None:
        """Log a warning once, not for every connection."""
        if f"{name} {fields}" not in self._warned:
            self._warned.add(f"{name} {fields}")
            event(name, logging.WARNING, **fields)

    async def _connect(self) -> grpc.aio.Channel:
        try:
            self._current_identity = identity = self._identity()
            self._store.confirmed.note_and_require(identity.folder)
            Roster(PEERS, identity.folder).check_unchanged()
            self.contact.ends = identity.expires.timestamp()
            if identity.expires - datetime.now(UTC) < EXPIRY_WARNING:
                self._warn_once("certificate-ends-soon", at=f"{identity.expires:%Y-%m-%dT%H:%MZ}")
            if identity.authorities.ends - datetime.now(UTC) < LIST_WARNING:
                self._warn_once("authorities-end-soon", at=f"{identity.authorities.ends:%Y-%m-%dT%H:%MZ}")
            return await open_channel(identity)
        except PeerError as problem:
            raise ConnectionLost(problem) from problem

    async def _open_connection(self, stub: rpc.CoordinatorAsyncStub) -> SiteConnection:
        identity, checkpoint = self._current_identity, self._store.checkpoints.latest()
        software, generation = f"eigenveil-site {__version__}", Generation(identity.folder)
        self._store.note_ledger()
        try:
            hello = await greet_coordinator(
                stub, software, identity, generation, checkpoint=checkpoint, statement=self._statement,
                capabilities=OWN.to_proto(),
            )  # fmt: skip
        except InternalError:
            raise
        except EigenveilError as problem:
            raise ConnectionLost(problem) from problem
        self._current_identity = self._identity()  # the greeting may have brought a new list of authorities
        self._worker.follow_identity(self._current_identity)
        await self._update_dictionary(stub)
        if abs(hello.unix_time_ms - time.time() * 1000) > CLOCK_WARNING_MS:
            self._warn_once("clocks-differ")
        return SiteConnection(self._worker, stub, hello.limits, self.contact)

    async def _update_dictionary(self, stub: rpc.CoordinatorAsyncStub) -> None:
        """Store the federation's dictionary beside the identity; a site works without one. Raises
        InternalError: code `storage`."""
        try:
            sent = await remote(call(stub.GetDictionary, pb.GetDictionaryRequest(), attempts=1))
            await asyncio.to_thread(accept_dictionary, self._current_identity, sent)
        except ConnectionLost as failure:
            self._warn_once("dictionary-missed", code=failure.problem.code.value)
        except PeerError as problem:
            self._warn_once("dictionary-refused", code=problem.code.value, detail=problem)

    async def _work(self, connection: SiteConnection, stub: rpc.CoordinatorAsyncStub) -> None:
        """Work until the connection is lost or old, or the certificate was renewed."""
        renewal = asyncio.create_task(renew_in_time(stub, self._current_identity))
        try:
            await connection.run(renewal.done)
            if renewal.done():
                renewal.result()
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)


async def tidy_periodically(worker: SiteWorker) -> None:
    """Drop records that may not be kept, every second, in a thread. Raises InternalError: code `storage`."""
    while True:
        await asyncio.sleep(TIDY_SECONDS)
        await asyncio.to_thread(worker.tidy)


ENDS_SOON_DAYS = 30  # of the ethics approval


def check_role(stored: StoredIdentity, name: str) -> StoredIdentity:
    """Require that an identity is this site's. Raises RequestError: code `bad-config`."""
    if (stored.identity.role, stored.identity.name) != (Role.SITE, name):
        raise RequestError(
            Code.BAD_CONFIG,
            f"the identity is {stored.identity.uri}, but site.toml names the site {name!r}; correct one",
        )
    return stored


def check_approval(policy: Policy, now: int) -> Check:
    verdict, days = policy.approval_verdict(now), policy.days_left(now)
    if not verdict.passed:
        text = f"{verdict.text}; no study is answered"
        return fail("approval", text, "renew it, then set approval_ends in site.toml", code=Code.POLICY)
    if days < ENDS_SOON_DAYS:
        return warn("approval", f"{verdict.text}, in {days:.1f} days", "renew it in time")
    return ok("approval", verdict.text)


def check_allowed_analysts(policy: Policy) -> Check:
    """Return the check of the allowed analysts and of the kind of approval."""
    if not policy.analysts:
        todo = f"write {analysts_line('NAME')} into site.toml, with the name in the analyst's certificate"
        return warn("analysts", "no analyst is allowed yet: every study is declined", todo)
    names = "every analyst of the federation" if ANY in policy.analysts else ", ".join(policy.analysts)
    by_person = policy.approval is Approval.MANUAL
    decision = "a person decides about each study" if by_person else "the rules decide"
    return ok("analysts", f"{names} may submit studies; {decision}")


def serve(config: SiteConfig) -> None:
    """Serve until SIGTERM or SIGINT. Raises EigenveilError: it cannot start, or the disk failed."""
    forbid_core_dumps()
    log.to_stderr(config.log_format)

    def identity() -> StoredIdentity:
        return replace(check_role(load_identity(config.identity), config.name), proxy=config.proxy_rule)

    first = identity()
    # Missing records stop the start instead of a study.
    reader.check_opens(config.records, config.engine.reading)
    with exclusive_lock(config.state) as lock, open_site_store(config) as store:
        note_configuration(lock, config)
        engine = make_engine(config, LoadProgress(progress_file(config.state)))
        worker = SiteWorker(first, config.policy, store, engine)
        federation = first.identity.federation
        started = {"event": "serving", "site": config.name, "federation": federation}
        click.echo(json.dumps(started | {"coordinator": first.addresses[0]}, sort_keys=True))
        log.event("started", site=config.name)
        approval_check = check_approval(config.policy, store.now())
        if approval_check.level is not Level.OK:
            name = "approval-ends-soon" if approval_check.level is Level.WARN else "approval-ended"
            log.event(name, logging.WARNING, detail=f"{approval_check.text}: {approval_check.action}")
        daemon = SiteDaemon(worker, identity, statement_of(config))
        count: Callable[[str], None] = lambda outcome: daemon.contact.notices.update((outcome,))  # noqa: E731
        with notifications(config.notify, federation=federation, site=config.name, count=count):
            try:
                asyncio.run(_until_stopped(daemon, worker, config.metrics_file))
            finally:
                worker.ahead.close()
        log.event("stopped", site=config.name)


async def _until_stopped(daemon: SiteDaemon, worker: SiteWorker, metrics: Path | None) -> None:
    task = asyncio.ensure_future(daemon.run())
    if metrics is not None:
        writing = write_periodically(metrics, daemon.contact, lambda: worker.store.ledger.totals)
        written = asyncio.ensure_future(writing)
        task.add_done_callback(lambda _: written.cancel())

    def stop() -> None:
        worker.ahead.close()  # the end of the loop waits for a thread that may wait for a load
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    with suppress(asyncio.CancelledError):
        await task
