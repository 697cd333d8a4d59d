"""Contributions of simulated sites to a round, in this process or elsewhere. Attendance of simulated sites at
the rounds of a study: drop-outs and small cohorts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Protocol

from eigenveil.aggregation import Contribution, aggregate, validate
from eigenveil.errors import RequestError
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import NAMES
from eigenveil.reporting.document import RoundRecord
from eigenveil.site.record_view import ParallelMap
from eigenveil.site.site import Site
from eigenveil.study.study import Federation

PARALLEL_ENTRIES = 2**18  # least number of entries of a site whose parts are processed in parallel
SITES_AT_ONCE = 32  # answers in memory at once


class Mask(Protocol):
    """Function that masks a site's exact answer, for the attempt with this digest."""

    @property
    def attempt(self) -> str: ...

    def __call__(self, site: str, values: IntArray) -> IntArray: ...


class ContributionSum(Protocol):
    """Function that returns the sum of the contributions of sites, each for its own records."""

    def __call__(self, round_query: RoundQuery, present: Sequence[str], mask: Mask | None = None) -> IntArray:
        """Return the exact sum of these sites' answers, masked by `mask`; votes are concatenated by site."""


SumFactory = Callable[[Mapping[str, Site], Plan], ContributionSum]


def sites_in_process(sites: Mapping[str, Site], plan: Plan, *, apply: ParallelMap = map) -> ContributionSum:
    """Return the function that sums the contributions of sites in this process."""
    return partial(sum_contributions, sites, plan.study.max_records, apply=apply)


def sum_contributions(
    sites: Mapping[str, Site],
    most: int,
    round_query: RoundQuery,
    present: Sequence[str],
    mask: Mask | None = None,
    *,
    apply: ParallelMap = map,
) -> IntArray:
    """Return the sum of these sites' contributions, validated as by a coordinator; `most` records per site.

    Cost: memory for SITES_AT_ONCE answers, and one for each SITES_AT_ONCE sites."""
    attempt = "" if mask is None else mask.attempt

    def group_sum(names: Sequence[str]) -> IntArray:
        answers: dict[str, IntArray] = {}
        for name in names:
            parallel = apply if prod(sites[name].rows.shape) >= PARALLEL_ENTRIES else map
            values = sites[name].answer(round_query.query, parallel, frame=round_query.priced.frame)
            sent = values if mask is None else mask(name, values)
            contribution = Contribution.to(round_query, name, sent, attempt)
            validate(round_query, contribution, range(most + 1), attempt)
            answers[name] = contribution.values
        return aggregate(round_query, answers)  # exact and confidential, unless it is masked

    names = sorted(present)
    groups = (names[first : first + SITES_AT_ONCE] for first in range(0, len(names), SITES_AT_ONCE))
    return aggregate_groups(round_query, map(group_sum, groups))


def aggregate_groups(round_query: RoundQuery, groups: Iterable[IntArray]) -> IntArray:
    """Return the aggregate of groups of sites; a group is treated as a site."""
    return aggregate(round_query, {f"{place:06}": values for place, values in enumerate(groups)})


class Attendance:
    """Sites of a federation with enough records, without those that drop out of a round. `drop_outs` maps a
    round to the sites that do not answer it. `rounds` has the published record of each."""

    def __init__(
        self, federation: Federation, sites: Mapping[str, Site], drop_outs: Mapping[int, Sequence[str]]
    ) -> None:
        few = federation.minimum_cohort
        self.rounds: list[RoundRecord] = []
        self._federation, self._drop_outs = federation, drop_outs
        self._small = [name for name, site in sites.items() if len(site) < few]
        self.sites = {name: site for name, site in sites.items() if name not in self._small}
        self._never = {name: "no records" for name in federation.sites if name not in sites}
        # As in a federation, which does not learn the reason.
        self._never |= dict.fromkeys(self._small, "declined")

    def __call__(
        self, round_query: RoundQuery, lost: Sequence[str] = (), attempts: int = 0
    ) -> tuple[str, ...]:
        """Return the sites that answer this round, if sites in `lost` dropped out before its last attempt.
        Raises RequestError: code `study-failed`: too few sites."""
        gone = (*self._drop_outs.get(round_query.round, ()), *lost)
        absent = dict.fromkeys(gone, "dropped out") | self._never
        self._check(absent, max(attempts - 1, 0))
        self.rounds[round_query.round :] = [
            RoundRecord(kind=NAMES[type(round_query.query)], absent=absent, attempts=attempts)
        ]
        return tuple(name for name in self.sites if name not in absent)

    def _check(self, absent: Mapping[str, str], tried: int) -> None:
        """Check that enough sites are present; the error has the reasons, but not a site's size."""
        federation = self._federation
        try:
            federation.check_present([name for name in federation.sites if name not in absent], tried)
        except RequestError as problem:
            few = f"fewer records than minimum_cohort = {federation.minimum_cohort}"
            reason_of = dict.fromkeys(self._small, few)
            reasons = "; ".join(f"{name}: {reason_of.get(name, reason)}" for name, reason in absent.items())
            raise RequestError(problem.code, f"{problem} ({reasons})") from problem
