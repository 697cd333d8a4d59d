"""What a site does with a piece of work: decide, compute, write down. No network and no clock here.

The order within one piece of work is the promise: signature, policy and budget before a plan is
accepted; consent, plan, round order, price and overflow before a record is read; records that do not do
are refused only after the computation that an answer takes; the charge and the egress row are durable before
the caller holds anything it could send.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, cast

import numpy as np

from eigenveil.aggregate import Contribution
from eigenveil.asks import NAMES, Ask
from eigenveil.errors import Code, EigenveilError, InternalError, PeerError, RequestError, error
from eigenveil.explain import MEANINGS
from eigenveil.identity import Identity
from eigenveil.ints import IntArray, to_bytes
from eigenveil.one_thread import one_thread
from eigenveil.plan import Plan, plan_from_json
from eigenveil.query import Query, check_no_overflow
from eigenveil.signed_plan import check_plan
from eigenveil.site import Site
from eigenveil.study import Study
from eigenveil.wire import digest_from_bytes, query_from_proto
from eigenveil_client.chatter import CountedStub
from eigenveil_client.foreseen import columns_of, price_floors
from eigenveil_client.heads import SiteHeads
from eigenveil_client.policy import Approval, Policy
from eigenveil_client.records import Records
from eigenveil_client.refusals import Refusal, reason_of, told
from eigenveil_client.seen_plans import SeenPlan, StudyStanding
from eigenveil_client.site_store import SiteStore
from eigenveil_common.failpoints import failpoint
from eigenveil_common.log import alarm, event, places
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

UNKNOWN = "unknown"  # to the coordinator: a study that it never had, or forgot in a restore
ENDS = {
    pb.STUDY_STATE_RELEASED: "released",
    pb.STUDY_STATE_FAILED: "failed",
    pb.STUDY_STATE_CANCELLED: "cancelled",
    pb.STUDY_STATE_UNSPECIFIED: UNKNOWN,
}
MOST_LOADED = 4  # studies whose rows stay in memory; a fifth one makes the oldest load again


Reply = Contribution | Refusal


class Waiting(Exception):
    """A study that waits for a person's word: there is nothing to send, neither an answer nor a refusal."""


class Member(Protocol):
    """Who answers: an identity and the key that its coordinator signs plans with."""

    @property
    def identity(self) -> Identity:
        """The site."""

    @property
    def release_key(self) -> bytes:
        """Raw Ed25519 public key."""


class SiteWorker:
    """Answers work for one site, one piece at a time. `load` reads the records for a study."""

    def __init__(
        self, member: Member, policy: Policy, store: SiteStore, load: Callable[[Study], Records]
    ) -> None:
        self._member = member
        self._policy = policy
        self._store = store
        self._load = load
        self._plans: dict[str, Plan] = {}
        self._floors: dict[str, dict[str, int]] = {}
        self._sites: dict[str, Site] = {}
        self._cores = os.cpu_count() or 1
        self._threads = ThreadPoolExecutor(self._cores)
        self._known = [p.plan for p in store.studies.all() if p.standing is not StudyStanding.ENDED]

    def known_plans(self) -> list[str]:
        """Plans that are here and have not ended, oldest first."""
        return list(self._known)

    def awaiting(self) -> frozenset[str]:
        """Plans that wait for a person's word: their questions are of no use yet."""
        return frozenset() if self._policy.approval is Approval.AUTO else self._store.studies.pending()

    def counted(self, stub: rpc.CoordinatorAsyncStub) -> rpc.CoordinatorAsyncStub:
        """`stub`, with every message that leaves through it counted."""
        return cast("rpc.CoordinatorAsyncStub", CountedStub(stub, self._store.chatter))

    def bear_witness(self) -> None:
        """Note outside of the database how far its ledger is."""
        self._store.bear_witness()

    async def keep_counted(self) -> None:
        """Keep what was counted, for ever. Raises as `Chatter.flush`."""
        await self._store.chatter.keep_flushed()

    @property
    def heads(self) -> SiteHeads:
        """What the coordinator's ledger was when last seen."""
        return self._store.heads

    def take_head(self, signed: pb.SignedHead, parted: bool) -> None:
        """Keep a head, durably on return. Raises as `SiteHeads.take`."""
        member = self._member
        self.heads.take(signed, member.release_key, member.identity.federation, parted=parted)

    def stands(self, reply: Reply) -> bool:
        """Whether `reply` may still be sent: an answer leaves only while its study is agreed to."""
        seen = self._store.studies.get(reply.plan_digest)
        agreed = seen is not None and seen.standing is StudyStanding.ACCEPTED
        return agreed or isinstance(reply, Refusal)

    def work(self, response: pb.NextWorkResponse) -> Reply | None:
        """Settle what ended, then answer or refuse what is asked; None if nothing is.

        On return everything that must survive a crash is durable, and the reply may be sent. An error
        that nobody foresaw is a refusal too: it would end the process at every start again.

        Raises:
            InternalError: code `storage`; the process must end and nothing may be sent.
        """
        try:
            for ended in response.ended:
                self._end(digest_from_bytes(ended.plan_digest), ended.state)
            admitted = self._admit(response.plan) if response.HasField("plan") else None
            if not response.HasField("query"):
                return None
            query = query_from_proto(response.query)
            if admitted is not None and admitted != query.plan_digest:
                raise PeerError(Code.PROTOCOL, "the query is for another plan than the one beside it")
            return self._answer(query)
        except Waiting:
            return None
        except EigenveilError as problem:
            if problem.code is Code.STORAGE:
                raise
            return self._refuse(response, problem)
        except Exception as surprise:  # noqa: BLE001 - whatever it is, it is logged and refused
            alarm("bug", type=type(surprise).__qualname__, at=places(surprise.__traceback__))
            return self._refuse(response, InternalError(Code.BUG, "see the line above"))

    def _end(self, digest: str, state: pb.StudyState.ValueType) -> None:
        if state not in ENDS:
            raise PeerError(Code.PROTOCOL, f"no study ends in state {state}; is the coordinator newer?")
        seen = self._store.studies.get(digest)
        for held in (self._plans, self._floors, self._sites):
            held.pop(digest, None)
        if seen is not None and seen.standing is not StudyStanding.ENDED:
            self._store.end(digest)
            failpoint("study-ended")
            self._known.remove(digest)
            event("study-ended", study=digest, state=ENDS[state])

    def _admit(self, signed: pb.SignedPlan) -> str:
        """Decide about a plan, once; the digest of the plan. Raises the reason of a refusal."""
        plan = check_plan(signed.plan_json, signed.signature, self._member.release_key)
        if self._store.studies.get(plan.digest) is not None:
            return plan.digest
        try:
            self._invited(plan)
            self._policy.require(plan, self._store.now())
            floors = price_floors(plan)  # what cannot be foreseen is not agreed to
            if self._policy.approval is Approval.ASK:
                self._store.ask(plan, signed.plan_json, signed.signature)
            else:
                self._store.accept(plan, signed.plan_json, signed.signature, self._policy.yearly)
        except EigenveilError as problem:
            if problem.code is not Code.STORAGE:
                self._store.decline(plan.digest, signed.plan_json, signed.signature, problem.code)
                self._known.append(plan.digest)
            raise
        self._known.append(plan.digest)
        self._floors[plan.digest] = floors
        state = "study-waits" if self._policy.approval is Approval.ASK else "study-accepted"
        event(state, study=plan.digest, algorithm=plan.algorithm.value, analyst=plan.analyst)
        return plan.digest

    def _invited(self, plan: Plan) -> None:
        identity = self._member.identity
        if plan.federation != identity.federation:
            raise PeerError(Code.PROTOCOL, f"the plan is for federation {plan.federation}")
        if identity.name not in plan.study.federation.sites:
            raise PeerError(Code.PROTOCOL, "the plan does not invite this site")
        if not plan.analyst:
            raise PeerError(Code.PROTOCOL, "the plan does not name its analyst")

    def _answer(self, query: Query) -> Contribution:
        plan = self._agreed(query.plan_digest)
        self._check(query, plan)
        contribution = Contribution(
            plan_digest=query.plan_digest,
            round=query.round,
            query=query.digest,
            site=self._member.identity.name,
            values=self._values(plan, query.ask),
        )
        failpoint("answer-computed")
        meaning = MEANINGS[NAMES[type(query.ask)]]
        self._store.answer(plan, query, to_bytes(contribution.values), meaning)
        event("round-answered", study=query.plan_digest, round=query.round)
        return contribution

    def _values(self, plan: Plan, ask: Ask) -> IntArray:
        """Load and compute in any case, and only then refuse what the records do not allow."""
        site, problem = self._site(plan)
        values = self._compute(site, ask)
        if problem is not None:
            raise problem
        return values

    def _compute(self, site: Site, ask: Ask) -> IntArray:
        with one_thread():  # the parts are the threads; more inside them only get in the way
            return site.answer(ask, self._threads.map)

    def _agreed(self, digest: str) -> Plan:
        """The plan, if a person or the rules agreed to it, as of this moment: it may have been withdrawn."""
        seen = self._store.studies.get(digest)
        if seen is None:
            raise PeerError(Code.PROTOCOL, "a query came for a plan that this site never got")
        match seen.standing:
            case StudyStanding.PENDING:
                self._decide(seen)
            case StudyStanding.DECLINED | StudyStanding.WITHDRAWN:
                raise error(Code(seen.reason), f"this study was {seen.standing.value}")
            case StudyStanding.ENDED:
                raise PeerError(Code.PROTOCOL, "a query came for a study that has ended")
            case StudyStanding.ACCEPTED:
                pass
        if digest not in self._plans:
            self._store.ledger.refresh()  # another process may have agreed
            self._store.bear_witness()
            plan = plan_from_json(seen.plan_json)
            if digest not in self._floors:
                self._floors[digest] = price_floors(plan)
            self._plans[digest] = plan
        # Again: time passes, and site.toml may have changed since.
        self._policy.require(self._plans[digest], self._store.now())
        return self._plans[digest]

    def _decide(self, seen: SeenPlan) -> None:
        """A plan that waits goes on waiting; unless a person is not asked any more."""
        if self._policy.approval is Approval.ASK:
            raise Waiting
        plan = plan_from_json(seen.plan_json)
        self._policy.require(plan, self._store.now())
        self._store.accept(plan, seen.plan_json, seen.signature, self._policy.yearly)

    def _check(self, query: Query, plan: Plan) -> None:
        """Refuse whatever the plan does not allow, before a record is touched."""
        federation = plan.study.federation
        may_miss = self._member.identity.name not in federation.required and federation.least < len(
            federation.sites
        )
        self._store.check_order(query, may_miss)
        floor = self._floors[plan.digest].get(NAMES[type(query.ask)])
        if floor is None:
            raise PeerError(Code.PROTOCOL, f"{plan.algorithm.value} asks no such question")
        if query.micro_rho < floor:
            raise PeerError(Code.PROTOCOL, "the query is priced far below what the plan foresees")
        if columns_of(query.ask) not in (None, plan.study.dimension):
            raise PeerError(Code.PROTOCOL, "the query is about another number of columns than the plan")
        check_no_overflow(query.ask, plan.most_records)
        self._store.check_price(plan, query)

    def _site(self, plan: Plan) -> tuple[Site, EigenveilError | None]:
        """The records of a study, and what is wrong with them: then they are loaded anew the next time."""
        if plan.digest in self._sites:
            return self._sites[plan.digest], None
        while len(self._sites) >= MOST_LOADED:
            self._sites.pop(next(iter(self._sites)))
        site, problem = self._loaded(plan)
        if problem is None:
            self._sites[plan.digest] = site
            failpoint("records-loaded")
        return site, problem

    def _loaded(self, plan: Plan) -> tuple[Site, EigenveilError | None]:
        """Whether there are enough is asked of the persons in the whole file, never of those that the study's
        columns and rules leave: else its analyst chose whom a refusal is about."""
        try:
            records = self._load(plan.study)
        except RequestError as problem:
            return self._stand_in(plan), problem
        site = Site(records.rows, parts=self._cores)
        try:
            self._policy.require_enough(records.persons)
            self._store.keep_records(plan, records)
        except RequestError as problem:
            return site, problem
        return site, None

    def _stand_in(self, plan: Plan) -> Site:
        """Rows of zeros to compute with, where the records cannot be read."""
        rows = np.zeros((self._policy.minimum_records, plan.study.dimension), dtype=np.int16)
        return Site(rows, parts=self._cores)

    def _refuse(self, response: pb.NextWorkResponse, problem: EigenveilError) -> Refusal | None:
        """Log, write down and hand back a refusal of what `response` asked."""
        round = response.query.round
        try:
            digest = digest_from_bytes(response.query.plan_digest)
        except PeerError:
            alarm("work-unreadable", code=problem.code.value, **told(problem))
            return None
        reason = reason_of(problem)
        tell = alarm if reason == pb.DECLINE_REASON_PROTOCOL else event
        tell("declined", study=digest, round=round, code=problem.code.value, **told(problem))
        self._store.refuse(digest, round, problem.code.value)
        return Refusal(plan_digest=digest, round=round, reason=reason)
