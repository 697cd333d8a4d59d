"""What a site does with a piece of work: decide, compute, write down. No network and no clock here.

The order within one piece of work is the promise: signature, policy and budget before a plan is
accepted; plan, round order, price and overflow before a query is computed; the charge and the egress
row are durable before the caller holds anything it could send.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

from eigenveil.aggregate import Contribution
from eigenveil.asks import NAMES, Ask, Count, OnField
from eigenveil.errors import Code, EigenveilError, InternalError, PeerError, error
from eigenveil.explain import MEANINGS
from eigenveil.grid import GridRows
from eigenveil.identity import Identity
from eigenveil.ints import IntArray, to_bytes
from eigenveil.plan import Plan, plan_from_json
from eigenveil.query import Query, check_no_overflow
from eigenveil.rehearsal import rehearse
from eigenveil.signed_plan import check_plan
from eigenveil.site import Site
from eigenveil.study import Study
from eigenveil.wire import digest_from_bytes, query_from_proto
from eigenveil_client.policy import Policy, reason_of
from eigenveil_client.site_store import SiteStore, StudyStanding
from eigenveil_client.tables import BadRecords
from eigenveil_common.log import alarm, event
from eigenveil_proto.v1 import eigenveil_pb2 as pb

UNKNOWN = "unknown"  # to the coordinator: a study that it never had, or forgot in a restore
STATES = {value: name.removeprefix("STUDY_STATE_").lower() for name, value in pb.StudyState.items()} | {
    pb.STUDY_STATE_UNSPECIFIED: UNKNOWN
}
# The noised record count decides the mean's share (5 or 15 %) and the number of rounds (40 or 100), so a
# price may differ from the foreseen one by a factor of 3; a factor of 4 is refused.
PRICE_SLACK = 4
# Their sentences are made before a record is read; all others are logged as their code alone.
TELLABLE = frozenset({Code.POLICY, Code.PROTOCOL, Code.IDENTITY, Code.VERSION, Code.OVERFLOW, Code.BAD_STUDY})
MOST_LOADED = 4  # studies whose rows stay in memory; a fifth one makes the oldest load again


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal to send. The coordinator is told the reason, the site's log the code."""

    plan_digest: str
    round: int
    reason: pb.DeclineReason.ValueType


Reply = Contribution | Refusal


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
        self, member: Member, policy: Policy, store: SiteStore, load: Callable[[Study], GridRows]
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
        self._known = [p.plan for p in store.plans() if p.standing is not StudyStanding.ENDED]

    def known_plans(self) -> list[str]:
        """Plans that are decided and have not ended, oldest first."""
        return list(self._known)

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
        except EigenveilError as problem:
            if problem.code is Code.STORAGE:
                raise
            return self._refuse(response, problem)
        except Exception as surprise:  # noqa: BLE001 - whatever it is, it is logged and refused
            alarm("bug", type=type(surprise).__qualname__, at=_places(surprise))
            return self._refuse(response, InternalError(Code.BUG, "see the line above"))

    def _end(self, digest: str, state: pb.StudyState.ValueType) -> None:
        seen = self._store.plan(digest)
        for held in (self._plans, self._floors, self._sites):
            held.pop(digest, None)
        if seen is not None and seen.standing is not StudyStanding.ENDED:
            self._store.end(digest)
            self._known.remove(digest)
            event("study-ended", study=digest, state=STATES.get(state, UNKNOWN))

    def _admit(self, signed: pb.SignedPlan) -> str:
        """Decide about a plan, once; the digest of the plan. Raises the reason of a refusal."""
        plan = check_plan(signed.plan_json, signed.signature, self._member.release_key)
        if self._store.plan(plan.digest) is not None:
            return plan.digest
        try:
            self._invited(plan)
            self._policy.require(plan)
            self._store.accept(plan, signed.plan_json, signed.signature)
        except EigenveilError as problem:
            if problem.code is not Code.STORAGE:
                self._store.decline(plan.digest, signed.plan_json, signed.signature, problem.code)
                self._known.append(plan.digest)
            raise
        self._known.append(plan.digest)
        event("study-accepted", study=plan.digest, algorithm=plan.algorithm.value)
        return plan.digest

    def _invited(self, plan: Plan) -> None:
        identity = self._member.identity
        if plan.federation != identity.federation:
            raise PeerError(Code.PROTOCOL, f"the plan is for federation {plan.federation}")
        if identity.name not in plan.study.federation.sites:
            raise PeerError(Code.PROTOCOL, "the plan does not invite this site")

    def _answer(self, query: Query) -> Contribution:
        plan = self._accepted(query.plan_digest)
        self._check(query, plan)
        site = self._site(plan)
        contribution = Contribution(
            plan_digest=query.plan_digest,
            round=query.round,
            query=query.digest,
            site=self._member.identity.name,
            values=self._compute(site, query.ask),
        )
        meaning = MEANINGS[NAMES[type(query.ask)]]
        self._store.answer(plan, query, to_bytes(contribution.values), meaning)
        event("round-answered", study=query.plan_digest, round=query.round)
        return contribution

    def _compute(self, site: Site, ask: Ask) -> IntArray:
        with threadpool_limits(1):  # the parts are the threads; more inside them only get in the way
            return site.answer(ask, self._threads.map)

    def _accepted(self, digest: str) -> Plan:
        if digest not in self._plans:
            seen = self._store.plan(digest)
            if seen is None:
                raise PeerError(Code.PROTOCOL, "a query came for a plan that this site never got")
            if seen.standing is StudyStanding.DECLINED:
                raise error(Code(seen.reason), "this study was declined")
            if seen.standing is StudyStanding.ENDED:
                raise PeerError(Code.PROTOCOL, "a query came for a study that has ended")
            plan = plan_from_json(seen.plan_json)
            self._policy.require(plan)  # again: site.toml may have changed since the plan was accepted
            self._floors[digest] = price_floors(plan)
            self._plans[digest] = plan
        return self._plans[digest]

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

    def _site(self, plan: Plan) -> Site:
        if plan.digest not in self._sites:
            while len(self._sites) >= MOST_LOADED:
                self._sites.pop(next(iter(self._sites)))
            site = Site(self._load(plan.study), parts=self._cores)
            self._policy.require_enough(len(site))
            self._store.keep_records(plan, site)
            self._sites[plan.digest] = site
        return self._sites[plan.digest]

    def _refuse(self, response: pb.NextWorkResponse, problem: EigenveilError) -> Refusal | None:
        """Log, write down and hand back a refusal of what `response` asked."""
        round = response.query.round
        try:
            digest = digest_from_bytes(response.query.plan_digest)
        except PeerError:
            alarm("work-unreadable", code=problem.code.value, **_told(problem))
            return None
        reason = reason_of(problem)
        tell = alarm if reason == pb.DECLINE_REASON_PROTOCOL else event
        tell("declined", study=digest, round=round, code=problem.code.value, **_told(problem))
        self._store.refuse(digest, round, problem.code.value)
        return Refusal(plan_digest=digest, round=round, reason=reason)


def price_floors(plan: Plan) -> dict[str, int]:
    """The kinds of question a plan asks, and the least each may cost, in micro-rho.

    Without a floor a coordinator could ask everything at no charge to the site's budget.
    """
    floors: dict[str, int] = {}
    for query in rehearse(plan):
        kind = NAMES[type(query.ask)]
        floors[kind] = min(floors.get(kind, query.micro_rho), query.micro_rho)
    return {kind: max(1, price // PRICE_SLACK) for kind, price in floors.items()}


def _told(problem: EigenveilError) -> dict[str, Any]:
    """What a log line says of a refusal: sentences only about plans, queries and site.toml."""
    if isinstance(problem, BadRecords):
        return {"about": problem.about}
    return {"detail": str(problem)} if problem.code in TELLABLE else {}


def _places(surprise: Exception) -> str:
    """Where an exception came from. Its text stays untold: it may quote a cell."""
    frames = traceback.walk_tb(surprise.__traceback__)
    return " ".join(f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in frames)


def columns_of(ask: Ask) -> int | None:
    """How many columns a question is about; None if it does not say."""
    if isinstance(ask, Count):
        return None
    return (ask.field if isinstance(ask, OnField) else ask).centre.size
