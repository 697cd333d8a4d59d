"""Callers and their calls: admission, calls in progress, time of the last call, and the watchdog. The
operator's commands run in other processes. Their changes take effect here without a restart, also on open
connections."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from eigenveil.errors import Code, EigenveilError, InternalError, PeerError, RequestError
from eigenveil.identity import Identity
from eigenveil.numerics.encoding import parse_json
from eigenveil_common import log
from eigenveil_server.front.message_quota import current_task
from eigenveil_server.pki.authority_files import Authorities
from eigenveil_server.pki.keys import ServerCertificate
from eigenveil_server.pki.registry import Registry, current_enrolments
from eigenveil_server.process import Clock, Fatal
from eigenveil_server.storage.database import Store

MAX_CALLS_PER_CALLER = 64  # in progress at a time, so that one caller cannot take all of them
WATCHES_SHARE = 4  # one caller has at most this share of all watches, and always one


@dataclass(slots=True, kw_only=True)
class CallInProgress:
    """`check` raises if the caller is no longer admitted, `refused` is the error that ended the call from
    outside, and `answered` is True once its handler has returned."""

    caller: str
    peer: str
    number: int
    check: Callable[[], object]
    task: asyncio.Task[object]
    refused: PeerError | None = None
    answered: bool = False


@dataclass(eq=False)
class Calls:
    """All admitted calls that have not ended. Use it on the event loop. A call is in progress until its task
    ends, when its caller has read the reply (see `front.message_quota`)."""

    begun: int = 0
    _calls: dict[int, CallInProgress] = field(default_factory=dict)
    _of: defaultdict[str, dict[int, CallInProgress]] = field(default_factory=lambda: defaultdict(dict))

    @contextmanager
    def one(self, caller: str, peer: str, check: Callable[[], object]) -> Iterator[None]:
        """Count a call of `caller` on the connection `peer` until its task ends. Only the block can be ended
        from outside. Raises RequestError: code `not-ready`, too many calls of this caller; PeerError: its
        caller was refused meanwhile (see `sweep`)."""
        task = current_task()
        if len(self._of.get(caller, ())) >= MAX_CALLS_PER_CALLER:
            raise RequestError(
                Code.NOT_READY,
                f"{MAX_CALLS_PER_CALLER} of your calls are in progress or not read yet; try again later",
            )
        self.begun += 1
        call = CallInProgress(caller=caller, peer=peer, number=self.begun, check=check, task=task)
        self._calls[call.number] = self._of[caller][call.number] = call
        task.add_done_callback(partial(self._ended, call))
        try:
            yield
        except asyncio.CancelledError:
            if call.refused is None:
                raise
            task.uncancel()
            raise call.refused from None
        finally:
            call.answered = True

    def _ended(self, call: CallInProgress, task: asyncio.Task[object]) -> None:
        del self._calls[call.number], self._of[call.caller][call.number]
        if not self._of[call.caller]:
            del self._of[call.caller]

    def sweep(self) -> None:
        """End the calls whose callers are no longer admitted: denied, replaced or expired. Each connection is
        checked once: the check of one of its calls holds for all."""
        verdicts: dict[tuple[str, str], PeerError | None] = {}
        for call in [one for one in self._calls.values() if not one.answered]:
            key = (call.caller, call.peer)
            if key not in verdicts:
                verdicts[key] = None
                try:
                    call.check()
                except PeerError as problem:
                    verdicts[key] = problem
                    log.event("call-ended", peer=call.caller, code=problem.code.value, why=str(problem))
            if (refused := verdicts[key]) is not None and call.refused is None:
                call.refused = refused
                call.task.cancel()

    def has_call_elsewhere(self, caller: str, peer: str, *, since: int = 0) -> bool:
        """Return True if `caller` has a call on another connection than `peer`, begun after call `since`."""
        mine = self._of.get(caller, {}).values()
        return any(call.peer != peer and call.number > since and not call.answered for call in mine)


@dataclass(eq=False)
class Watches:
    """Watches in progress, at most `most`. Use it on the event loop."""

    _most: int
    _of: Counter[str] = field(default_factory=Counter)

    def total(self) -> int:
        return self._of.total()

    @contextmanager
    def one(self, caller: str) -> Iterator[None]:
        """Count a watch of `caller` until it ends."""
        if self._of.total() >= self._most:
            raise RequestError(Code.NOT_READY, "too many studies are being watched; try again later")
        share = max(1, self._most // WATCHES_SHARE)
        if self._of[caller] >= share:
            raise RequestError(
                Code.NOT_READY, f"{share} of your watches are open, which is the limit; end one of them first"
            )
        self._of[caller] += 1
        try:
            yield
        finally:
            self._of[caller] -= 1


class Admissions:
    """Status of all callers; `latest` is as of the last `refresh`. Use it on the event loop. The callers that
    may call now are read again for each call. Waiting calls share one read."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self.latest = current_enrolments(store.reader, None)
        self._looking: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Read `latest` again, as of this call or later."""
        if self._store.threads is None:  # reading a few rows takes less time than handing them over
            self.latest = current_enrolments(self._store.reader, self.latest)
            return
        if self._next is None:  # a read that has begun may miss a change that this call must see
            self._next = asyncio.create_task(self._read_after(self._looking))
        await asyncio.shield(self._next)

    async def _read_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._looking, self._next = self._next, None
        self.latest = await self._store.read(current_enrolments, self._store.reader, self.latest)

    async def mark_used(self, identity: Identity, certificate_print: str) -> None:
        """Record that a renewed certificate was used, and read `latest` again."""
        await asyncio.to_thread(self._registry.mark_used, identity, certificate_print)
        await self.refresh()


EVERY_MS = 5000  # at most one write in this time, for all sites


class Presence:
    """Times of the last calls, written by one serving coordinator. The times are of each site's last call, in
    a file that `status` reads for the coordinator's operator. The file may be lost: it is neither in the
    database nor in a backup, and no decision depends on it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._last_calls = last_call_times(path)
        self._written = 0

    def note_call(self, site: str) -> None:
        """Record a call of a site. A failed write is logged and has no other effect."""
        now = self._clock()
        self._last_calls[site] = now
        if 0 <= now - self._written < EVERY_MS:
            return
        self._written = now
        half = self._path.with_suffix(".half")
        try:  # the file is replaced in one step, without waiting for the disk
            with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(self._last_calls, file)
            os.replace(half, self._path)
        except OSError as problem:
            log.event("presence-unwritten", logging.WARNING, detail=problem.strerror)


def last_call_times(path: Path) -> dict[str, int]:
    """Return the time of each site's last call in Unix milliseconds; empty if the file cannot be read."""
    try:
        found = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    whole = isinstance(found, dict) and all(type(at) is int for at in found.values())
    return found if whole else {}


EVERY_SECONDS = 0.5


@dataclass(eq=False)
class Watchdog:
    """Periodic checks from `start` to `stop`. A storage error ends the process through `fatal`. Denied
    callers, trusted authorities and the coordinator's certificate are checked twice a second."""

    _authorities: Authorities
    _leaf: ServerCertificate
    _sweep: Callable[[], Awaitable[None]]
    _fatal: Fatal
    _last_error: str = ""

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch_forever())

    async def stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _watch_forever(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            try:
                await self._sweep()
                await asyncio.to_thread(self._refresh)
            except InternalError as problem:
                self._fatal(problem)
            except Exception as surprise:  # noqa: BLE001 - no call may be served without these checks
                self._fatal(InternalError(Code.BUG, f"the watchdog met {type(surprise).__qualname__}"))

    def _refresh(self) -> None:
        """Read changed authorities, and renew the certificate. A damaged file is logged and ignored."""
        try:
            if self._authorities.refresh():
                log.event("authorities-changed", print=self._authorities.current_list.digest.hex())
            self._last_error = ""
            self._leaf.renew()
        except InternalError:
            raise
        except EigenveilError as problem:
            if str(problem) != self._last_error:
                self._last_error = str(problem)
                log.event("authorities-unusable", logging.ERROR, why=self._last_error)
