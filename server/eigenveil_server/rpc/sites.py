"""Sites: the daemon of each by its generation and connection [R18], and their directory [R22] [R23]. A site
announces in each Hello the secret that its next one will show. Of two daemons with copies of one folder, the
first to send Hello moves on; the other is refused until the operator makes a new token."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.directory import HOUR_SECONDS, Directory, SiteStatement, statement_from_proto
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.protocol.capabilities import Capabilities, capabilities_from_proto
from eigenveil_common import log
from eigenveil_common.rpc import MESSAGE_BYTES
from eigenveil_common.storage.database import Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.pki.registry import Registry
from eigenveil_server.process import Clock
from eigenveil_server.rpc.callers import Calls, Presence
from eigenveil_server.storage import directory
from eigenveil_server.storage.database import Store, audit_once
from eigenveil_server.studies.runtime import Runtime

SECRET_BYTES = 32
DIGEST_BYTES = 32
PROBE_SECONDS = 4.0  # in which a live daemon polls again: it waits for one second at most
PROBE_STEP = 0.05
Hurry = Callable[[str], None]  # answers the long poll of a site


@dataclass(eq=False)
class SiteSessions:
    """Sessions of site daemons. `connections` are of each site's last Hello, with their start time; they may
    have ended. The table `greetings`, which only this process writes, has the last Hello of each caller, with
    the digest of the secret that the next one must show (its generation; null before the first)."""

    _store: Store
    _calls: Calls
    _clock: Clock
    connections: dict[str, tuple[str, int]] = field(default_factory=dict)
    _greeting: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def check(self, site: Identity, peer: str) -> None:
        """Check that the site's daemon sent its last Hello on this connection."""
        there, _ = self.connections.get(site.name, ("", 0))
        if there != peer and await self._stored_generation(site) is not None:
            raise RequestError(
                Code.NOT_READY, "send Hello on this connection first; the site may now use another one"
            )

    async def greet(self, caller: Identity, peer: str, hello: pb.HelloRequest, end_poll: Hurry) -> None:
        """Process a Hello. A site that announces a generation works on the connection `peer` from now on.
        Raises PeerError: code `identity`, the generation is behind; `protocol`, it is malformed;
        RequestError: code `not-ready`, the site's daemon works on another connection."""
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
            if self.connections.get(caller.name, ("", 0))[0] != peer:
                self.connections[caller.name] = (peer, self._clock())

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
        return None if found is None else found["generation"]

    async def _stored_greeting(self, caller: Identity) -> Row | None:
        rows = await self._store.read(
            self._store.reader.rows,
            "SELECT authorities, generation FROM greetings WHERE (role, name) = (?, ?)",
            (caller.role.value, caller.name),
        )
        return rows[0] if rows else None

    async def _note(self, caller: Identity, authorities: bytes, generation: bytes | None) -> None:
        """Store a changed record durably before Hello is answered."""
        found = await self._stored_greeting(caller)
        if found is not None:  # an empty field changes nothing
            authorities = authorities or found["authorities"]
            generation = generation or found["generation"]
        if found is None or tuple(found) != (authorities, generation):
            await asyncio.to_thread(self._write, caller, authorities, generation)

    def _write(self, caller: Identity, authorities: bytes, generation: bytes | None) -> None:
        with self._store.writer.transaction() as change:
            change.execute(
                "INSERT INTO greetings VALUES (?, ?, ?, ?) ON CONFLICT (role, name) DO UPDATE "
                "SET authorities = excluded.authorities, generation = excluded.generation",
                (caller.role.value, caller.name, authorities, generation),
            )
            if generation is not None:
                audit_once(change, self._clock(), "greeted", caller.uri)


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


HOUR_MS = 1000 * HOUR_SECONDS
ROOM = MESSAGE_BYTES // 2  # for the rows of one answer


class SiteDirectory:
    """Directory of sites. Statements are cached from the table, which only this process writes. The hours of
    the sites' last calls are lost when the process ends. Methods that read the database may be called on any
    thread."""

    def __init__(self, config: Config, runtime: Runtime, registry: Registry) -> None:
        self._config = config
        self._repository = repository = runtime.repository
        self._keys = runtime.keys
        self._capabilities = runtime.capabilities
        self._registry = registry
        self._statements = directory.statements(repository.store.reader)
        self._last_call_hours: dict[str, int] = {}
        self._presence = Presence(config.files.presence, repository.clock)
        self._signed_dictionary: tuple[int, pb.GetDictionaryResponse] | None = None  # up to 1 MiB: made once
        self._read: tuple[int, Dictionary] | None = None

    def stated(
        self, caller: Identity, hello: pb.HelloRequest
    ) -> tuple[SiteStatement | None, Capabilities | None]:
        """Return the statement of a site in its Hello, if it makes one, and the versions of its program."""
        daemon = caller.role is Role.SITE and bool(hello.next_generation)
        if hello.HasField("statement") and not daemon:
            raise PeerError(Code.PROTOCOL, "only a site's daemon may state what the site offers")
        if not daemon:
            return None, None
        statement = statement_from_proto(hello.statement) if hello.HasField("statement") else None
        stated = hello.HasField("capabilities")
        return statement, capabilities_from_proto(hello.capabilities) if stated else None

    async def note(
        self,
        caller: Identity,
        hello: pb.HelloRequest,
        statement: SiteStatement | None,
        versions: Capabilities | None,
    ) -> None:
        """Store the statement and the versions of an accepted Hello. A daemon without a statement withdraws
        the last one."""
        if caller.role is not Role.SITE or not hello.next_generation:
            return
        site = caller.name
        self.note_call(site)
        if versions is not None and versions != self._capabilities.get(site):
            at = self._repository.clock()
            await self._repository.writer.write(
                lambda change: directory.note_capabilities(change, site, versions, at)
            )
            self._capabilities[site] = versions
            log.event("site-versions", site=site, version=versions.software)
        if statement == self._statements.get(site):
            return
        await self._repository.writer.write(lambda change: directory.note_statement(change, site, statement))
        if statement is None:
            self._statements.pop(site, None)
        else:
            self._statements[site] = statement
        log.event("site-stated", site=site)

    def note_call(self, site: str) -> None:
        """Record a call of a site. Analysts see only the hour: the minute would reveal when a site's staff
        start and stop the daemon. The coordinator's operator sees the exact time."""
        self._last_call_hours[site] = self._repository.clock() // HOUR_MS * HOUR_MS
        self._presence.note_call(site)

    def dictionary(self) -> pb.GetDictionaryResponse:
        """Return the published dictionary as it was signed."""
        reader = self._repository.store.reader
        version = directory.latest_version(reader)
        if self._signed_dictionary is None or self._signed_dictionary[0] != version:
            answer = pb.GetDictionaryResponse()
            if (found := directory.latest(reader)) is not None:
                signed = pb.SignedDictionary(
                    signed_json=found.signed.signed_json, signature=found.signed.signature
                )
                answer.dictionary.CopyFrom(signed)
            self._signed_dictionary = (version, answer)
        return self._signed_dictionary[1]

    def current(self) -> Directory:
        """Return the current directory, by which a study is checked."""
        dictionary = self.published()
        return Directory(
            federation=self._config.federation,
            sites={name: self._statements.get(name) for name in sorted(self._registry.sites())},
            columns=None if dictionary is None else tuple(dictionary.usable()),
            approval_seconds=HOUR_SECONDS * self._config.approval_hours,
            capabilities=dict(self._capabilities),
            spreads={} if dictionary is None else dictionary.spreads(),
        )

    def published(self) -> Dictionary | None:
        """Return the dictionary in force, if any; another process may have published it."""
        reader = self._repository.store.reader
        version = directory.latest_version(reader)
        if not version:
            return None
        if self._read is None or self._read[0] != version:
            found = directory.latest(reader)
            assert found is not None
            try:
                dictionary = found.signed.check_federation(
                    self._keys.known_release_keys, self._config.federation
                )
            except PeerError as problem:
                raise RequestError(
                    Code.NOT_READY,
                    "the stored dictionary of the federation was changed, or was made by another version of "
                    f"eigenveil; ask the operator to publish it again: {problem}",
                ) from problem
            self._read = (found.version, dictionary)
        return self._read[1]

    def last_call_hour(self, site: str) -> int:
        """Return the hour of a site's last call in Unix milliseconds; 0 if none since the start."""
        return self._last_call_hours.get(site, 0)

    def listed(self, after: str, caller: Identity) -> pb.ListSitesResponse:
        """Return enrolled sites after the name `after`. Analysts learn only if a site admits themselves."""
        answer = pb.ListSitesResponse(
            approval_seconds=HOUR_SECONDS * self._config.approval_hours,
            start_seconds=60 * self._config.start_minutes,
        )
        size = 0
        for name in sorted(self._registry.sites()):
            if name <= after:
                continue
            row = pb.SiteRow(name=name, last_call_unix_ms=self.last_call_hour(name))
            if (stated := self._statements.get(name)) is not None:
                row.statement.CopyFrom(stated.visible_to(caller.name).to_proto())
            size += row.ByteSize()
            if answer.sites and size > ROOM:
                answer.more = True
                break
            answer.sites.append(row)
        return answer
