"""What an analyst asks a coordinator: every call once, with what it must check of the answer."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Self, TypeVar

import grpc

from eigenveil import __version__
from eigenveil.analyst_signature.follows import check_follows
from eigenveil.errors import Code, EigenveilError, PeerError, RequestError, error
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.protocol.signatures import check_plan
from eigenveil.reporting.round_log import RoundLog
from eigenveil.reporting.verify import load_release, verify_release
from eigenveil.study.study import Study
from eigenveil.study.toml import parse_study, study_digest
from eigenveil_client.analyst.federation import FederationView, ListedSite, listed
from eigenveil_client.analyst.signing.proposal import USUAL_DAYS, Proposal, expiry
from eigenveil_client.analyst.signing.signed_submissions import signed_submissions, store_submission
from eigenveil_client.analyst.signing.signing_key import SigningKey
from eigenveil_client.connection.channel import CALL_SECONDS, call, fetch_round, pause
from eigenveil_client.connection.held_dictionary import take_dictionary
from eigenveil_client.connection.identity import StoredIdentity, open_channel
from eigenveil_client.connection.renewal import due, introduce, renew
from eigenveil_common.rpc import error_from
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

SHORTEST_PREFIX = 6
ATTEMPTS = 8  # about as long as a coordinator takes to restart, and longer
PLANNING_SECONDS = 120.0  # a coordinator rehearses every question of a study before it takes it
MOST_SITES = 100_000  # that a coordinator may list
PATIENCE_SECONDS = 600.0  # how long a watch outlives an unreachable coordinator

Request = TypeVar("Request")
Response = TypeVar("Response")


class Analyst:
    """An analyst's connection to the coordinator: `async with Analyst(identity) as analyst`.

    It connects at the first call.

    Every method raises:
        EigenveilError: the coordinator's own error, or code `unreachable`.
    """

    def __init__(self, identity: StoredIdentity) -> None:
        self._identity = identity
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._disconnect()

    async def _connect(self) -> None:
        self._identity = self._identity.reread()
        self._channel = await open_channel(self._identity)
        await introduce(self._stub, f"eigenveil {__version__}", self._identity)
        if due(self._identity):
            await renew(self._stub, self._identity)

    def _worth_another_try(self, problem: EigenveilError) -> bool:
        """No connection; or another command has renewed the certificate that this connection shows."""
        if problem.code is Code.IDENTITY:
            return self._identity.reread().expires != self._identity.expires
        return problem.code is Code.UNREACHABLE

    async def _call(
        self,
        method: Callable[[rpc.CoordinatorAsyncStub], grpc.aio.UnaryUnaryMultiCallable[Request, Response]],
        request: Request,
        seconds: float = CALL_SECONDS,
    ) -> Response:
        """Make an idempotent call, each attempt after a failure over a new connection.

        A coordinator that was restarted may hold a new certificate, and a channel trusts one only.
        """
        for attempt in range(ATTEMPTS):
            try:
                if self._channel is None:
                    await self._connect()
                return await call(method(self._stub), request, attempts=1, seconds=seconds)
            except EigenveilError as problem:
                if not self._worth_another_try(problem) or attempt + 1 == ATTEMPTS:
                    raise
                await self._disconnect()
            await asyncio.sleep(pause(attempt))
        raise PeerError(Code.UNREACHABLE, "no attempt was allowed")

    async def _disconnect(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    @property
    def _stub(self) -> rpc.CoordinatorAsyncStub:
        if self._channel is None:
            raise PeerError(Code.UNREACHABLE, "not connected to the coordinator")
        return rpc.CoordinatorStub(self._channel)

    async def submit(
        self,
        text: str,
        submission: str,
        *,
        days: int = USUAL_DAYS,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> tuple[Plan, list[str]]:
        """Have the study planned, sign the plan if it follows from what was written, and submit it; the same
        submission twice is one study. The plan, and warnings.

        `tell` hears what is about to be signed, for so many `days`.

        Raises:
            RequestError: the study is refused here or there; code `authorization`, its plan changed since;
                or as `SigningKey.read`.
            PeerError: the coordinator planned something else than what was asked; nothing was signed.
        """
        proposal = await self.propose(text, submission, days=days)
        tell(proposal.summary)
        return await self.sign(proposal)

    async def submission_id(self, study: Study) -> str:
        """The id to submit a study under: of a signature of this very study that has not ended, if the
        coordinator lists no such submission, as that may still run; else a new one."""
        digest = study_digest(study)
        signed = signed_submissions(self._identity.folder, time.time())
        open_ids = [one.submission for one in signed if one.study == digest]
        listed = {row.submission for row in await self.studies()} if open_ids else set()
        return next((one for one in open_ids if one not in listed), uuid.uuid4().hex)

    async def propose(
        self, text: str, submission: str, *, days: int = USUAL_DAYS, dictionary: str = ""
    ) -> Proposal:
        """What the coordinator would run as this study, found to be the study, to be signed for `days`.
        `dictionary`: as in `Proposal`. Raises as `submit`."""
        study, mine = parse_study(text), self._identity.identity
        request = pb.ExplainStudyRequest(study_toml=text, submission=submission)
        answer = await self._call(lambda stub: stub.ExplainStudy, request, PLANNING_SECONDS)
        plan = plan_from_json(answer.plan_json)
        check_follows(plan, study, federation=mine.federation, analyst=mine.name, submission=submission)
        key, expires = SigningKey.read(self._identity.folder), expiry(time.time(), days)
        return Proposal(toml=text, plan=plan, key=key, expires=expires, dictionary=dictionary)

    async def sign(self, proposal: Proposal) -> tuple[Plan, list[str]]:
        """Sign a proposal, store its submission beside the key, and submit it: the plan, and warnings. Raises
        as `submit`."""
        request = pb.SubmitStudyRequest(
            study_toml=proposal.toml,
            submission=proposal.plan.submission,
            authorization=proposal.sign().to_proto(),
        )
        store_submission(self._identity.folder, proposal.signed_submission, time.time())
        try:
            answer = await self._call(lambda stub: stub.SubmitStudy, request, PLANNING_SECONDS)
            plan = self._signed_plan(answer, proposal)
        except EigenveilError as problem:  # whatever is answered, the signature is out
            raise error(problem.code, f"{problem}. {proposal.resubmission_message}") from problem
        return plan, list(answer.warnings)

    def _signed_plan(self, answer: pb.SubmitStudyResponse, proposal: Proposal) -> Plan:
        """The plan that the coordinator runs, which must be the one that was signed."""
        plan = check_plan(answer.plan.plan_json, answer.plan.signature, self._identity.release_key)
        if not plan.digest == answer.plan_digest.hex() == proposal.plan.digest:
            raise PeerError(
                Code.PROTOCOL,
                "the coordinator runs another plan than the one that you signed, which no site answers that "
                "knows your key; cancel the study, and tell the federation's operator",
            )
        return plan

    async def explain(self, text: str) -> str:
        """What a study would ask and cost here: JSON, see `eigenveil.reporting.explain`."""
        parse_study(text)
        request = pb.ExplainStudyRequest(study_toml=text)
        answer = await self._call(lambda stub: stub.ExplainStudy, request, PLANNING_SECONDS)
        return answer.explanation_json

    async def studies(self) -> list[pb.StudyRow]:
        """All studies of the federation, oldest first."""
        return list((await self.listed()).studies)

    async def listed(self) -> pb.ListStudiesResponse:
        """All studies of the federation, oldest first, and what is left of its budget."""
        found, more = pb.ListStudiesResponse(), True
        while more:
            after = found.studies[-1].plan_digest if found.studies else b""
            asked = pb.ListStudiesRequest(after=after)
            part = await self._call(lambda stub: stub.ListStudies, asked)
            more = part.more
            if more and (not part.studies or part.studies[-1].plan_digest == after):
                raise PeerError(Code.PROTOCOL, "the coordinator lists studies without end")
            found.studies.extend(part.studies)
            found.budget.CopyFrom(part.budget)
        return found

    async def find(self, wanted: str) -> pb.StudyRow:
        """The study whose digest starts with `wanted` (6 characters or more), or whose name it is, also with
        the number by which lists tell it from others of that name.

        Raises:
            RequestError: code `not-found`, no such study, or several.
        """
        rows = await self.studies()
        prefix = wanted.lower() if len(wanted) >= SHORTEST_PREFIX else None
        found = [row for row in rows if prefix and row.plan_digest.hex().startswith(prefix)]
        found = found or [row for row in rows if row.name == wanted]
        named = zip(shown_names(rows), rows, strict=True)
        found = found or [row for name, row in named if name == wanted]
        if len(found) == 1:
            return found[0]
        several = ", ".join(row.plan_digest.hex()[:12] for row in found)
        raise RequestError(
            Code.NOT_FOUND,
            f"several studies are called {wanted!r}: {several}; name one by its digest"
            if found
            else f"no study {wanted!r}; `eigenveil study list` shows them",
        )

    async def federation(self) -> FederationView:
        """The sites of the federation, what they state, and its dictionary, which is kept.

        Raises:
            PeerError: what came is not signed, older than what was seen before, or cannot be shown.
        """
        sent = await self._call(lambda stub: stub.GetDictionary, pb.GetDictionaryRequest())
        dictionary = take_dictionary(self._identity, sent)
        sites: list[ListedSite] = []
        more = True
        while more:
            after = sites[-1].name if sites else ""
            asked = pb.ListSitesRequest(after=after)
            answer = await self._call(lambda stub: stub.ListSites, asked)
            found, more = listed(answer.sites, after), answer.more
            sites += found
            if more and not (found and len(sites) < MOST_SITES):
                raise PeerError(Code.PROTOCOL, "the coordinator lists sites without end")
        return FederationView(
            name=self._identity.identity.federation,
            sites=tuple(sites),
            dictionary=dictionary,
            approval_seconds=answer.approval_seconds,
            start_seconds=answer.start_seconds,
        )

    async def cancel(self, plan_digest: bytes) -> None:
        """End a running study; what was charged stays charged."""
        await self._call(lambda stub: stub.CancelStudy, pb.CancelStudyRequest(plan_digest=plan_digest))

    async def release(self, plan_digest: bytes) -> bytes:
        """The release.json of a study, after checking that this federation signed it for this plan.

        Raises:
            RequestError: not there yet, or not what the federation signed.
        """
        data, total = b"", 1
        while len(data) < total:  # in as many calls as it takes: a wide covariance exceeds a message [R12]
            asked = pb.GetReleaseRequest(plan_digest=plan_digest, offset=len(data))
            answer = await self._call(lambda stub: stub.GetRelease, asked)
            data, total = data + answer.release_json, answer.total_bytes
            if len(data) < total and not answer.release_json:
                raise PeerError(Code.PROTOCOL, "the coordinator sent less of the release than there is")
        release = load_release(data)
        verify_release(release, self._identity.release_key)
        if release.document["plan_digest"] != plan_digest.hex():
            raise PeerError(Code.PROTOCOL, "the coordinator sent the release of another study")
        return data

    async def rounds(self, plan_digest: bytes, count: int) -> RoundLog:
        """The first `count` signed rounds of a study. [R21]"""
        messages = [
            await fetch_round(lambda asked: self._call(lambda stub: stub.GetRound, asked), plan_digest, round)
            for round in range(count)
        ]
        return RoundLog(plan=plan_digest.hex(), messages=tuple(messages))

    async def watch(
        self, plan_digest: bytes, tell: Callable[[str], None] = lambda sentence: None
    ) -> AsyncIterator[pb.StudyEvent]:
        """The study's events up to its end, each once, through restarts of the coordinator.

        `tell` hears once that the connection is lost, and once that it is there again.

        Raises:
            PeerError: code `unreachable`, after `PATIENCE_SECONDS` of failed attempts. A long round without
                events is no failure.
        """
        after, attempt, failing, lost = 0, 0, math.inf, False
        while True:
            try:
                if self._channel is None:
                    await self._connect()
                    failing = math.inf
                    if lost:
                        lost = False
                        tell("connected again")
                request = pb.WatchStudyRequest(plan_digest=plan_digest, after_sequence=after)
                async for event in self._stub.WatchStudy(request):
                    after, attempt, failing = event.sequence, 0, math.inf
                    yield event
                    if event.state != pb.STUDY_STATE_RUNNING:
                        return
            except (grpc.aio.AioRpcError, EigenveilError) as problem:
                failure = error_from(problem) if isinstance(problem, grpc.aio.AioRpcError) else problem
                failing = min(failing, time.monotonic())
                if not self._worth_another_try(failure) or time.monotonic() - failing > PATIENCE_SECONDS:
                    raise failure from problem
                if failure.code is Code.UNREACHABLE and not lost:
                    lost = True
                    tell("connection lost, retrying")
                await self._disconnect()
            await asyncio.sleep(pause(attempt))
            attempt += 1


def shown_names(rows: Iterable[pb.StudyRow]) -> list[str]:
    """The name of each study in a list, oldest first; what is not the first of its name has a number."""
    seen = Counter[str]()
    names = []
    for row in rows:
        seen[row.name] += 1
        names.append(row.name if seen[row.name] == 1 else f"{row.name} ({seen[row.name]})")
    return names
