"""Algorithms of [SUB] for a subspace in or near which all records lie: exact, reference and approximate.

The records of a site are dealt into subsamples, which vote; `subspace-reference` examines every span instead.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from eigenveil.accounting.zcdp import ATTO
from eigenveil.algorithms.papers.subspace_votes import (
    HOLDER_ABSENT,
    deal_key,
    fetch_preimage,
    noised_count,
    real_basis,
    release_vote,
    subspace_estimate,
    vote_cost,
    vote_epsilon,
)
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.estimate import Steps, no_release
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.queries import BlockRanks, CellVotes, RankVotes, SpanGap, SpanVotes
from eigenveil.queries.papers import fingerprints as geometry
from eigenveil.queries.papers.fingerprints import (
    MOST_POINTS,
    MOST_SUBSAMPLES,
    MOST_SUBSETS,
    Cells,
    Pool,
    Subsamples,
)
from eigenveil.queries.papers.subspaces import TRIAL_COST, TRIALS
from eigenveil.study.grid import inexact_columns, midpoint

RANK_SHARE = 0.2  # of the epsilon for votes, for the dimension
PLENTY = 1.5  # subsamples relative to the needed votes
MANY = 1024  # largest number of subsamples by many records


def subspace_exact(plan: Plan) -> Steps:
    """Run subspace-exact: count, votes of subsamples for their span of the stated dimension, the preimage.

    Each subsample votes for the span of its records over the integers modulo 2^61 - 1; one with a record
    outside does not vote. The records must lie in the subspace on the grid: whole numbers only.
    Privacy: [P7], [P15], [P18]; votes are counted at the coordinator, which must be trusted.
    Cost: the whole epsilon and delta, 32 bytes a subsample and 8 (1 + k d) from every site, 3 rounds."""
    records, sites = yield from noised_count(plan)
    dealt = subsamples_for(plan, plan.study.components, records, sites, 1.0)
    return (yield from _elected(plan, dealt, records, 1.0))


def subspace_exact_rank(plan: Plan) -> Steps:
    """Run subspace-exact-rank: count, dimensions of the subsamples, votes at the commonest one, the preimage.

    `components` is the largest dimension considered.
    Privacy: [P7], [P15], [P17], [P18].
    Cost: the whole epsilon and delta, as `subspace_exact`, in 4 rounds."""
    records, sites = yield from noised_count(plan)
    dealt = subsamples_for(plan, plan.study.components, records, sites, 1 - RANK_SHARE)
    release = yield PricedQuery(
        query=BlockRanks(subsamples=dealt),
        micro_rho=vote_cost(plan, RANK_SHARE),
        distribution=NoiseDistribution.LAPLACE,
    )
    # SCORE(i): subsamples of dimension exactly i. Neighbours share noise, which does no harm.
    dealt = replace(dealt, rank=1 + int(np.diff(release.values).argmax()))
    return (yield from _elected(plan, dealt, records, 1 - RANK_SHARE))


def _elected(plan: Plan, dealt: Subsamples, records: float, share: float) -> Steps:
    """Return the subspace that enough subsamples span. `share`: of the epsilon for votes."""
    winner = yield from release_vote(plan, SpanVotes(subsamples=dealt), share)
    wanted = math.ceil(PLENTY * needed(plan, share) * subsample_size(max(plan.study.components, 2)))
    few = (
        f"no subspace had enough votes: about {wanted} records in one subspace of the wanted dimension are "
        "needed. Records rounded to the grid lie in none: for columns of whole numbers use bounds of a "
        "power of two on either side of 0"
    )
    unclear = (
        f"a subspace of dimension {dealt.rank} won, but {len(dealt.centre)} columns are too few to recover "
        "the real subspace from its form modulo 2^61 - 1; use fewer components or more columns"
    )
    return (yield from subspace_from_fingerprint(plan, dealt, records, winner, few, unclear))


def subspace_from_fingerprint(
    plan: Plan,
    dealt: Subsamples | Pool,
    records: float,
    winner: tuple[IntArray, IntArray],
    no_winner: str,
    unclear: str,
) -> Steps:
    """Return the subspace of a winning fingerprint; without one, no release with the reason."""
    fingerprint, holders = winner
    if not fingerprint.any():
        return no_release(plan, records, no_winner)
    form = yield from fetch_preimage(fingerprint, holders, dealt)
    if form is None:
        return no_release(plan, records, HOLDER_ABSENT)
    basis = real_basis(form.reshape(dealt.rank, -1))
    if basis is None:
        return no_release(plan, records, unclear)
    return subspace_estimate(plan, basis, records, sin_error=0.0, warnings=rounding_warnings(plan))


def subsample_size(k: int) -> float:
    """Return the mean size of a subsample that maximises the number with at least k records.

    The sizes of a keyed deal are Poisson; the best m for P(at least k of m) / m is fitted (within 5 % of the
    maximum), and is any small number at k = 1."""
    return 0.5 if k == 1 else k - 0.5 + math.sqrt(k) * math.log(k) / 2.4


def subsamples_for(plan: Plan, k: int, records: float, sites: int, share: float) -> Subsamples:
    """Return the subsamples at each site: as small as possible, at least as many as the needed votes."""
    least = PLENTY * needed(plan, share)
    wanted = min(max(records / subsample_size(k), least), max(least, MANY))
    subsamples = min(max(1, math.ceil(wanted / sites)), MOST_SUBSAMPLES)
    return Subsamples(centre=midpoint(plan.study), rank=k, count=subsamples, key=deal_key(plan))


def needed(plan: Plan, share: float) -> float:
    """Return about the equal votes that are released almost surely: the threshold plus six noise scales."""
    changed, delta = plan.study.changed_records, max(plan.atto_delta / ATTO, 1e-300)
    epsilon = max(vote_epsilon(plan) * share, 1e-9)
    return changed + changed / epsilon * (math.log(changed / (2 * delta)) + 6)


def rounding_warnings(plan: Plan) -> tuple[str, ...]:
    names = inexact_columns(plan.study)
    shown = ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")
    sentence = (
        f"the grid rounds whole numbers in {shown}; use bounds of a power of two on either side of 0 "
        "to represent them exactly"
    )
    return (sentence,) if names else ()


def subspace_reference(plan: Plan) -> Steps:
    """Run subspace-reference: count, the lead of the best span of k records, its preimage.

    Algorithm 1 of [SUB], corrected, for small k: the best span is released only if its lead is certainly
    large. Every span is examined, not a sample, so no data set can raise a failure probability.
    Privacy: [P7], [P16], [P18]; it needs all records together: one site only.
    Cost: the whole epsilon and delta, 8 (1 + k d) bytes, 3 rounds; up to 2^15 spans at the site: all of at
    most 256 records at k = 2, 59 at k = 3, 31 at k = 4."""
    records, _ = yield from noised_count(plan)
    pool = pool_for(plan)
    query = SpanGap(pool=pool)
    winner = yield from release_vote(plan, query)
    unclear = "the real subspace cannot be recovered from its form modulo 2^61 - 1; use more columns"
    reason = _no_clear_lead(plan, query)
    return (yield from subspace_from_fingerprint(plan, pool, records, winner, reason, unclear))


def pool_for(plan: Plan) -> Pool:
    """Return as many records as MOST_SUBSETS allows, or all that the site may have."""
    k, allowed, most = plan.study.components, plan.study.max_records, plan.study.components
    while most < allowed and math.comb(most + 1, k) <= MOST_SUBSETS:
        most += 1
    return Pool(
        centre=midpoint(plan.study), rank=k, max_records=most, truncated=most < allowed, key=deal_key(plan)
    )


def _no_clear_lead(plan: Plan, query: SpanGap) -> str:
    moved = query.gap_sensitivity(plan.study.neighbours) * plan.study.max_sites_per_person
    scale = moved / max(vote_epsilon(plan), 1e-9)
    delta = max(plan.atto_delta / ATTO, 1e-300)
    lead = moved + 2 * scale * math.log(1 + math.expm1(min(moved / scale, 700.0)) / (2 * delta))
    looked = (
        f"; it uses at most {query.pool.max_records} records, subspace-exact uses all"
        if query.pool.truncated
        else ""
    )
    return (
        f"no subspace of dimension {plan.study.components} has a sufficient lead: it needs "
        f"about {math.ceil(lead)} more records than any other, outside of smaller subspaces{looked}"
    )


ERROR = 0.1  # sine by which a cell rotates the subspace
SUBSAMPLES = 8.0  # the paper's C0: subsamples in units of ln(1 / delta) / epsilon
POINTS = 2  # the paper's C1: public points per dimension


def subspace_approx(plan: Plan) -> Steps:
    """Run subspace-approx: count, votes of subsamples for their cells, the preimage of the winner.

    Algorithm 2 of [SUB], with fingerprints of cells instead of a histogram over all cells, and the test of a
    majority on the noised count. A cell's width follows from the sine that it causes: about ERROR.
    Privacy: [P7], [P15], [P18]; votes are counted at the coordinator, which must be trusted.
    Cost: the whole epsilon and delta, 32 bytes a subsample and 8 (1 + 2 (k + 1) d) from every site, 3 rounds.
    """
    records, sites = yield from noised_count(plan)
    silence = math.log(1 / (plan.atto_delta / ATTO))
    wanted = SUBSAMPLES * plan.study.changed_records * silence / vote_epsilon(plan)
    dealt = cells_for(plan, wanted, sites)
    query = CellVotes(cells=dealt, min_votes=dealt.count * sites // 2 + 1)
    winner, holders = yield from release_vote(plan, query)
    return (yield from _subspace_of_cell(plan, dealt, winner, holders, records, sites))


def subspace_approx_rank(plan: Plan) -> Steps:
    """Run subspace-approx-rank: count, votes for each dimension up to `components`, the winner's preimage.
    Privacy: [P7], [P17], [P18]; three times the epsilon of one dimension, for any number of them.
    Cost: the whole epsilon and delta, 32 bytes a subsample and dimension from every site, 3 rounds."""
    records, sites = yield from noised_count(plan)
    largest = max(1, min(plan.study.components, plan.study.dimension - 1))  # dimension d always agrees
    silence = math.log(TRIALS * largest / (plan.atto_delta / ATTO))
    wanted = TRIAL_COST * SUBSAMPLES * plan.study.changed_records * silence / vote_epsilon(plan)
    dealt = cells_for(plan, wanted, sites, rank=largest)
    winner, holders = yield from release_vote(plan, RankVotes(cells=dealt))
    found = replace(dealt, rank=int(winner[0]) or largest)
    return (yield from _subspace_of_cell(plan, found, winner[1:], holders, records, sites))


def cells_for(plan: Plan, wanted: float, sites: int, rank: int | None = None) -> Cells:
    """Return an even number of subsamples at each site, `wanted` in total, with cells of width by ERROR."""
    d, k = plan.study.dimension, rank or plan.study.components
    points = min(POINTS * k + 2, MOST_POINTS)
    subsamples = min(2 * math.ceil(wanted / sites / 2), MOST_SUBSAMPLES)
    width = geometry.width_for_error(ERROR, d, k, points)
    return Cells(
        centre=midpoint(plan.study), rank=k, count=subsamples, key=deal_key(plan), points=points, width=width
    )


def _subspace_of_cell(
    plan: Plan, dealt: Cells, winner: IntArray, holders: IntArray, records: float, sites: int
) -> Steps:
    """Return the subspace of a winning fingerprint; without one, no release with the reason."""
    warning = gap_warning(dealt, records, sites)
    if not winner.any():
        agreed = f"the {dealt.count * sites} subsamples did not agree on a subspace; {warning}"
        return no_release(plan, records, f"{agreed}; use more records or fewer columns")
    cell = yield from fetch_preimage(winner, holders, dealt)
    if cell is None:
        return no_release(plan, records, HOLDER_ABSENT)
    moved = geometry.cell_centres(cell, dealt)
    directions, sine = geometry.leading_directions(moved, dealt.rank), geometry.rounding_sine(moved, dealt)
    return subspace_estimate(plan, directions, records, sin_error=sine, warnings=(warning,))


def gap_warning(dealt: Cells, records: float, sites: int) -> str:
    """Return the warning with the spectrum that the algorithm needs, from public numbers."""
    ratio = geometry.eigenvalue_ratio_limit(dealt, records / (dealt.count * sites))
    return (
        f"subspace-approx works only where lambda_{dealt.rank + 1} / lambda_{dealt.rank} is about "
        f"{ratio:.0e} or less, and has an error of about {ERROR:g} (sine)"
    )
