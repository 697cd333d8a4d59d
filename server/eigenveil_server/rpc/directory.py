"""Directory of the federation: its sites, their statements, and the data dictionary [R22] [R23]."""

from __future__ import annotations

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.directory import HOUR_SECONDS, Directory, SiteStatement, statement_from_proto
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Identity, Role
from eigenveil_common import log
from eigenveil_common.rpc import MESSAGE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import Keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.rpc.callers import Presence
from eigenveil_server.storage import directory
from eigenveil_server.storage.repository import Repository

HOUR_MS = 1000 * HOUR_SECONDS
ROOM = MESSAGE_BYTES // 2  # for the rows of one answer


class SiteDirectory:
    """Directory of sites. Statements are cached from the table, which only this process writes.

    The hours of the sites' last calls are lost when the process ends. Methods that read the database may be
    called on any thread.
    """

    def __init__(self, config: Config, repository: Repository, keys: Keys, registry: Registry) -> None:
        self._config = config
        self._repository = repository
        self._keys = keys
        self._registry = registry
        self._statements = directory.statements(repository.store.reader)
        self._last_call_hours: dict[str, int] = {}
        self._presence = Presence(config.files.presence, repository.clock)
        self._signed_dictionary: tuple[int, pb.GetDictionaryResponse] | None = None  # up to 1 MiB: made once
        self._read: tuple[int, Dictionary] | None = None

    def stated(self, caller: Identity, hello: pb.HelloRequest) -> SiteStatement | None:
        """Return the statement of a site in its Hello, if it makes one."""
        if not hello.HasField("statement"):
            return None
        if caller.role is not Role.SITE or not hello.next_generation:
            raise PeerError(Code.PROTOCOL, "only a site's daemon may state what the site offers")
        return statement_from_proto(hello.statement)

    async def note(self, caller: Identity, hello: pb.HelloRequest, statement: SiteStatement | None) -> None:
        """Store the statement of an accepted Hello. A daemon without a statement withdraws the last one."""
        if caller.role is not Role.SITE or not hello.next_generation:
            return
        site = caller.name
        self.note_call(site)
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
        )

    def published(self) -> Dictionary | None:
        """Return the dictionary in force, if any; another process may have published it. Raises RequestError:
        code `not-ready`, it cannot be read, and no study is accepted without it."""
        reader = self._repository.store.reader
        version = directory.latest_version(reader)
        if not version:
            return None
        if self._read is None or self._read[0] != version:
            found = directory.latest(reader)
            assert found is not None
            try:
                dictionary = found.signed.check(self._keys.release_public, self._config.federation)
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
        """Return the enrolled sites after the name `after`, as many as fit a message. An analyst learns only
        for themselves if a site admits them."""
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
