"""Session of a study, a state machine: a pending query, its release, the next query, and the result. It has
no I/O, clock or randomness. Its state is the list of releases: replaying them in a new session gives the same
pending query. Simulation, coordinator, sites and estimators use it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eigenveil.accounting.zcdp import NO_COST, pico_epsilon
from eigenveil.algorithms import Estimate, steps_of
from eigenveil.algorithms.recommended.refined_cov import FirstStage
from eigenveil.algorithms.shared.preparation import box, check_bounds
from eigenveil.errors import Code, InternalError, PeerError, RequestError, round_label
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery, RoundQuery, check_no_overflow, is_same_query
from eigenveil.protocol.query_limits import check_affordable
from eigenveil.protocol.rounds import Release
from eigenveil.queries import released_length


class Session:
    """Session of one plan: `pending` is the next query or None, `feed` takes its release, then `result`.
    `first_stage` assumes the decision that the first releases lead to, for a rehearsal."""

    def __init__(self, plan: Plan, first_stage: FirstStage | None = None) -> None:
        self.plan = plan
        self.releases: list[Release] = []
        self.queries: list[RoundQuery] = []
        self._pico = 0
        self._box = box(plan.study)
        self.spent = NO_COST
        self.pending: RoundQuery | None = None
        self._derived: RoundQuery | None = None  # `pending` as this session computes it
        self._result: Estimate | None = None
        self._algorithm = steps_of(plan, first_stage)
        self._advance(None)

    @classmethod
    def replay(cls, plan: Plan, releases: Iterable[Release]) -> Session:
        """Return the session after `releases`, in order."""
        session = cls(plan)
        for release in releases:
            session.feed(release)
        return session

    def adopt(self, round_query: RoundQuery) -> None:
        """Adopt the federation's version of the pending query, which may differ by one unit of rounding. Each
        version is compared with this session's own, so that differences do not add up, and with the public
        bounds. Raises PeerError: code `protocol`: it is not the next query of the study; RequestError: code
        `plan-overflow`: it exceeds a bound by its last unit."""
        derived = self._derived
        if derived is not None and derived.is_identical(round_query):
            self.pending = self._derived = round_query  # one object, with one cached digest
            return
        if derived is None or not is_same_query(derived, round_query):
            due = "no more queries" if derived is None else f"another query as {round_label(derived.round)}"
            raise PeerError(
                Code.PROTOCOL,
                f"the query of {round_label(round_query.round)} does not follow from the plan and the "
                f"releases so far, which give {due}",
            )
        self._check_reach(round_query)
        self.pending = round_query

    @property
    def pending_differs(self) -> bool:
        """True if the pending query is the federation's version and differs from this session's."""
        return self.pending is not self._derived

    def feed(self, release: Release) -> None:
        """Pass the pending query's release to the algorithm. Raises InternalError: no query is pending, or
        the release answers another query."""
        round_query = self.pending
        if round_query is None:
            raise InternalError(Code.BUG, "a release was fed to a session without a pending query")
        if not self.fits(release):
            raise InternalError(
                Code.BUG,
                f"the release of {round_label(release.round)} does not answer the query of "
                f"{round_label(round_query.round)}",
            )
        self.spent = self.spent + release.cost
        self.releases.append(release)
        self._pico += pico_epsilon(release.micro_rho)
        self.queries.append(round_query)
        self._advance(release)

    def fits(self, release: Release) -> bool:
        """Return True if `release` has the round, digest, cost and length of the pending query."""
        round_query = self.pending
        if round_query is None:
            return False
        answers = (release.round, release.query, release.cost) == (
            round_query.round,
            round_query.digest,
            round_query.cost,
        )
        return answers and release.values.shape == (released_length(round_query.query),)

    def _advance(self, release: Release | None) -> None:
        try:
            priced_query = next(self._algorithm) if release is None else self._algorithm.send(release)
        except StopIteration as end:
            self.pending, self._derived, self._result = None, None, end.value
            return
        self.pending = self._derived = self._query(priced_query)

    def _query(self, priced: PricedQuery) -> RoundQuery:
        """Return the next query, after a check that the study can pay for it [P4]."""
        charged = replace(priced, atto_delta=priced.atto_delta + self.plan.masked_delta)
        round_query = RoundQuery(charged, self.plan.digest, len(self.releases))
        check_affordable(self.plan, round_query, self.queries, self.spent, self._pico)
        self._check_reach(round_query)
        return round_query

    def _check_reach(self, round_query: RoundQuery) -> None:
        check_no_overflow(round_query.query, self.plan.most_records)
        check_bounds(round_query.query, self._box)

    @property
    def result(self) -> Estimate:
        """Estimate of the study. Raises RequestError: code `not-ready`, while a query is pending."""
        if self._result is None:
            raise RequestError(Code.NOT_READY, "the study has not finished")
        return self._result
