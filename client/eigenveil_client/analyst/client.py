"""Client of the coordinator for analysts: one method a call, which checks the answer."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Self, TypeVar

import grpc

from eigenveil import __version__
from eigenveil.errors import Code, EigenveilError, PeerError, RequestError, error
from eigenveil.protocol.capabilities import OWN
from eigenveil.protocol.plan import Plan, plan_from_json, verify_plan
from eigenveil.reporting.verify import RoundLog, load_release, verify_release
from eigenveil.study.study import Study
from eigenveil.study.toml import sent_study, study_digest
from eigenveil.study_authorization import check_plan_matches_study
from eigenveil_client.analyst.federation import FederationView, ListedSite, listed
from eigenveil_client.analyst.profile import SigningKey
from eigenveil_client.analyst.proposal import (
    DEFAULT_DAYS,
    Proposal,
    expiry,
    signed_submissions,
    store_submission,
)
from eigenveil_client.connection.channel import CALL_SECONDS, backoff_seconds, call, fetch_round
from eigenveil_client.connection.identity import StoredIdentity, open_channel
from eigenveil_client.connection.session_start import accept_dictionary, due, greet_coordinator, renew
from eigenveil_common.rpc import error_from
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

SHORTEST_PREFIX = 6
ATTEMPTS = 8  # longer than a restart of a coordinator takes
PLANNING_SECONDS = 120.0  # a coordinator checks every query of a study before it accepts it
MOST_SITES = 100_000  # that a coordinator may list
WATCH_TIMEOUT_SECONDS = 600.0  # for which a watch retries an unreachable coordinator

OTHER_PLAN = (
    "the coordinator runs a plan that you did not sign, and sites that know your key refuse it. Cancel the "
    "study, and inform the federation's operator"
)

Request = TypeVar("Request")
Response = TypeVar("Response")


class Analyst:
    """An analyst's connection to the coordinator: `async with Analyst(identity) as analyst`. The connection
    is made at the first call. Every method raises the coordinator's own error, or an EigenveilError of code
    `unreachable`."""

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
        await greet_coordinator(self._stub, f"eigenveil {__version__}", self._identity)
        self._identity = self._identity.reread()  # the greeting may have brought a new list of authorities
        if due(self._identity):
            await renew(self._stub, self._identity)

    def _is_retryable(self, problem: EigenveilError) -> bool:
        """Return True without a connection, or if another command has renewed its certificate."""
        if problem.code is Code.IDENTITY:
            return self._identity.reread().expires != self._identity.expires
        return problem.code is Code.UNREACHABLE

    async def _call(
        self,
        method: Callable[[rpc.CoordinatorAsyncStub], grpc.aio.UnaryUnaryMultiCallable[Request, Response]],
        request: Request,
        seconds: float = CALL_SECONDS,
    ) -> Response:
        """Make an idempotent call. Each retry has a new connection: a channel trusts one certificate."""
        for attempt in range(ATTEMPTS):
            try:
                if self._channel is None:
                    await self._connect()
                return await call(method(self._stub), request, attempts=1, seconds=seconds)
            except EigenveilError as problem:
                if not self._is_retryable(problem) or attempt + 1 == ATTEMPTS:
                    raise
                await self._disconnect()
            await asyncio.sleep(backoff_seconds(attempt))
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
        days: int = DEFAULT_DAYS,
        notify: Callable[[str], None] = lambda sentence: None,
    ) -> tuple[Plan, list[str]]:
        """Have the study planned, sign the plan if it is of this study, and submit it.

        Returns the plan and warnings. One submission id is one study, however often it is sent. `notify` is
        called with the summary before it is signed, for `days`.

        Raises:
            RequestError: the study is refused, here or there; code `authorization`, its plan has changed; or
                as `SigningKey.read`.
            PeerError: the coordinator's plan is not of this study; nothing was signed."""
        proposal = await self.propose(text, submission, days=days)
        notify(proposal.summary)
        return await self.sign(proposal)

    async def submission_id(self, study: Study) -> str:
        """Return the submission id of a study. That is the id of a valid signature of this study which the
        coordinator does not list, as that submission may still run; else a new one."""
        digest = study_digest(study)
        signed = signed_submissions(self._identity.folder, time.time())
        open_ids = [one.submission for one in signed if one.study == digest]
        listed = {row.submission for row in await self.studies()} if open_ids else set()
        return next((one for one in open_ids if one not in listed), uuid.uuid4().hex)

    async def propose(
        self, text: str, submission: str, *, days: int = DEFAULT_DAYS, dictionary: str = ""
    ) -> Proposal:
        """Return the coordinator's plan of this study, after checks, to be signed for `days`. `dictionary`:
        as in `Proposal`. Raises as `submit`."""
        study, mine = sent_study(text), self._identity.identity
        request = pb.ExplainStudyRequest(study_toml=text, submission=submission, capabilities=OWN.to_proto())
        answer = await self._call(lambda stub: stub.ExplainStudy, request, PLANNING_SECONDS)
        plan = plan_from_json(answer.plan_json)
        check_plan_matches_study(
            plan, study, federation=mine.federation, analyst=mine.name, submission=submission
        )
        key, expires = SigningKey.read(self._identity.folder), expiry(time.time(), days)
        return Proposal(toml=text, plan=plan, key=key, expires=expires, dictionary=dictionary)

    async def sign(self, proposal: Proposal) -> tuple[Plan, list[str]]:
        """Sign a proposal, store its submission beside the key, and submit it. Returns the plan and warnings.
        Raises as `submit`."""
        request = pb.SubmitStudyRequest(
            study_toml=proposal.toml,
            submission=proposal.plan.submission,
            authorization=proposal.sign().to_proto(),
            capabilities=OWN.to_proto(),
        )
        store_submission(self._identity.folder, proposal.signed_submission, time.time())
        try:
            answer = await self._call(lambda stub: stub.SubmitStudy, request, PLANNING_SECONDS)
            plan = verify_plan(
                answer.plan.plan_json, answer.plan.signature, self._identity.release_keys.accepted
            )
            if not plan.digest == answer.plan_digest.hex() == proposal.plan.digest:
                raise PeerError(Code.PROTOCOL, OTHER_PLAN)
        except EigenveilError as problem:  # whatever the answer, the coordinator has the signature
            raise error(problem.code, f"{problem}. {proposal.resubmission_message}") from problem
        return plan, list(answer.warnings)

    async def explain(self, text: str) -> str:
        """Return the queries and the cost of a study as JSON: see `eigenveil.reporting.explain`."""
        sent_study(text)
        request = pb.ExplainStudyRequest(study_toml=text, capabilities=OWN.to_proto())
        return (await self._call(lambda stub: stub.ExplainStudy, request, PLANNING_SECONDS)).explanation_json

    async def studies(self) -> list[pb.StudyRow]:
        """Return all studies of the federation, oldest first."""
        return list((await self.listed()).studies)

    async def listed(self) -> pb.ListStudiesResponse:
        """Return all studies of the federation, oldest first, and its remaining budget."""
        found, more = pb.ListStudiesResponse(), True
        while more:
            after = found.studies[-1].plan_digest if found.studies else b""
            part = await self._call(lambda stub: stub.ListStudies, pb.ListStudiesRequest(after=after))
            more = part.more
            if more and (not part.studies or part.studies[-1].plan_digest == after):
                raise PeerError(Code.PROTOCOL, "the coordinator lists studies without end")
            found.studies.extend(part.studies)
            found.budget.CopyFrom(part.budget)
        return found

    async def find(self, wanted: str) -> pb.StudyRow:
        """Return the study whose digest starts with `wanted` (6 characters or more), or whose name it is. A
        name may have the number by which lists distinguish studies of one name."""
        rows, long = await self.studies(), len(wanted) >= SHORTEST_PREFIX
        found = [row for row in rows if long and row.plan_digest.hex().startswith(wanted.lower())]
        found = found or [row for row in rows if row.name == wanted]
        found = found or [row for name, row in zip(shown_names(rows), rows, strict=True) if name == wanted]
        if len(found) == 1:
            return found[0]
        several = ", ".join(row.plan_digest.hex()[:12] for row in found)
        why = f"several studies are called {wanted!r}: {several}. Name one by its digest"
        none = f"there is no study {wanted!r}. See `eigenveil study list`"
        raise RequestError(Code.NOT_FOUND, why if found else none)

    async def federation(self) -> FederationView:
        """Return the sites of the federation, their statements, and its dictionary, which is cached."""
        sent = await self._call(lambda stub: stub.GetDictionary, pb.GetDictionaryRequest())
        dictionary = accept_dictionary(self._identity, sent)
        sites: list[ListedSite] = []
        more = True
        while more:
            after = sites[-1].name if sites else ""
            answer = await self._call(lambda stub: stub.ListSites, pb.ListSitesRequest(after=after))
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
        """Cancel a running study; charges remain."""
        await self._call(lambda stub: stub.CancelStudy, pb.CancelStudyRequest(plan_digest=plan_digest))

    async def release(self, plan_digest: bytes) -> bytes:
        """Return the file of a study's release, after a check of this federation's signature and the plan."""
        data, total = b"", 1
        while len(data) < total:  # a wide covariance exceeds one message [R12]
            request = pb.GetReleaseRequest(plan_digest=plan_digest, offset=len(data))
            answer = await self._call(lambda stub: stub.GetRelease, request)
            data, total = data + answer.release, answer.total_bytes
            if len(data) < total and not answer.release:
                raise PeerError(Code.PROTOCOL, "the coordinator sent an incomplete release")
        release = load_release(data)
        verify_release(release, self._identity.release_keys.known)
        if release.document["plan_digest"] != plan_digest.hex():
            raise PeerError(Code.PROTOCOL, "the coordinator sent the release of another study")
        return data

    async def rounds(self, plan_digest: bytes, count: int) -> RoundLog:
        """Return the first `count` signed rounds of a study. [R21]"""
        get_round = partial(self._call, lambda stub: stub.GetRound)
        messages = [await fetch_round(get_round, plan_digest, round) for round in range(count)]
        return RoundLog(plan=plan_digest.hex(), messages=tuple(messages))

    async def watch(
        self, plan_digest: bytes, notify: Callable[[str], None] = lambda sentence: None
    ) -> AsyncIterator[pb.StudyEvent]:
        """Yield the study's events up to its end, each once, through restarts of the coordinator.

        `notify` is called when the connection is lost, and when it is restored.

        Raises PeerError: code `unreachable`, after `WATCH_TIMEOUT_SECONDS` of failed attempts. A long round
        without events is not a failure."""
        after, attempt, failing, disconnected = 0, 0, math.inf, False
        while True:
            try:
                if self._channel is None:
                    await self._connect()
                    failing = math.inf
                    if disconnected:
                        disconnected = False
                        notify("connected again")
                request = pb.WatchStudyRequest(plan_digest=plan_digest, after_sequence=after)
                async for event in self._stub.WatchStudy(request):
                    after, attempt, failing = event.sequence, 0, math.inf
                    yield event
                    if event.state != pb.STUDY_STATE_RUNNING:
                        return
            except (grpc.aio.AioRpcError, EigenveilError) as problem:
                failure = error_from(problem) if isinstance(problem, grpc.aio.AioRpcError) else problem
                failing = min(failing, time.monotonic())
                if not self._is_retryable(failure) or time.monotonic() - failing > WATCH_TIMEOUT_SECONDS:
                    raise failure from problem
                if failure.code is Code.UNREACHABLE and not disconnected:
                    disconnected = True
                    notify("connection lost, retrying")
                await self._disconnect()
            await asyncio.sleep(backoff_seconds(attempt))
            attempt += 1


def shown_names(rows: Iterable[pb.StudyRow]) -> list[str]:
    """Return the name of each study in a list, oldest first, with a number if the name is repeated."""
    seen, names = Counter[str](), []
    for row in rows:
        seen[row.name] += 1
        names.append(row.name if seen[row.name] == 1 else f"{row.name} ({seen[row.name]})")
    return names
