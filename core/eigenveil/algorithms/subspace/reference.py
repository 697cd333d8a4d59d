"""subspace-reference: Algorithm 1 of [SUB], repaired, for small k and one site.

Printed, it adds noise to every span that records have and releases the best: with no gap, the span of a few
random records. Here the best is released only if its lead over the second best is wide for sure; and every
span is looked at, not a sample of them, so there is no failure probability that a data set could raise.
"""

from __future__ import annotations

import math

from eigenveil.algorithms.subspace.exact import check_rank, spanned
from eigenveil.algorithms.subspace.votes import count, deal_key, purse, voted
from eigenveil.protocol.estimate import Steps
from eigenveil.protocol.plan import Plan
from eigenveil.queries import SpanGap
from eigenveil.queries.fingerprints import MOST_SUBSETS, Pool
from eigenveil.study.grid import midpoint


def subspace_reference(plan: Plan) -> Steps:
    """Count, the lead of the best span of k records, what it stands for.

    Neighbours: as the study says.
    Privacy: [P7], [P16], [P18]; it works on all records at once: one site only.
    Cost: the whole epsilon and delta, 8 (1 + k d) bytes, 3 rounds; up to 2^15 spans at the site: all of at
    most 256 records at k = 2, 59 at k = 3, 31 at k = 4.
    """
    check_rank(plan)
    records, _ = yield from count(plan)
    pool = pool_for(plan)
    query = SpanGap(pool=pool)
    winner = yield from voted(plan, query)
    unclear = "the best subspace cannot be told from its form modulo 2^61 - 1; use more columns"
    return (yield from spanned(plan, pool, records, winner, _silent(plan, query), unclear))


def pool_for(plan: Plan) -> Pool:
    """As many records as MOST_SUBSETS allows, or all that the site may have."""
    k, allowed, most = plan.study.components, plan.study.max_records, plan.study.components
    while most < allowed and math.comb(most + 1, k) <= MOST_SUBSETS:
        most += 1
    return Pool(centre=midpoint(plan.study), rank=k, most=most, cut=most < allowed, key=deal_key(plan))


def _silent(plan: Plan, query: SpanGap) -> str:
    left = purse(plan)
    moved = query.swing(plan.study.neighbours) * plan.study.max_sites_per_person
    scale = moved / max(left.epsilon, 1e-9)
    lead = moved + 2 * scale * math.log(
        1 + math.expm1(min(moved / scale, 700.0)) / (2 * max(left.delta, 1e-300))
    )
    looked = (
        f"; it looks at {query.pool.most} records at most, subspace-exact at all" if query.pool.cut else ""
    )
    return (
        f"no subspace of dimension {plan.study.components} leads by enough records: about {math.ceil(lead)} "
        f"more in it, outside any smaller one, than in any other would do{looked}"
    )
