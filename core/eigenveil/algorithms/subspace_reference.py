"""subspace-reference: Algorithm 1 of [SUB], repaired, for small k and one site.

Printed, it adds noise to every span that records have and releases the best: with no gap, the span of a few
random records. Here the best is released only if its lead over the second best is wide for sure; and every
span is looked at, not a sample of them, so there is no failure probability that a data set could raise.
"""

from __future__ import annotations

import math

from eigenveil.algorithms.estimate import Steps
from eigenveil.algorithms.subspace_exact import check_rank, rounding_warnings
from eigenveil.algorithms.subspaces import (
    GONE,
    changed,
    count,
    fetch,
    nothing,
    purse,
    subspace_estimate,
    voted,
)
from eigenveil.asks import SpanGap
from eigenveil.asks.subspaces import MOST_SUBSETS, Pool
from eigenveil.errors import Code, RequestError
from eigenveil.grid import midpoint
from eigenveil.lattice import real_basis
from eigenveil.plan import Plan


def subspace_reference(plan: Plan) -> Steps:
    """Count, the lead of the best span of k records, what it stands for.

    Neighbours: as the study says.
    Privacy: [P7], [P16], [P18]; it works on all records at once: one site only.
    Cost: the whole epsilon and delta, 8 (1 + k d) bytes, 3 rounds; up to max_records^k / k! spans at the
    site.

    Raises:
        RequestError: code `bad-study`: max_records allows for too many spans.
    """
    check_rank(plan)
    study = plan.study
    if math.comb(study.max_records, study.components) > MOST_SUBSETS:
        raise RequestError(
            Code.BAD_STUDY,
            f"subspace-reference looks at every span of {study.components} of up to {study.max_records} "
            f"records, more than {MOST_SUBSETS}; lower max_records, or use subspace-exact",
        )
    records, _ = yield from count(plan)
    pool = Pool(centre=midpoint(study), rank=study.components)
    winner, holders = yield from voted(plan, SpanGap(pool=pool))
    if not winner.any():
        return nothing(plan, records, _silent(plan))
    form = yield from fetch(winner, holders, pool)
    if form is None:
        return nothing(plan, records, GONE)
    basis = real_basis(form.reshape(pool.rank, -1))
    if basis is None:
        why = "the best subspace cannot be told from its form modulo 2^61 - 1; use more columns"
        return nothing(plan, records, why)
    return subspace_estimate(plan, basis, records, sin_error=0.0, warnings=rounding_warnings(plan))


def _silent(plan: Plan) -> str:
    left, persons = purse(plan), changed(plan)
    scale = persons / max(left.epsilon, 1e-9)
    lead = persons + 2 * scale * math.log(1 + math.expm1(persons / scale) / (2 * max(left.delta, 1e-300)))
    return (
        f"no subspace of dimension {plan.study.components} leads by enough records: about {math.ceil(lead)} "
        "more in it, outside any smaller one, than in any other would do"
    )
