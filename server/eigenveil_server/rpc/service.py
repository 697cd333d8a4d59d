"""Coordinator service: translates messages to calls of the engine, and results to messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, PeerError, RequestError, round_label
from eigenveil.identity import Role
from eigenveil.numerics.encoding import IntArray, from_bytes
from eigenveil.protocol.capabilities import capabilities_from_proto
from eigenveil.protocol.wire import digest_from_bytes, lists_to_proto
from eigenveil.secure_aggregation.study_keys import SignedStudyKey
from eigenveil.study.study import MAX_SITES
from eigenveil.study_authorization import SignedAuthorization, authorization_from_proto
from eigenveil_common import log
from eigenveil_common.process_limits import release_free_memory
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
from eigenveil_server.rpc.callers import Watches
from eigenveil_server.rpc.interceptor import (
    CALLER,
    CERTIFICATE,
    CONNECTION_INFO,
    Context,
    check_still_admitted,
)
from eigenveil_server.rpc.responses import (
    NextWork,
    StudyList,
    clear_consent_texts,
    is_own_study,
    no_release_error,
)
from eigenveil_server.rpc.sites import SiteDirectory, SiteSessions
from eigenveil_server.storage.states import parse_decline
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.contributions import Contributions, check_invited
from eigenveil_server.studies.engine import StudyEngine
from eigenveil_server.studies.runtime import Runtime, parse_poll
from eigenveil_server.studies.uploads import Upload

RELEASE_PART_BYTES = 3 * 2**20
LARGEST_ROW = 2**63 - 1


ReadPart = Callable[[int, int], tuple[pb.SealedRound, int]]


def release_part(read_query: Callable[[], bytes], start: int, read: ReadPart) -> pb.GetRoundResponse:
    """Return what fits a message of a release, from byte `start` of its values. The first part has its query,
    which the others do not read. [R21]"""
    query_part = b"" if start else read_query()
    message, size = read(start, min(RELEASE_PART_BYTES, MESSAGE_BYTES - ENVELOPE_BYTES - len(query_part)))
    if query_part:
        message.query.ParseFromString(query_part)
    return pb.GetRoundResponse(release=message, total_bytes=size)


def attempt_from(digest: bytes) -> str:
    """Return the digest of the attempt that an answer is masked for; empty if it is not masked."""
    return digest_from_bytes(digest) if digest else ""


class Service(CoordinatorServicer):
    """gRPC methods of the coordinator. The interceptor has set CALLER to the authenticated caller."""

    def __init__(
        self,
        config: Config,
        runtime: Runtime,
        engine: StudyEngine,
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
        self.directory = SiteDirectory(config, runtime, registry)
        self._next = NextWork(runtime.metrics, engine, checkpoints, self.directory, config.long_poll_seconds)
        self._contributions = Contributions(runtime)
        self._uploads = engine.uploads
        self._watches = Watches(config.max_watches)
        self._list = StudyList(runtime, engine, config.budget_delta)
        self._read = runtime.repository.store.read

    async def Hello(self, request: pb.HelloRequest, context: Context) -> pb.HelloResponse:
        """Return version, clock and limits [R3] and the trusted authorities [R19]. For a site also start its
        session [R18] and store its statement [R23]."""
        version = min(request.version_max, VERSION_MAX)
        if version < max(request.version_min, VERSION_MIN):
            raise PeerError(
                Code.VERSION,
                f"this coordinator supports protocol versions {VERSION_MIN} to {VERSION_MAX}, the caller "
                f"{request.version_min} to {request.version_max}; update the older of the two",
            )
        caller = CALLER.get()
        statement, versions = self.directory.stated(caller, request)
        await self._checkpoints.check_presented(caller, request)
        await self._sessions.greet(caller, CONNECTION_INFO.get().peer, request, self._engine.end_poll)
        await self._checkpoints.note_presented(caller, request, self._repository.writer)
        await self.directory.note(caller, request, statement, versions)
        return pb.HelloResponse(
            version=version,
            federation=self._config.federation,
            unix_time_ms=self._repository.clock(),
            limits=pb.Limits(
                message_bytes=MESSAGE_BYTES,
                inline_bytes=INLINE_BYTES,
                chunk_bytes=CHUNK_BYTES,
                long_poll_ms=int(1000 * self._config.long_poll_seconds),
            ),
            authorities=lists_to_proto(self._runtime.keys.authorities.since(request.authorities_version)),
        )

    async def Renew(self, request: pb.RenewRequest, context: Context) -> pb.RenewResponse:
        """Issue the caller's next certificate [R17]."""
        caller, keys = CALLER.get(), self._runtime.keys
        arguments = (CERTIFICATE.get(), request.csr_der, keys.authority, self._config.days(caller.role))
        issued = await asyncio.to_thread(self._registry.renew, caller, *arguments)
        log.event("renewed", peer=caller.uri, print=issued.key)
        lists = lists_to_proto(keys.authorities.since(request.authorities_version))
        return pb.RenewResponse(certificate_pem=issued.pem, authorities=lists)

    # ------------------------------------------------------------ sites

    async def NextWork(self, request: pb.NextWorkRequest, context: Context) -> pb.NextWorkResponse:
        """Return the next open round for this site, or a plan that needs its consent [R5]."""
        return await self._next.wait(parse_poll(request), request.checkpoint_digest)

    async def Contribute(self, request: pb.ContributeRequest, context: Context) -> pb.ContributeResponse:
        """Store an answer of up to 1 MiB [R7]. The poll in `next` counts once the answer is durable [R27]."""
        if len(request.values) > INLINE_BYTES:
            raise PeerError(Code.PROTOCOL, f"answers over {INLINE_BYTES} bytes must be uploaded in chunks")
        poll = parse_poll(request.next) if request.HasField("next") else None
        if poll is not None and len(request.values) > WITH_NEXT_BYTES:
            raise PeerError(Code.PROTOCOL, f"answers over {WITH_NEXT_BYTES} bytes must not carry `next`")
        values = from_bytes(request.values, (len(request.values) // 8,))
        taken = await self._contribute(request, digest_from_bytes(request.plan_digest), values, lambda: None)
        if poll is not None:
            taken.next.CopyFrom(await self._next.wait(poll, request.next.checkpoint_digest))
        return taken

    async def _contribute(
        self, sent: pb.ContributeRequest | Upload, study: str, values: IntArray, added: Callable[[], None]
    ) -> pb.ContributeResponse:
        contribution = Contribution(
            plan_digest=study,
            round=sent.round,
            query=digest_from_bytes(sent.query_digest),
            site=CALLER.get().name,
            values=values,
            attempt=attempt_from(sent.attempt_digest),
        )
        run = self._engine.running(study)
        if run is None:
            stored = await self._read(self._repository.studies.get, study)
            taking = self._contributions.contribute_afterwards(stored, contribution)
        else:
            digest = digest_from_bytes(sent.contribution_digest)
            taking = self._contributions.contribute(run, contribution, digest, added)
        del values, contribution  # the receiver drops it as soon as it is added
        return pb.ContributeResponse(repeated=await taking)

    async def Ready(self, request: pb.ReadyRequest, context: Context) -> pb.ReadyResponse:
        """Record that a site has computed its answer and waits for the set of sites to mask it for [R29]."""
        query, sent = digest_from_bytes(request.query_digest), request.study_key
        key = SignedStudyKey(signed_json=sent.signed_json, signature=sent.signature)
        poll = parse_poll(request.next) if request.HasField("next") else None
        run = await self._engine.run(digest_from_bytes(request.plan_digest))
        await self._contributions.note_ready(run, CALLER.get().name, request.round, query, key)
        taken = pb.ReadyResponse()
        if poll is not None:
            taken.next.CopyFrom(await self._next.wait(poll, request.next.checkpoint_digest))
        return taken

    async def GetStudyKeys(
        self, request: pb.GetStudyKeysRequest, context: Context
    ) -> pb.GetStudyKeysResponse:
        """Return the keys of an attempt's sites, for its masks [R36]."""
        digest = digest_from_bytes(request.plan_digest)
        await self._readable(digest)
        wanted = [digest_from_bytes(one) for one in request.digests[:MAX_SITES]]
        if not wanted:
            raise PeerError(Code.PROTOCOL, "name the keys")
        found = await self._read(self._repository.studies.study_keys, digest, wanted)
        return pb.GetStudyKeysResponse(
            keys=[pb.SignedStudyKey(signed_json=one.signed_json, signature=one.signature) for one in found]
        )

    async def OpenUpload(self, request: pb.OpenUploadRequest, context: Context) -> pb.OpenUploadResponse:
        """Announce a larger answer, and wait for its turn. Return the chunks that are already stored [R8]."""
        study, site = digest_from_bytes(request.plan_digest), CALLER.get().name
        digest_from_bytes(request.query_digest)
        digest_from_bytes(request.contribution_digest)
        expected_round = partial(
            self._contributions.expected_round,
            site=site,
            round=request.round,
            attempt=attempt_from(request.attempt_digest),
        )
        opened = expected_round(await self._engine.run(study))
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
        await self._uploads.wait_for_slot(wanted, due_bytes=8 * opened.round_query.query.length)
        expected_round(await self._engine.run(study))  # it may be over by now
        upload = self._uploads.open(wanted)
        await upload.reserve(self._runtime.compute.run)
        return pb.OpenUploadResponse(upload=upload.id, received_chunks=upload.received_chunks())

    async def PutChunk(self, request: pb.PutChunkRequest, context: Context) -> pb.PutChunkResponse:
        self._uploads.get(request.upload, CALLER.get().name).put(request.index, request.data)
        return pb.PutChunkResponse()

    async def Commit(self, request: pb.CommitRequest, context: Context) -> pb.ContributeResponse:
        """Take an answer whose chunks are all stored."""
        upload = self._uploads.get(request.upload, CALLER.get().name)
        return await self._repository.finish(self._commit(upload))

    async def _commit(self, upload: Upload) -> pb.ContributeResponse:
        """Check and add an upload once, even if the call is repeated or cancelled."""
        async with upload.deciding:
            if upload.committed:
                return pb.ContributeResponse(repeated=True)
            upload = self._uploads.get(upload.id, upload.site)  # it may have been refused meanwhile
            upload.check_complete()
            try:
                await self._runtime.compute.run(release_free_memory)  # upload buffers: the check needs memory
                added = partial(self._uploads.add, upload)
                taken = await self._contribute(upload, upload.study, upload.take(), added)
            except BaseException:
                self._uploads.drop(upload)
                raise
            self._uploads.commit(upload)
            return taken

    async def Decline(self, request: pb.DeclineRequest, context: Context) -> pb.DeclineResponse:
        """Record that this site declines a round or a study [R9]."""
        decline, run = parse_decline(request), await self._engine.run(digest_from_bytes(request.plan_digest))
        await self._contributions.decline(run, CALLER.get().name, request.round, *decline)
        return pb.DeclineResponse()

    # ------------------------------------------------------------ analysts

    async def GetDictionary(
        self, request: pb.GetDictionaryRequest, context: Context
    ) -> pb.GetDictionaryResponse:
        """Return the published dictionary, if any [R22]."""
        return await self._read(self.directory.dictionary)

    async def ListSites(self, request: pb.ListSitesRequest, context: Context) -> pb.ListSitesResponse:
        """Return the sites of the federation and their statements [R23]."""
        return await self._read(self.directory.listed, request.after, CALLER.get())

    async def SubmitStudy(self, request: pb.SubmitStudyRequest, context: Context) -> pb.SubmitStudyResponse:
        """Start a study that its analyst signed, once for each submission [R10] [R31]."""
        signed = (
            authorization_from_proto(request.authorization) if request.HasField("authorization") else None
        )
        made = await self._engine.submit(
            await self._submission(request.submission, request.study_toml, request.capabilities, signed)
        )
        digest, plan = bytes.fromhex(made.stored.digest), made.stored.signed_plan
        return pb.SubmitStudyResponse(plan_digest=digest, plan=plan, warnings=made.warnings)

    async def ExplainStudy(
        self, request: pb.ExplainStudyRequest, context: Context
    ) -> pb.ExplainStudyResponse:
        """Return the plan to sign, its queries and cost, or refuse as SubmitStudy would, without a charge."""
        submission = await self._submission(
            request.submission or DRAFT, request.study_toml, request.capabilities
        )
        plan, explanation = await self._engine.submissions.explained(submission)
        return pb.ExplainStudyResponse(explanation_json=explanation, plan_json=plan.to_json())

    async def _submission(
        self, id: str, study_toml: str, versions: pb.Capabilities, signed: SignedAuthorization | None = None
    ) -> Submission:
        return Submission(
            analyst=CALLER.get().name,
            id=id,
            study_toml=study_toml,
            directory=await self._read(self.directory.current),
            authorization=signed,
            versions=capabilities_from_proto(versions) if versions.ByteSize() else None,
        )

    async def ListStudies(self, request: pb.ListStudiesRequest, context: Context) -> pb.ListStudiesResponse:
        """Return the studies of the federation, oldest first, and the remaining budget [R26]."""
        after = digest_from_bytes(request.after) if request.after else ""
        return await self._list.part(CALLER.get(), after)

    async def WatchStudy(
        self, request: pb.WatchStudyRequest, context: Context
    ) -> AsyncIterator[pb.StudyEvent]:
        """Stream all events after a sequence number, until the study ends [R11]."""
        digest = digest_from_bytes(request.plan_digest)
        is_own = is_own_study(CALLER.get(), (await self._read(self._repository.studies.get, digest)).analyst)
        with self._watches.one(CALLER.get().uri):
            async for event in self._events(digest, min(request.after_sequence, LARGEST_ROW)):
                if not is_own:
                    clear_consent_texts(event)
                yield event

    async def _events(self, digest: str, after: int) -> AsyncIterator[pb.StudyEvent]:
        while True:
            # Before the events: the last event of a study is stored together with its last state.
            ended = await self._has_ended(digest)
            events = await self._read(self._repository.studies.events, digest, after)
            for event in events:
                await check_still_admitted()
                yield event
                after = event.sequence
            if events:
                continue
            if ended or self._engine.closing:
                return
            await self._runtime.news.wait(self._config.long_poll_seconds)

    async def _has_ended(self, digest: str) -> bool:
        """Return True if a study has no more events. One that runs here has not: it is read in no table."""
        if self._engine.running(digest) is not None:
            return False
        state = await self._read(self._repository.studies.state, digest)
        return state is None or state.ended

    async def CancelStudy(self, request: pb.CancelStudyRequest, context: Context) -> pb.CancelStudyResponse:
        """Stop a study. What it has spent stays spent."""
        await self._engine.cancel(digest_from_bytes(request.plan_digest), CALLER.get().name)
        return pb.CancelStudyResponse()

    async def GetRelease(self, request: pb.GetReleaseRequest, context: Context) -> pb.GetReleaseResponse:
        """Return the signed release, or a part of it [R12]."""
        digest = digest_from_bytes(request.plan_digest)
        stored = await self._readable(digest)
        read = self._repository.studies.release_part
        found = await self._runtime.compute.run(read, digest, request.offset, RELEASE_PART_BYTES)
        if found is None:
            raise no_release_error(stored)
        part, size = found
        return pb.GetReleaseResponse(release=part, total_bytes=size)

    async def GetRound(self, request: pb.GetRoundRequest, context: Context) -> pb.GetRoundResponse:
        """Return the signed release of one round, or a part of its values [R21]."""
        digest = digest_from_bytes(request.plan_digest)
        await self._readable(digest)
        return await self._runtime.compute.run(self._part, digest, request.round, request.offset)

    def _part(self, digest: str, round: int, start: int) -> pb.GetRoundResponse:
        """Return a part of a round's release, off the event loop."""
        studies = self._repository.studies
        if not studies.is_sealed(digest, round):
            raise RequestError(Code.NOT_FOUND, f"study {digest[:12]} has released no {round_label(round)}")
        read_query = partial(studies.query_bytes, digest, round)
        return release_part(read_query, start, partial(studies.sealed_part, digest, round))

    async def _readable(self, digest: str) -> StoredStudy:
        """Return a study whose release the caller may read: any analyst, or an invited site."""
        stored = await self._read(self._repository.studies.get, digest)
        if CALLER.get().role is Role.SITE:
            check_invited(await self._runtime.plan(stored), CALLER.get().name)
        return stored
