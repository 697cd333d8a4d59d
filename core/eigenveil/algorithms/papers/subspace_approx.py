"""subspace-approx and subspace-approx-rank: a subspace near the records, by votes of subsamples.

Source: Algorithm 2 of [SUB], with fingerprints of cells instead of a histogram over all cells, and the test
of a majority on the noised count. Subsamples must agree on their leading directions to within a cell, so
lambda_{k+1} / lambda_k must be about 1e-5 or less (see `fingerprints.eigenvalue_ratio_limit`). The width of a
cell follows from the public error that it causes: a sine of about ERROR.
"""

from __future__ import annotations

import math
from dataclasses import replace

from eigenveil.algorithms.papers.subspace_exact import check_rank
from eigenveil.algorithms.papers.subspace_votes import (
    HOLDER_ABSENT,
    changed_subsamples,
    deal_key,
    fetch_preimage,
    noised_count,
    release_vote,
    subspace_estimate,
    vote_budget,
)
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.estimate import Estimate, Steps, no_release
from eigenveil.protocol.plan import Plan
from eigenveil.queries import CellVotes, RankVotes
from eigenveil.queries.papers import fingerprints as geometry
from eigenveil.queries.papers.fingerprints import MOST_POINTS, MOST_SUBSAMPLES, Cells
from eigenveil.queries.papers.subspaces import TRIAL_COST, TRIALS
from eigenveil.study.grid import midpoint

ERROR = 0.1  # sine by which a cell rotates the subspace
SUBSAMPLES = 8.0  # the paper's C0: subsamples in units of ln(1 / delta) / epsilon
POINTS = 2  # the paper's C1: public points per dimension


def subspace_approx(plan: Plan) -> Steps:
    """Run subspace-approx: count, votes of subsamples for their cells, the preimage of the winner.

    Neighbours: as in the study.
    Privacy: [P7], [P15], [P18]; votes are counted at the coordinator, which must be trusted.
    Cost: the whole epsilon and delta, 32 bytes a subsample and 8 (1 + 2 (k + 1) d) from every site, 3 rounds.
    """
    check_rank(plan)
    records, sites = yield from noised_count(plan)
    wanted = (
        SUBSAMPLES
        * changed_subsamples(plan)
        * math.log(1 / vote_budget(plan).delta)
        / vote_budget(plan).epsilon
    )
    dealt = cells_for(plan, wanted, sites)
    query = CellVotes(cells=dealt, least=dealt.count * sites // 2 + 1)
    winner, holders = yield from release_vote(plan, query)
    if not winner.any():
        return no_release(plan, records, _no_agreement(dealt, records, sites))
    cell = yield from fetch_preimage(winner, holders, dealt)
    return (
        no_release(plan, records, HOLDER_ABSENT)
        if cell is None
        else _estimate(plan, cell, dealt, records, sites)
    )


def subspace_approx_rank(plan: Plan) -> Steps:
    """Run subspace-approx-rank: count, votes for each dimension up to `components`, the winner's preimage.

    Neighbours: as in the study.
    Privacy: [P7], [P17], [P18]; three times the epsilon of one dimension, for any number of them.
    Cost: the whole epsilon and delta, 32 bytes a subsample and dimension from every site, 3 rounds.
    """
    check_rank(plan)
    records, sites = yield from noised_count(plan)
    left = vote_budget(plan)
    largest = max(1, min(plan.study.components, plan.study.dimension - 1))  # dimension d always agrees
    silence = math.log(TRIALS * largest / left.delta)
    wanted = TRIAL_COST * SUBSAMPLES * changed_subsamples(plan) * silence / left.epsilon
    dealt = cells_for(plan, wanted, sites, rank=largest)
    winner, holders = yield from release_vote(plan, RankVotes(cells=dealt))
    if not winner.any():
        return no_release(plan, records, _no_agreement(dealt, records, sites))
    found = replace(dealt, rank=int(winner[0]))
    cell = yield from fetch_preimage(winner[1:], holders, found)
    return (
        no_release(plan, records, HOLDER_ABSENT)
        if cell is None
        else _estimate(plan, cell, found, records, sites)
    )


def cells_for(plan: Plan, wanted: float, sites: int, rank: int | None = None) -> Cells:
    """Return an even number of subsamples at each site, `wanted` in total, with cells of width by ERROR."""
    d, k = plan.study.dimension, rank or plan.study.components
    points = min(POINTS * k + 2, MOST_POINTS)
    subsamples = min(2 * math.ceil(wanted / sites / 2), MOST_SUBSAMPLES)
    width = geometry.width_for_error(ERROR, d, k, points)
    return Cells(
        centre=midpoint(plan.study), rank=k, count=subsamples, key=deal_key(plan), points=points, width=width
    )


def _estimate(plan: Plan, cell: IntArray, dealt: Cells, records: float, sites: int) -> Estimate:
    moved = geometry.cell_centres(cell, dealt)
    return subspace_estimate(
        plan,
        geometry.leading_directions(moved, dealt.rank),
        records,
        sin_error=geometry.rounding_sine(moved, dealt),
        warnings=(gap_warning(dealt, records, sites),),
    )


def gap_warning(dealt: Cells, records: float, sites: int) -> str:
    """Return the warning with the spectrum that the algorithm needs, from public numbers."""
    ratio = geometry.eigenvalue_ratio_limit(dealt, records / (dealt.count * sites))
    return (
        f"subspace-approx works only where lambda_{dealt.rank + 1} / lambda_{dealt.rank} is about "
        f"{ratio:.0e} or less, and has an error of about {ERROR:g} (sine)"
    )


def _no_agreement(dealt: Cells, records: float, sites: int) -> str:
    return (
        f"the {dealt.count * sites} subsamples did not agree on a subspace; "
        f"{gap_warning(dealt, records, sites)}; use more records or fewer columns"
    )
