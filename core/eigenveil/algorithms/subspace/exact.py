"""subspace-exact and subspace-exact-rank: the subspace that all records lie in, exactly, from few of them.

Source: [SUB], made practical: the records of a site are dealt into subsamples, and each votes for the span
of its records over the integers modulo 2^61 - 1. Where all records lie in one subspace of dimension k, each
subsample of enough of them votes for it, whatever d is; one with a record outside does not vote.

Whole numbers only: what rounding to the grid adds, a part in 8192 of a column's bounds, gives every subsample
a subspace of its own. Records that lie in a subspace must do so on the grid (eigenveil.whole).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from eigenveil.algorithms.subspace.lattice import real_basis
from eigenveil.algorithms.subspace.votes import (
    GONE,
    changed,
    count,
    deal_key,
    fetch,
    purse,
    subspace_estimate,
    voted,
    votes_needed,
)
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.estimate import Steps, no_release
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, PricedQuery
from eigenveil.queries import BlockRanks, SpanVotes
from eigenveil.queries.fingerprints import MOST_RANK, MOST_SUBSAMPLES, Pool, Subsamples
from eigenveil.study.grid import inexact_columns, midpoint

RANK_SHARE = 0.2  # of the epsilon for votes, for the dimension
PLENTY = 1.5  # subsamples, over the votes that are needed
MANY = 1024  # subsamples that more records do not make more of


def subspace_exact(plan: Plan) -> Steps:
    """Count, votes of subsamples for their span, what won; of the dimension that the study states.

    Neighbours: as the study says.
    Privacy: [P7], [P15], [P18]; votes are counted at the coordinator, which must be trusted with them.
    Cost: the whole epsilon and delta, 32 bytes a subsample and 8 (1 + k d) from every site, 3 rounds.
    """
    check_rank(plan)
    records, sites = yield from count(plan)
    dealt = subsamples_for(plan, plan.study.components, records, sites, 1.0)
    return (yield from _elected(plan, dealt, records, 1.0))


def subspace_exact_rank(plan: Plan) -> Steps:
    """Count, how many subsamples span which dimension, votes for the commonest one's span, what won.

    `components` is the largest dimension considered.

    Neighbours: as the study says.
    Privacy: [P7], [P15], [P17], [P18].
    Cost: the whole epsilon and delta, as `subspace_exact`, in 4 rounds.
    """
    check_rank(plan)
    records, sites = yield from count(plan)
    dealt = subsamples_for(plan, plan.study.components, records, sites, 1 - RANK_SHARE)
    price = purse(plan).share(RANK_SHARE)
    release = yield PricedQuery(query=BlockRanks(subsamples=dealt), micro_rho=price, law=NoiseLaw.LAPLACE)
    # SCORE(i): subsamples of dimension exactly i. The noise of neighbours is shared, which costs nothing.
    score = np.diff(release.values)
    dealt = replace(dealt, rank=1 + int(score.argmax()))
    return (yield from _elected(plan, dealt, records, 1 - RANK_SHARE))


def _elected(plan: Plan, dealt: Subsamples, records: float, share: float) -> Steps:
    """The subspace that enough subsamples span. `share`: of the epsilon for votes."""
    winner = yield from voted(plan, SpanVotes(subsamples=dealt), share)
    return (yield from spanned(plan, dealt, records, winner, _silent(plan, share), _unclear(dealt)))


def spanned(
    plan: Plan,
    dealt: Subsamples | Pool,
    records: float,
    winner: tuple[IntArray, IntArray],
    silent: str,
    unclear: str,
) -> Steps:
    """The subspace that `voted` found; or, in words, that there is none or that its form does not tell it."""
    fingerprint, holders = winner
    if not fingerprint.any():
        return no_release(plan, records, silent)
    form = yield from fetch(fingerprint, holders, dealt)
    if form is None:
        return no_release(plan, records, GONE)
    basis = real_basis(form.reshape(dealt.rank, -1))
    if basis is None:
        return no_release(plan, records, unclear)
    return subspace_estimate(plan, basis, records, sin_error=0.0, warnings=rounding_warnings(plan))


def check_rank(plan: Plan) -> None:
    """Raises: RequestError: more components than spans are taken of."""
    if plan.study.components > MOST_RANK:
        raise RequestError(Code.BAD_STUDY, f"subspaces are found up to {MOST_RANK} components; ask for fewer")


def subsample_size(k: int) -> float:
    """Records a subsample on average that give the most of at least k records, from a fixed number.

    A keyed deal gives subsamples of Poisson many records; the best m for P(at least k of m) / m is fitted
    (within 5 % of the most), and anywhere small at k = 1.
    """
    return 0.5 if k == 1 else k - 0.5 + math.sqrt(k) * math.log(k) / 2.4


def subsamples_for(plan: Plan, k: int, records: float, sites: int, share: float) -> Subsamples:
    """Subsamples at each site: as small as they can be, but never fewer than the votes that are needed."""
    least = PLENTY * needed(plan, share)
    most = max(least, MANY)
    wanted = min(max(records / subsample_size(k), least), most)
    subsamples = min(max(1, math.ceil(wanted / sites)), MOST_SUBSAMPLES)
    return Subsamples(centre=midpoint(plan.study), rank=k, count=subsamples, key=deal_key(plan))


def needed(plan: Plan, share: float) -> float:
    left = purse(plan)
    persons = changed(plan)
    return votes_needed(max(left.epsilon * share, 1e-9), max(left.delta, 1e-300), persons, persons)


def _silent(plan: Plan, share: float) -> str:
    k = plan.study.components
    wanted = math.ceil(PLENTY * needed(plan, share) * subsample_size(max(k, 2)))
    return (
        f"no subspace had enough votes: about {wanted} records that all lie in one subspace of the dimension "
        "asked for would do. Records that were rounded to the grid lie in none: give columns of whole "
        "numbers bounds of a power of two on either side of 0"
    )


def _unclear(dealt: Subsamples) -> str:
    return (
        f"a subspace of dimension {dealt.rank} won, but {len(dealt.centre)} columns are too few to tell from "
        "its form modulo 2^61 - 1 which real subspace it is; ask for fewer components or use more columns"
    )


def rounding_warnings(plan: Plan) -> tuple[str, ...]:
    names = inexact_columns(plan.study)
    if not names:
        return ()
    shown = ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")
    sentence = (
        f"the grid rounds whole numbers in {shown}; bounds of a power of two on either side of 0 "
        "keep them exact"
    )
    return (sentence,)
