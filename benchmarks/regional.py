"""A simulated federation of regions: coordinators that are sites of another one (docs/scale.md).

A region checks and adds up the answers of its own sites, and sends one sum and whose it is; the top adds the
regions' sums, and noise once. Integers associate: the releases are those of a federation without regions, to
the last bit. No daemon does this."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eigenveil import barrier
from eigenveil.aggregation import Contribution, aggregate, validate
from eigenveil.errors import Code, PeerError
from eigenveil.noise.source import NoiseSource
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import BlockRanks, EigenvalueVotes, PerSiteQuery, Query
from eigenveil.session import Session
from eigenveil.site.record_view import ParallelMap
from eigenveil.site.site import Site

# Whether one site can have answered this is asked of its votes, which a sum of several would not show.
SiteBySite = PerSiteQuery | EigenvalueVotes | BlockRanks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegionalAnswer:
    """Answer of a region to a round: the names of the sites whose records are in it, rising, and their sum;
    of votes not the sum, but one site's after the other.

    Shape: values (query.length,), or (m query.length,) of m sites' votes."""

    region: str
    present: tuple[str, ...]
    values: IntArray

    def parts(self, query: Query) -> dict[str, IntArray]:
        """Parts to check and add separately: each site's votes, or the sum of the region."""
        if not isinstance(query, SiteBySite):
            return {self.region: self.values}
        each = self.values.reshape(len(self.present), query.length)
        return dict(zip(self.present, map(frozen, each), strict=True))


class Region:
    """Some sites of a study and the coordinator that stands before them; each has at most `most` records."""

    def __init__(self, name: str, sites: Mapping[str, Site], *, most: int) -> None:
        self.name, self.most = name, most
        self.sites = dict(sorted(sites.items()))

    def answer(
        self, round_query: RoundQuery, present: Collection[str], apply: ParallelMap = map
    ) -> RegionalAnswer:
        """The answer of those of its sites that are `present`, each checked as a coordinator checks it.

        Neighbours: one record more at one of its sites changes the sum as it changes that site's answer.
        Privacy: none by itself: an exact sum, which is for the top alone."""
        answers: dict[str, IntArray] = {}
        for name, site in self.sites.items():
            if name in present:
                values = site.answer(round_query.query, apply, frame=round_query.priced.frame)
                check(round_query, name, values, self.most)
                answers[name] = values
        if isinstance(round_query.query, SiteBySite):
            values = frozen(np.concatenate([np.zeros(0, dtype=np.int64), *answers.values()]))
        else:
            values = aggregate(round_query, answers)
        return RegionalAnswer(region=self.name, present=tuple(answers), values=values)


def check(round_query: RoundQuery, sender: str, values: IntArray, most: int) -> None:
    """Insist that `most` records can add up to this.

    Raises:
        PeerError: code `bad-contribution`."""
    sent = Contribution(
        plan_digest=round_query.plan_digest,
        round=round_query.round,
        query=round_query.digest,
        site=sender,
        values=values,
    )
    validate(round_query, sent, range(most + 1))


def joined(
    round_query: RoundQuery,
    answers: Sequence[RegionalAnswer],
    members: Mapping[str, Collection[str]],
    most: int,
) -> tuple[IntArray, tuple[str, ...]]:
    """Total of the regions' answers, for the barrier, and the sites in it.

    `members` are the sites of each region, as the plan names them; at each at most so many records.

    Raises:
        PeerError: `bad-contribution`, a region answers twice, names one twice or a site that is not its own,
            or sends what the records of those that it names cannot add up to."""
    parts: dict[str, IntArray] = {}
    if len({one.region for one in answers}) < len(answers):
        raise PeerError(Code.BAD_CONTRIBUTION, "a region answered twice; nothing was added")
    for one in answers:
        if not set(one.present) <= set(members[one.region]) or len(set(one.present)) < len(one.present):
            raise PeerError(
                Code.BAD_CONTRIBUTION,
                f"region {one.region} answered for sites that are not its own; nothing was added",
            )
        each = 1 if isinstance(round_query.query, SiteBySite) else len(one.present)
        for sender, values in one.parts(round_query.query).items():
            check(round_query, sender, values, each * most)
            parts[sender] = values
    return aggregate(round_query, parts), tuple(sorted(name for one in answers for name in one.present))


def run_regions(
    session: Session,
    regions: Sequence[Region],
    *,
    journal: barrier.Journal,
    noise: NoiseSource,
    present: Callable[[RoundQuery], Collection[str]],
    apply: ParallelMap = map,
) -> None:
    """The protocol of `simulation.run_study` through regions; `present` says which sites answer."""
    plan = session.plan
    members = {region.name: tuple(region.sites) for region in regions}
    while (round_query := session.pending) is not None:
        here = present(round_query)
        answers = [
            region.answer(round_query, here, apply)
            for region in regions
            if any(one in here for one in region.sites)
        ]
        total, names = joined(round_query, answers, members, plan.study.max_records)
        session.feed(barrier.release(round_query, total, names, plan=plan, journal=journal, noise=noise))
