"""subspace-approx and subspace-approx-rank: a subspace that the records lie near, by votes of subsamples.

Source: Algorithm 2 of [SUB], with fingerprints of cells instead of a histogram over all cells, and the test
of a majority on the noised count. Subsamples must agree on their leading directions to within a cell, so
lambda_{k+1} / lambda_k must be about 1e-5 or less (`cells.ratio_for` says how much for a study). The width of
a cell is set by the error that it causes, which is public: a sine of about ERROR.
"""

from __future__ import annotations

import math
from dataclasses import replace

from eigenveil.algorithms.subspace.exact import check_rank
from eigenveil.algorithms.subspace.votes import (
    GONE,
    changed,
    count,
    deal_key,
    fetch,
    purse,
    subspace_estimate,
    voted,
)
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.estimate import Estimate, Steps, no_release
from eigenveil.protocol.plan import Plan
from eigenveil.queries import CellVotes, RankVotes
from eigenveil.queries import fingerprints as geometry
from eigenveil.queries.fingerprints import MOST_POINTS, MOST_SUBSAMPLES, Cells
from eigenveil.queries.subspaces import TRIAL_PRICE, TRIALS
from eigenveil.study.grid import midpoint

ERROR = 0.1  # sine that a cell turns the subspace by
SUBSAMPLES = 8.0  # the paper's C0: subsamples in units of ln(1 / delta) / epsilon
POINTS = 2  # the paper's C1: public points a dimension


def subspace_approx(plan: Plan) -> Steps:
    """Count, votes of subsamples for their cell, what won.

    Neighbours: as the study says.
    Privacy: [P7], [P15], [P18]; votes are counted at the coordinator, which must be trusted with them.
    Cost: the whole epsilon and delta, 32 bytes a subsample and 8 (1 + 2 (k + 1) d) from every site, 3 rounds.
    """
    check_rank(plan)
    records, sites = yield from count(plan)
    wanted = SUBSAMPLES * changed(plan) * math.log(1 / purse(plan).delta) / purse(plan).epsilon
    dealt = cells_for(plan, wanted, sites)
    query = CellVotes(cells=dealt, least=dealt.count * sites // 2 + 1)
    winner, holders = yield from voted(plan, query)
    if not winner.any():
        return no_release(plan, records, _silent(dealt, records, sites))
    cell = yield from fetch(winner, holders, dealt)
    return no_release(plan, records, GONE) if cell is None else _estimate(plan, cell, dealt, records, sites)


def subspace_approx_rank(plan: Plan) -> Steps:
    """Count, votes for every dimension up to `components` (and below d), what won.

    Neighbours: as the study says.
    Privacy: [P7], [P17], [P18]; three times the epsilon of one dimension, whatever their number.
    Cost: the whole epsilon and delta, 32 bytes a subsample and dimension from every site, 3 rounds.
    """
    check_rank(plan)
    records, sites = yield from count(plan)
    left = purse(plan)
    largest = max(1, min(plan.study.components, plan.study.dimension - 1))  # on all of R^d everybody agrees
    silence = math.log(TRIALS * largest / left.delta)
    wanted = TRIAL_PRICE * SUBSAMPLES * changed(plan) * silence / left.epsilon
    dealt = cells_for(plan, wanted, sites, rank=largest)
    winner, holders = yield from voted(plan, RankVotes(cells=dealt))
    if not winner.any():
        return no_release(plan, records, _silent(dealt, records, sites))
    found = replace(dealt, rank=int(winner[0]))
    cell = yield from fetch(winner[1:], holders, found)
    return no_release(plan, records, GONE) if cell is None else _estimate(plan, cell, found, records, sites)


def cells_for(plan: Plan, wanted: float, sites: int, rank: int | None = None) -> Cells:
    """Subsamples at each site, an even number, `wanted` in all; cells of the width that ERROR allows."""
    d, k = plan.study.dimension, rank or plan.study.components
    points = min(POINTS * k + 2, MOST_POINTS)
    subsamples = min(2 * math.ceil(wanted / sites / 2), MOST_SUBSAMPLES)
    width = geometry.width_for(ERROR, d, k, points)
    return Cells(
        centre=midpoint(plan.study), rank=k, count=subsamples, key=deal_key(plan), points=points, width=width
    )


def _estimate(plan: Plan, cell: IntArray, dealt: Cells, records: float, sites: int) -> Estimate:
    moved = geometry.middle_of(cell, dealt)
    return subspace_estimate(
        plan,
        geometry.leading(moved, dealt.rank),
        records,
        sin_error=geometry.error_of(moved, dealt),
        warnings=(gap_warning(dealt, records, sites),),
    )


def gap_warning(dealt: Cells, records: float, sites: int) -> str:
    """What the algorithm needs of the spectrum, from public numbers."""
    ratio = geometry.ratio_for(dealt, records / (dealt.count * sites))
    return (
        f"subspace-approx works only where lambda_{dealt.rank + 1} / lambda_{dealt.rank} is about "
        f"{ratio:.0e} or less, and turns the subspace by a sine of about {ERROR:g}"
    )


def _silent(dealt: Cells, records: float, sites: int) -> str:
    return (
        f"the {dealt.count * sites} subsamples did not agree on a subspace; "
        f"{gap_warning(dealt, records, sites)}; more records or fewer columns allow for more"
    )
