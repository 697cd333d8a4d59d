"""Site sessions: one daemon for each site, by its generation and its connection [R18].

A site announces in each Hello the secret that its next Hello will show. Of two daemons with copies of one
folder, the first to send Hello moves on. The other shows an old secret and is refused until the operator
makes a new token. While a daemon works on one connection, Hello on another connection is refused too.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Identity, Role
from eigenveil_common import log
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.process import Clock
from eigenveil_server.rpc.callers import Calls
from eigenveil_server.storage.database import Store, audit_once

SECRET_BYTES = 32
DIGEST_BYTES = 32
PROBE_SECONDS = 4.0  # in which a live daemon polls again: it waits for one second at most
PROBE_STEP = 0.05
Hurry = Callable[[str], None]  # answers the long poll of a site


class GreetingRecord(NamedTuple):
    """Stored record of one caller's last Hello. `generation` is the digest of the secret that the next one
    must show; None before the first that announced one."""

    authorities: bytes
    generation: bytes | None


class SiteSessions:
    """Sessions of site daemons, with generations in the table `greetings`, which only this process writes."""

    def __init__(self, store: Store, calls: Calls, clock: Clock) -> None:
        self._store = store
        self._calls = calls
        self._clock = clock
        self._peers: dict[str, str] = {}
        self._since: dict[str, int] = {}
        self._greeting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def check(self, site: Identity, peer: str) -> None:
        """Check that the site's daemon sent its last Hello on this connection."""
        if self._peers.get(site.name) != peer and await self._stored_generation(site) is not None:
            raise RequestError(
                Code.NOT_READY, "send Hello on this connection first; the site may now use another one"
            )

    async def greet(self, caller: Identity, peer: str, hello: pb.HelloRequest, end_poll: Hurry) -> None:
        """Process a Hello. A site that announces a generation works on the connection `peer` from now on.

        Raises:
            PeerError: code `identity`, the generation is behind; `protocol`, it is malformed.
            RequestError: code `not-ready`, the site's daemon works on another connection.
        """
        if len(hello.authorities) not in (0, DIGEST_BYTES):
            raise PeerError(Code.PROTOCOL, "authorities must be a SHA-256 digest")
        if caller.role is not Role.SITE:
            await self._note(caller, hello.authorities, None)
            return
        if not hello.next_generation:  # `doctor` of a site, which is not the daemon
            return
        if len(hello.next_generation) != SECRET_BYTES or len(hello.generation) not in (0, SECRET_BYTES):
            raise PeerError(Code.PROTOCOL, f"a generation must have {SECRET_BYTES} bytes")
        async with self._greeting[caller.name]:
            await self._check_generation(caller, peer, hello)
            await self._check_single_daemon(caller, peer, end_poll)
            await self._check_generation(caller, peer, hello)  # the site may have enrolled again meanwhile
            await self._note(caller, hello.authorities, _digest(hello.next_generation))
            if self._peers.get(caller.name) != peer:
                self._since[caller.name] = self._clock()
            self._peers[caller.name] = peer

    def current_connections(self) -> dict[str, tuple[str, int]]:
        """Return the connection of each site's last Hello and its start time. It may have ended."""
        return {site: (peer, self._since[site]) for site, peer in self._peers.items()}

    async def _check_generation(self, site: Identity, peer: str, hello: pb.HelloRequest) -> None:
        stored = await self._stored_generation(site)
        if stored in (None, _digest(hello.generation), _digest(hello.next_generation)):
            return
        log.log_error("generation-behind", site=site.name, peer=peer)
        raise PeerError(
            Code.IDENTITY,
            f"another daemon has run as {site.uri} with a copy of this identity, or this one was restored "
            "from an old copy; stop all but one and ask the coordinator's operator for a new join file",
        )

    async def _check_single_daemon(self, site: Identity, peer: str, end_poll: Hurry) -> None:
        """Refuse a Hello while another daemon of the site is alive. The long poll of a dead daemon looks like
        that of a live one. So it is answered empty: only a live daemon polls again."""
        if not self._calls.has_call_elsewhere(site.uri, peer):
            return
        before = self._calls.begun
        end_poll(site.name)
        for _ in range(int(PROBE_SECONDS / PROBE_STEP)):
            await asyncio.sleep(PROBE_STEP)
            if self._calls.has_call_elsewhere(site.uri, peer, since=before):
                log.log_error("second-daemon", site=site.name, peer=peer)
                raise RequestError(
                    Code.NOT_READY,
                    f"another daemon already runs as {site.uri}; if that is a copy, stop it and ask the "
                    "coordinator's operator to deny this site and to make a new join file",
                )

    async def _stored_generation(self, caller: Identity) -> bytes | None:
        found = await self._stored_greeting(caller)
        return None if found is None else found.generation

    async def _stored_greeting(self, caller: Identity) -> GreetingRecord | None:
        rows = await self._store.read(
            self._store.reader.rows,
            "SELECT authorities, generation FROM greetings WHERE (role, name) = (?, ?)",
            (caller.role.value, caller.name),
        )
        return GreetingRecord(*rows[0]) if rows else None

    async def _note(self, caller: Identity, authorities: bytes, generation: bytes | None) -> None:
        """Store a changed record durably before Hello is answered."""
        found = await self._stored_greeting(caller)
        if found is not None:  # an empty field changes nothing
            authorities, generation = authorities or found.authorities, generation or found.generation
        new = GreetingRecord(authorities=authorities, generation=generation)
        if new != found:
            await asyncio.to_thread(self._write, caller, new)

    def _write(self, caller: Identity, new: GreetingRecord) -> None:
        with self._store.writer.transaction() as change:
            change.execute(
                "INSERT INTO greetings VALUES (?, ?, ?, ?) ON CONFLICT (role, name) DO UPDATE "
                "SET authorities = excluded.authorities, generation = excluded.generation",
                (caller.role.value, caller.name, *new),
            )
            if new.generation is not None:
                audit_once(change, self._clock(), "greeted", caller.uri)


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
