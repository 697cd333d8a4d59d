"""One study as a state machine: the question that is pending, a release fed, the result.

No I/O, clock or randomness: the log of releases is the whole state, and replaying it into a new
session gives the same pending question. The simulator, the coordinator and the estimator drive it.
"""

from __future__ import annotations

from collections.abc import Iterable

from eigenveil.accounting.zcdp import NOTHING, pico_epsilon
from eigenveil.algorithms import Estimate, steps_of
from eigenveil.algorithms.gradient.auto import Way
from eigenveil.algorithms.shared.bounds import box, check_bounds
from eigenveil.errors import Code, InternalError, PeerError, RequestError, spoken
from eigenveil.protocol.agreement import same_question
from eigenveil.protocol.budget import check_affordable
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery, RoundQuery, check_no_overflow
from eigenveil.protocol.release import Release
from eigenveil.queries import released


class Session:
    """`pending` is the next query or None; `feed` takes its release; `result` is there at the end.

    `way` imagines what the first releases will decide, for a rehearsal.
    """

    def __init__(self, plan: Plan, way: Way | None = None) -> None:
        self.plan = plan
        self.releases: list[Release] = []
        self.asked: list[RoundQuery] = []
        self._pico = 0
        self._box = box(plan.study)
        self.spent = NOTHING
        self.pending: RoundQuery | None = None
        self._own: RoundQuery | None = None  # `pending` in this session's own words
        self._result: Estimate | None = None
        self._algorithm = steps_of(plan, way)
        self._advance(None)

    @classmethod
    def replay(cls, plan: Plan, releases: Iterable[Release]) -> Session:
        """The session that has seen `releases`, in order."""
        session = cls(plan)
        for release in releases:
            session.feed(release)
        return session

    def adopt(self, asked: RoundQuery) -> None:
        """Go on with the federation's wording of the pending query, which the last bit of somebody's linear
        algebra may have rounded to another unit. Every wording is held against this session's own, so that
        units do not add up, and against the public bounds.

        Raises:
            PeerError: code `protocol`: it is not what the study asks now.
            RequestError: code `plan-overflow`: it passes a bound by its last unit.
        """
        own = self._own
        if own is not None and own.says(asked):
            self.pending = self._own = asked  # one object, whose digest is computed once
            return
        if own is None or not same_question(own, asked):
            due = "nothing more" if own is None else f"as {spoken(own.round)} something else"
            raise PeerError(
                Code.PROTOCOL,
                f"what was asked as {spoken(asked.round)} does not follow from the plan and the releases "
                f"so far, which ask {due}",
            )
        self._check_reach(asked)
        self.pending = asked

    @property
    def reworded(self) -> bool:
        """Whether the pending query is in the federation's words, and these differ from its own."""
        return self.pending is not self._own

    def feed(self, release: Release) -> None:
        """Hand the pending query's release to the algorithm.

        Raises:
            InternalError: nothing is pending, or the release answers another query.
        """
        asked = self.pending
        if asked is None:
            raise InternalError(Code.BUG, "a release was fed to a session that asked nothing")
        if not self.fits(release):
            raise InternalError(
                Code.BUG,
                f"the release of {spoken(release.round)} does not answer what {spoken(asked.round)} asks",
            )
        self.spent = self.spent + release.cost
        self.releases.append(release)
        self._pico += pico_epsilon(release.micro_rho)
        self.asked.append(asked)
        self._advance(release)

    def fits(self, release: Release) -> bool:
        """Whether `release` answers the pending query: its round, digest, price and number of integers."""
        asked = self.pending
        if asked is None:
            return False
        answers = (release.round, release.query, release.cost) == (asked.round, asked.digest, asked.cost)
        return answers and release.values.shape == (released(asked.query),)

    def _advance(self, release: Release | None) -> None:
        try:
            priced = next(self._algorithm) if release is None else self._algorithm.send(release)
        except StopIteration as end:
            self.pending, self._own, self._result = None, None, end.value
            return
        self.pending = self._own = self._query(priced)

    def _query(self, priced: PricedQuery) -> RoundQuery:
        """The next query, if the study can pay for it: checked before it is asked [P4]."""
        asked = RoundQuery(
            plan_digest=self.plan.digest,
            round=len(self.releases),
            query=priced.query,
            micro_rho=priced.micro_rho,
            atto_delta=priced.atto_delta + self.plan.aliasing,
            law=priced.law,
            frame=priced.frame,
        )
        check_affordable(self.plan, asked, self.asked, self.spent, self._pico)
        self._check_reach(asked)
        return asked

    def _check_reach(self, asked: RoundQuery) -> None:
        check_no_overflow(asked.query, self.plan.most_records)
        check_bounds(asked.query, self._box)

    @property
    def result(self) -> Estimate:
        """The study's estimate.

        Raises:
            RequestError: code `not-ready`, while a query is pending.
        """
        if self._result is None:
            raise RequestError(Code.NOT_READY, "the study has not finished")
        return self._result
