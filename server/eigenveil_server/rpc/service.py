"""The Coordinator service: messages in, values through the engine, messages out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, PeerError, RequestError, spoken
from eigenveil.identity import Role
from eigenveil.numerics.encoding import IntArray, from_bytes
from eigenveil.protocol.wire import digest_from_bytes, lists_to_proto
from eigenveil_common import log
from eigenveil_common.process import give_back
from eigenveil_common.rpc import (
    CHUNK_BYTES,
    INLINE_BYTES,
    MESSAGE_BYTES,
    VERSION_MAX,
    VERSION_MIN,
    WITH_NEXT_BYTES,
)
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorServicer
from eigenveil_server.config import Config
from eigenveil_server.pki.registry import Registry
from eigenveil_server.planning.planner import DRAFT, ENVELOPE_BYTES
from eigenveil_server.planning.submissions import Submission
from eigenveil_server.recovery.checkpoints import Checkpoints
from eigenveil_server.rpc.answers import asked_by, no_release, without_texts
from eigenveil_server.rpc.calls import Watches
from eigenveil_server.rpc.directory import SiteDirectory
from eigenveil_server.rpc.interceptor import ARRIVAL, CALLER, CERTIFICATE, Context, still_admitted
from eigenveil_server.rpc.next_work import NextWork
from eigenveil_server.rpc.site_sessions import SiteSessions
from eigenveil_server.rpc.study_list import StudyList
from eigenveil_server.storage.sealed import Sealed
from eigenveil_server.storage.states import decline_of
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.contributions import Contributions, invited
from eigenveil_server.studies.engine import Engine
from eigenveil_server.studies.poll import poll_of
from eigenveil_server.studies.runtime import Runtime
from eigenveil_server.studies.uploads import Upload

RELEASE_PART_BYTES = 3 * 2**20
LARGEST_ROW = 2**63 - 1


def part_of(sealed: Sealed, question: bytes, start: int) -> pb.GetRoundResponse:
    """As much of a release as a message holds, from byte `start` of its values on; first, its query. [R21]"""
    asked = b"" if start else question
    room = min(RELEASE_PART_BYTES, MESSAGE_BYTES - ENVELOPE_BYTES - len(asked))
    message = sealed.message(slice(start, start + room))
    if asked:
        message.query.ParseFromString(asked)
    return pb.GetRoundResponse(release=message, total_bytes=sealed.release.values.nbytes)


def attempt_from(digest: bytes) -> str:
    """Of the attempt that an answer is masked for; empty for an exact one."""
    return digest_from_bytes(digest) if digest else ""


class Service(CoordinatorServicer):
    """Every method runs behind the interceptor, so CALLER is the certified caller."""

    def __init__(
        self,
        config: Config,
        runtime: Runtime,
        engine: Engine,
        registry: Registry,
        sessions: SiteSessions,
        checkpoints: Checkpoints,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._repository = runtime.repository
        self._engine = engine
        self._registry = registry
        self._sessions = sessions
        self._checkpoints = checkpoints
        self.directory = SiteDirectory(config, runtime.repository, runtime.keys, registry)
        self._next = NextWork(runtime, engine, checkpoints, self.directory, config.long_poll_seconds)
        self._contributions = Contributions(runtime)
        self._uploads = engine.uploads
        self._watches = Watches(config.max_watches)
        self._list = StudyList(runtime, engine, config.budget_delta)
        self._read = runtime.repository.store.read

    async def Hello(self, request: pb.HelloRequest, context: Context) -> pb.HelloResponse:
        """Version, clock and limits [R3]; whom to trust [R19]; for a site, the start of its session [R18] and
        what it states of itself [R23]."""
        version = min(request.version_max, VERSION_MAX)
        if version < max(request.version_min, VERSION_MIN):
            raise PeerError(
                Code.VERSION,
                f"this coordinator speaks versions {VERSION_MIN} to {VERSION_MAX}, the caller "
                f"{request.version_min} to {request.version_max}; update the older of the two",
            )
        caller = CALLER.get()
        statement = self.directory.stated(caller, request)
        await self._checkpoints.check_shown(caller, request)
        await self._sessions.greet(caller, ARRIVAL.get().peer, request, self._engine.hurry)
        await self._checkpoints.presented(caller, request, self._repository.writer)
        await self.directory.note(caller, request, statement)
        authorities = self._runtime.keys.authorities
        limits = pb.Limits(
            message_bytes=MESSAGE_BYTES,
            inline_bytes=INLINE_BYTES,
            chunk_bytes=CHUNK_BYTES,
            long_poll_ms=int(1000 * self._config.long_poll_seconds),
        )
        return pb.HelloResponse(
            version=version,
            federation=self._config.federation,
            unix_time_ms=self._repository.clock(),
            limits=limits,
            authorities=lists_to_proto(authorities.since(request.authorities_version)),
        )

    async def Renew(self, request: pb.RenewRequest, context: Context) -> pb.RenewResponse:
        """The caller's next certificate [R17]."""
        caller, keys = CALLER.get(), self._runtime.keys
        days = self._config.days(caller.role)
        work = partial(self._registry.renew, caller, CERTIFICATE.get(), request.csr_der, keys.authority, days)
        issued = await asyncio.to_thread(work)
        log.event("renewed", peer=caller.uri, print=issued.key)
        lists = lists_to_proto(keys.authorities.since(request.authorities_version))
        return pb.RenewResponse(certificate_pem=issued.pem, authorities=lists)

    # ------------------------------------------------------------ sites

    async def NextWork(self, request: pb.NextWorkRequest, context: Context) -> pb.NextWorkResponse:
        """The next open round for this site, or a plan that wants its word, once there is one [R5]."""
        return await self._next.wait(poll_of(request), request.checkpoint_digest)

    async def Contribute(self, request: pb.ContributeRequest, context: Context) -> pb.ContributeResponse:
        """An answer of up to 1 MiB [R7]; what is said in `next` counts once that is durable [R27]."""
        if len(request.values) > INLINE_BYTES:
            raise PeerError(Code.PROTOCOL, f"answers over {INLINE_BYTES} bytes are uploaded in chunks")
        poll = poll_of(request.next) if request.HasField("next") else None
        if poll is not None and len(request.values) > WITH_NEXT_BYTES:
            raise PeerError(Code.PROTOCOL, f"answers over {WITH_NEXT_BYTES} bytes go without a next question")
        taken = await self._contribute(
            digest_from_bytes(request.plan_digest),
            request.round,
            request.query_digest,
            from_bytes(request.values, (len(request.values) // 8,)),
            request.contribution_digest,
            request.attempt_digest,
            lambda: None,
        )
        if poll is not None:
            taken.next.CopyFrom(await self._next.wait(poll, request.next.checkpoint_digest))
        return taken

    async def _contribute(
        self,
        study: str,
        round: int,
        query: bytes,
        values: IntArray,
        digest: bytes,
        attempt: bytes,
        added: Callable[[], None],
    ) -> pb.ContributeResponse:
        contribution = Contribution(
            plan_digest=study,
            round=round,
            query=digest_from_bytes(query),
            site=CALLER.get().name,
            values=values,
            attempt=attempt_from(attempt),
        )
        run = self._engine.running(study)
        if run is None:
            stored = await self._read(self._repository.studies.get, study)
            taking = self._contributions.contribute_afterwards(stored, contribution)
        else:
            taking = self._contributions.contribute(run, contribution, digest_from_bytes(digest), added)
        del values, contribution  # whoever takes it drops it as soon as it is added
        return pb.ContributeResponse(repeated=await taking)

    async def Ready(self, request: pb.ReadyRequest, context: Context) -> pb.ReadyResponse:
        """An answer is computed and waits for the set of sites that it is masked for [R29]."""
        query, card = digest_from_bytes(request.query_digest), digest_from_bytes(request.card_digest)
        poll = poll_of(request.next) if request.HasField("next") else None
        run = await self._engine.run(digest_from_bytes(request.plan_digest))
        self._contributions.get_ready(run, CALLER.get().name, request.round, query, card)
        taken = pb.ReadyResponse()
        if poll is not None:
            taken.next.CopyFrom(await self._next.wait(poll, request.next.checkpoint_digest))
        return taken

    async def OpenUpload(self, request: pb.OpenUploadRequest, context: Context) -> pb.OpenUploadResponse:
        """Announce a larger answer, and wait for its turn; says which chunks are here already [R8]."""
        study, site = digest_from_bytes(request.plan_digest), CALLER.get().name
        digest_from_bytes(request.query_digest)
        digest_from_bytes(request.contribution_digest)
        due = partial(self._contributions.due, site=site, round=request.round)
        attempt = attempt_from(request.attempt_digest)
        opened = due(await self._engine.run(study), attempt=attempt)
        wanted = Upload(
            study=study,
            round=request.round,
            attempt=opened.number,
            attempt_digest=request.attempt_digest,
            site=site,
            query_digest=request.query_digest,
            contribution_digest=request.contribution_digest,
            total_bytes=request.total_bytes,
        )
        await self._uploads.turn(wanted, due_bytes=8 * opened.asked.query.length)
        due(await self._engine.run(study), attempt=attempt)  # it may be over by now
        upload = self._uploads.open(wanted)
        return pb.OpenUploadResponse(upload=upload.id, have=upload.have())

    async def PutChunk(self, request: pb.PutChunkRequest, context: Context) -> pb.PutChunkResponse:
        self._uploads.get(request.upload, CALLER.get().name).put(request.index, request.data)
        return pb.PutChunkResponse()

    async def Commit(self, request: pb.CommitRequest, context: Context) -> pb.ContributeResponse:
        """Every chunk is there: take the answer."""
        upload = self._uploads.get(request.upload, CALLER.get().name)
        return await self._repository.finish(self._commit(upload))

    async def _commit(self, upload: Upload) -> pb.ContributeResponse:
        """Check and add it once, whoever asks how often, and to the end: a call may be cancelled."""
        async with upload.deciding:
            if upload.committed:
                return pb.ContributeResponse(repeated=True)
            upload = self._uploads.get(upload.id, upload.site)  # not so if it was refused meanwhile
            upload.check_complete()
            try:
                await self._runtime.compute.run(give_back)  # what it came in: the check needs memory
                taken = await self._contribute(
                    upload.study,
                    upload.round,
                    upload.query_digest,
                    upload.take(),
                    upload.contribution_digest,
                    upload.attempt_digest,
                    partial(self._uploads.add, upload),
                )
            except BaseException:
                self._uploads.drop(upload)
                raise
            self._uploads.commit(upload)
            return taken

    async def Decline(self, request: pb.DeclineRequest, context: Context) -> pb.DeclineResponse:
        """This site will not answer this round, or this study [R9]."""
        said, run = decline_of(request), await self._engine.run(digest_from_bytes(request.plan_digest))
        await self._contributions.decline(run, CALLER.get().name, request.round, said)
        return pb.DeclineResponse()

    # ------------------------------------------------------------ analysts

    async def GetDictionary(
        self, request: pb.GetDictionaryRequest, context: Context
    ) -> pb.GetDictionaryResponse:
        """The dictionary that the operator published, if any [R22]."""
        return await self._read(self.directory.dictionary)

    async def ListSites(self, request: pb.ListSitesRequest, context: Context) -> pb.ListSitesResponse:
        """The sites of the federation and what they state of themselves [R23]."""
        return await self._read(self.directory.listed, request.after)

    async def SubmitStudy(self, request: pb.SubmitStudyRequest, context: Context) -> pb.SubmitStudyResponse:
        """Start a study, once for each submission [R10]."""
        wish = await self._submission(request.submission, request.study_toml)
        made = await self._engine.submit(wish)
        return pb.SubmitStudyResponse(
            plan_digest=bytes.fromhex(made.stored.digest),
            plan=made.stored.signed_plan,
            warnings=made.warnings,
        )

    async def ExplainStudy(
        self, request: pb.ExplainStudyRequest, context: Context
    ) -> pb.ExplainStudyResponse:
        """The plan to sign, and what it would ask, reveal and cost; charges nothing, and refuses what
        SubmitStudy would."""
        wish = await self._submission(request.submission or DRAFT, request.study_toml)
        plan, told = await self._engine.submissions.explained(wish)
        return pb.ExplainStudyResponse(explanation_json=told, plan_json=plan.to_json())

    async def _submission(self, id: str, study_toml: str) -> Submission:
        directory = await self._read(self.directory.current)
        return Submission(analyst=CALLER.get().name, id=id, study_toml=study_toml, directory=directory)

    async def ListStudies(self, request: pb.ListStudiesRequest, context: Context) -> pb.ListStudiesResponse:
        """The studies of the federation, oldest first, and what is left for more [R26]."""
        after = digest_from_bytes(request.after) if request.after else ""
        return await self._list.part(CALLER.get(), after)

    async def WatchStudy(
        self, request: pb.WatchStudyRequest, context: Context
    ) -> AsyncIterator[pb.StudyEvent]:
        """Every event beyond a sequence number, until the study ends [R11]."""
        digest = digest_from_bytes(request.plan_digest)
        stored = await self._read(self._repository.studies.get, digest)
        own = asked_by(CALLER.get(), stored.analyst)
        with self._watches.one(CALLER.get().uri):
            async for event in self._events(digest, min(request.after_sequence, LARGEST_ROW)):
                if not own:
                    without_texts(event)
                yield event

    async def _events(self, digest: str, after: int) -> AsyncIterator[pb.StudyEvent]:
        while True:
            # The state first: the event that ends a study is stored together with its last state.
            state = await self._read(self._repository.studies.state, digest)
            events = await self._read(self._repository.studies.events, digest, after)
            for event in events:
                await still_admitted()
                yield event
                after = event.sequence
            if events:
                continue
            if state is None or state.ended or self._engine.closing:
                return
            await self._runtime.signals.news.wait(self._config.long_poll_seconds)

    async def CancelStudy(self, request: pb.CancelStudyRequest, context: Context) -> pb.CancelStudyResponse:
        """Stop a study; what it spent stays spent."""
        await self._engine.cancel(digest_from_bytes(request.plan_digest), CALLER.get().name)
        return pb.CancelStudyResponse()

    async def GetRelease(self, request: pb.GetReleaseRequest, context: Context) -> pb.GetReleaseResponse:
        """The signed release, or a part of it [R12]."""
        digest = digest_from_bytes(request.plan_digest)
        stored = await self._readable(digest)
        data = await self._runtime.compute.run(self._repository.studies.release_json, digest)
        if data is None:
            raise no_release(stored)
        part = data[request.offset : request.offset + RELEASE_PART_BYTES]
        return pb.GetReleaseResponse(release_json=part, total_bytes=len(data))

    async def GetRound(self, request: pb.GetRoundRequest, context: Context) -> pb.GetRoundResponse:
        """The signed release of one round, or a part of its numbers [R21]."""
        digest = digest_from_bytes(request.plan_digest)
        await self._readable(digest)
        return await self._runtime.compute.run(self._part, digest, request.round, request.offset)

    def _part(self, digest: str, round: int, start: int) -> pb.GetRoundResponse:
        """Off the event loop, and no longer copy of a long release than the reply."""
        studies = self._repository.studies
        sealed = studies.sealed(digest, round)
        if sealed is None:
            raise RequestError(Code.NOT_FOUND, f"study {digest[:12]} has released no {spoken(round)}")
        return part_of(sealed, studies.question(digest, round), start)

    async def _readable(self, digest: str) -> StoredStudy:
        """The study, if its caller may read what it released: analysts, and the sites that it invited."""
        stored = await self._read(self._repository.studies.get, digest)
        if CALLER.get().role is Role.SITE:
            invited(await self._runtime.plan(stored), CALLER.get().name)
        return stored
