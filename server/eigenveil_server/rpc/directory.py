"""The directory of the federation as it is served: which sites there are, what they state, the dictionary
[R22] [R23]."""

from __future__ import annotations

from eigenveil.dictionary.admission import HOUR_SECONDS, Directory
from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.statement import SiteStatement, statement_from_proto
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Identity, Role
from eigenveil_common import log
from eigenveil_common.rpc import MESSAGE_BYTES
from eigenveil_common.storage.database import Database
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.pki.keys import Keys
from eigenveil_server.pki.registry import Registry
from eigenveil_server.rpc.presence import Presence
from eigenveil_server.storage import directory
from eigenveil_server.storage.repository import Repository

HOUR_MS = 1000 * HOUR_SECONDS
ROOM = MESSAGE_BYTES // 2  # for the rows of one answer


class SiteDirectory:
    """Statements are kept in memory as the table has them: this process alone writes it. When a site was
    heard last is not kept beyond the process. What reads the database may be called on any thread."""

    def __init__(self, config: Config, repository: Repository, keys: Keys, registry: Registry) -> None:
        self._config = config
        self._repository = repository
        self._keys = keys
        self._registry = registry
        self._statements = directory.statements(repository.store.reader)
        self._seen: dict[str, int] = {}
        self._presence = Presence(config.files.presence, repository.clock)
        self._told: tuple[int, pb.GetDictionaryResponse] | None = None  # up to a MiB: made once
        self._read: tuple[int, Dictionary] | None = None

    def stated(self, caller: Identity, hello: pb.HelloRequest) -> SiteStatement | None:
        """What a greeting states, about nobody but its caller.

        Raises:
            PeerError: code `protocol`, its caller's to state nothing, or it cannot be read or is too long.
        """
        if not hello.HasField("statement"):
            return None
        if caller.role is not Role.SITE or not hello.next_generation:
            raise PeerError(Code.PROTOCOL, "only a site's daemon states what the site offers")
        return statement_from_proto(hello.statement)

    async def note(self, caller: Identity, hello: pb.HelloRequest, statement: SiteStatement | None) -> None:
        """Take note of a greeting that was accepted: a daemon that states nothing takes back what it said."""
        if caller.role is not Role.SITE or not hello.next_generation:
            return
        site = caller.name
        self.heard(site)
        if statement == self._statements.get(site):
            return
        await self._repository.writer.write(lambda change: directory.note_statement(change, site, statement))
        if statement is None:
            self._statements.pop(site, None)
        else:
            self._statements[site] = statement
        log.event("site-stated", site=site)

    def heard(self, site: str) -> None:
        """A site has just called. To the hour for analysts: more would tell when its people start and stop
        it; whoever runs the coordinator sees the moment."""
        self._seen[site] = self._repository.clock() // HOUR_MS * HOUR_MS
        self._presence.heard(site)

    def dictionary(self) -> pb.GetDictionaryResponse:
        """The published dictionary, as it was signed."""
        reader = self._repository.store.reader
        version = directory.latest_version(reader)
        if self._told is None or self._told[0] != version:
            self._told = (version, _dictionary_answer(reader))
        return self._told[1]

    def current(self) -> Directory:
        """What a study is held against now."""
        return Directory(
            federation=self._config.federation,
            sites={name: self._statements.get(name) for name in sorted(self._registry.sites())},
            columns=self._columns(),
            approval_seconds=HOUR_SECONDS * self._config.approval_hours,
        )

    def _columns(self) -> tuple[str, ...] | None:
        """The columns of the dictionary in force."""
        dictionary = self.published()
        return None if dictionary is None else tuple(dictionary.usable())

    def published(self) -> Dictionary | None:
        """The dictionary in force, if any was published; another process may have done so just now.

        Raises:
            RequestError: code `not-ready`, it cannot be read: no study is taken by rules nobody can see.
        """
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
                    "the federation's dictionary was changed where it is stored, or is of another version of "
                    f"eigenveil; have the operator publish it again: {problem}",
                ) from problem
            self._read = (found.version, dictionary)
        return self._read[1]

    def heard_at(self, site: str) -> int:
        """The hour in which a site called last, in Unix milliseconds; 0: not since the start."""
        return self._seen.get(site, 0)

    def listed(self, after: str, caller: Identity) -> pb.ListSitesResponse:
        """The enrolled sites behind the name `after`, as many as a message holds; whom a site allows to ask
        is told to nobody but themselves."""
        names = [name for name in sorted(self._registry.sites()) if name > after]
        answer = pb.ListSitesResponse(
            approval_seconds=HOUR_SECONDS * self._config.approval_hours,
            start_seconds=60 * self._config.start_minutes,
        )
        size = 0
        for name in names:
            row = self._row(name, caller)
            size += row.ByteSize()
            if answer.sites and size > ROOM:
                answer.more = True
                break
            answer.sites.append(row)
        return answer

    def _row(self, name: str, caller: Identity) -> pb.SiteRow:
        stated = self._statements.get(name)
        row = pb.SiteRow(name=name, seen_unix_ms=self.heard_at(name))
        if stated is not None:
            row.statement.CopyFrom(stated.seen_by(caller.name).to_proto())
        return row


def _dictionary_answer(reader: Database) -> pb.GetDictionaryResponse:
    found = directory.latest(reader)
    if found is None:
        return pb.GetDictionaryResponse()
    signed = pb.SignedDictionary(said=found.signed.said, signature=found.signed.signature)
    return pb.GetDictionaryResponse(dictionary=signed)
