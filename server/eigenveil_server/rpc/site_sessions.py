"""One daemon for each site: the generation that its greetings hand on, and the connection it works on [R18].

A site announces in each Hello what its next one will show. Of two daemons that grew out of one folder,
whichever greets first moves on, and the other's word is behind: it is refused until the operator makes a
new token. While a site's daemon is at work on one connection, a greeting on another is refused as well.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Identity, Role
from eigenveil_common import log
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.clock import Clock
from eigenveil_server.rpc.calls import Calls
from eigenveil_server.storage.database import Store, audit_once

SECRET_BYTES = 32
DIGEST_BYTES = 32
PROBE_SECONDS = 4.0  # in which a daemon that is alive asks for work again: it waits for one second at most
PROBE_STEP = 0.05
Hurry = Callable[[str], None]  # answers the long-poll of a site of this name


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeted:
    """What is known of one caller's last greeting. `generation` is the digest of what the next one must
    show; None before the first that announced anything."""

    authorities: bytes
    generation: bytes | None


class SiteSessions:
    """The sites at work. Kept in memory what the table `greetings` says: this process alone writes it."""

    def __init__(self, store: Store, calls: Calls, clock: Clock) -> None:
        self._store = store
        self._calls = calls
        self._clock = clock
        self._peers: dict[str, str] = {}
        self._since: dict[str, int] = {}
        self._greeting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def check(self, site: Identity, peer: str) -> None:
        """Insist that this is the connection on which the site's daemon said Hello.

        Raises:
            RequestError: code `not-ready`: it said Hello on another one since, or none since the start.
        """
        if self._peers.get(site.name) != peer and await self._held(site) is not None:
            raise RequestError(
                Code.NOT_READY, "say Hello on this connection first; another one may be in use by now"
            )

    async def greet(self, caller: Identity, peer: str, hello: pb.HelloRequest, hurry: Hurry) -> None:
        """Take note of a Hello; a site that announces a generation is at work on `peer` from now on.

        Raises:
            PeerError: code `identity`, the generation is behind; `protocol`, it is malformed.
            RequestError: code `not-ready`, the site's daemon is at work elsewhere.
        """
        if len(hello.authorities) not in (0, DIGEST_BYTES):
            raise PeerError(Code.PROTOCOL, "authorities is a SHA-256 digest")
        if caller.role is not Role.SITE:
            await self._note(caller, hello.authorities, None)
            return
        if not hello.next_generation:  # `doctor` of a site: what it trusts says nothing about the daemon
            return
        if len(hello.next_generation) != SECRET_BYTES or len(hello.generation) not in (0, SECRET_BYTES):
            raise PeerError(Code.PROTOCOL, f"a generation has {SECRET_BYTES} bytes")
        async with self._greeting[caller.name]:
            await self._check_generation(caller, peer, hello)
            await self._check_alone(caller, peer, hurry)
            await self._check_generation(caller, peer, hello)  # enrolled anew meanwhile?
            await self._note(caller, hello.authorities, _digest(hello.next_generation))
            if self._peers.get(caller.name) != peer:
                self._since[caller.name] = self._clock()
            self._peers[caller.name] = peer

    def at_work(self) -> dict[str, tuple[str, int]]:
        """The connection on which each site's daemon greeted last, and since when; it may have ended."""
        return {site: (peer, self._since[site]) for site, peer in self._peers.items()}

    async def _check_generation(self, site: Identity, peer: str, hello: pb.HelloRequest) -> None:
        held = await self._held(site)
        if held in (None, _digest(hello.generation), _digest(hello.next_generation)):
            return
        log.alarm("generation-behind", site=site.name, peer=peer)
        raise PeerError(
            Code.IDENTITY,
            f"another daemon has served as {site.uri} with a copy of this identity, or this one was restored "
            "from an old copy; stop all but one and ask the coordinator's operator for a new join file",
        )

    async def _check_alone(self, site: Identity, peer: str, hurry: Hurry) -> None:
        """A long-poll of a daemon that is gone looks like one of a daemon that waits. So it is answered with
        nothing, and only a daemon that is there asks again."""
        if not self._calls.elsewhere(site.uri, peer):
            return
        before = self._calls.begun
        hurry(site.name)
        for _ in range(int(PROBE_SECONDS / PROBE_STEP)):
            await asyncio.sleep(PROBE_STEP)
            if self._calls.elsewhere(site.uri, peer, since=before):
                log.alarm("second-daemon", site=site.name, peer=peer)
                raise RequestError(
                    Code.NOT_READY,
                    f"a daemon is serving as {site.uri} already; if that is a copy, stop it and ask the "
                    "coordinator's operator to deny this site and to make a new join file",
                )

    async def _held(self, caller: Identity) -> bytes | None:
        found = await self._greeted(caller)
        return None if found is None else found.generation

    async def _greeted(self, caller: Identity) -> Greeted | None:
        rows = await self._store.read(
            self._store.reader.rows,
            "SELECT authorities, generation FROM greetings WHERE (role, name) = (?, ?)",
            (caller.role.value, caller.name),
        )
        return Greeted(**dict(rows[0])) if rows else None

    async def _note(self, caller: Identity, authorities: bytes, generation: bytes | None) -> None:
        """Bring to the disk what is new, before the answer says so."""
        found = await self._greeted(caller)
        if found is not None:  # who says nothing of one takes nothing back
            authorities, generation = authorities or found.authorities, generation or found.generation
        new = Greeted(authorities=authorities, generation=generation)
        if new != found:
            await asyncio.to_thread(self._write, caller, new)

    def _write(self, caller: Identity, new: Greeted) -> None:
        with self._store.writer.transaction() as change:
            change.execute(
                "INSERT INTO greetings VALUES (?, ?, ?, ?) ON CONFLICT (role, name) DO UPDATE "
                "SET authorities = excluded.authorities, generation = excluded.generation",
                (caller.role.value, caller.name, new.authorities, new.generation),
            )
            if new.generation is not None:
                audit_once(change, self._clock(), "greeted", caller.uri)


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
