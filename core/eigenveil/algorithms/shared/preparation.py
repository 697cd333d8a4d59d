"""Preparation of most algorithms: the number of records, the mean and the norms, within public bounds [P25].

Releases are noised, so an algorithm may compute any query; and a coordinator may state false releases to aim
the next query at one person. The bounds of every query hold whatever the releases: a sum covers every record,
because even the farthest record counts after clipping; a centre lies within the public bounds; a histogram
has the bins of the grid."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.accounting.zcdp import Neighbours, mu
from eigenveil.algorithms.shared.clip_radius import (
    NormGrid,
    NormHistogram,
    choose_radius,
    read_histogram,
)
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.estimate import StepsTo
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import TOO_LITTLE, NoiseDistribution, PricedQuery
from eigenveil.protocol.query_limits import share_variance_factor
from eigenveil.queries import AdditiveQuery, ClippedSum, Count, Gram, Query, RowNorms, centre_of, columns_of
from eigenveil.queries.limits import BINS, WEIGHT, ceil_sqrt, least_row_radius, require, row_norm_limit
from eigenveil.study.algorithm import Algorithm, CustomAlgorithm
from eigenveil.study.composition import Composition
from eigenveil.study.grid import S, midpoint, steps
from eigenveil.study.radius import PublicNorm, stated_norm
from eigenveil.study.study import Study


def box(study: Study) -> IntArray:
    """Return the distance of the farthest grid point of each column from its middle. Shape: (d,)."""
    return np.ceil(np.array([column.half_range for column in study.columns]) / steps(study)).astype(np.int64)


def check_bounds(query: Query, most: IntArray) -> None:
    """Check a query against the public bounds. Shape: most (d,), its study's `box`.

    In any frame rows lie in the box of the grid, which equals the bounds for scaled columns.

    Raises:
        RequestError: code `plan-overflow`."""
    centre = centre_of(query)
    require(columns_of(query) in {None, most.size}, "the query and the study differ in the number of columns")
    if centre is not None:
        require(bool((np.abs(centre) <= most).all()), "a centre lies outside of the public bounds")
    query.check_honest()


# Revision from which on an algorithm keeps fractions of grid steps: those of the mean, which its centre
# rounds off, and those of a cross covariance's rests. Its stated error then includes the rounding left. A
# refinement of that revision also gives fewer directions weights of their own, and turns by `arrow`.
FRACTIONS: dict[Algorithm | CustomAlgorithm, int] = {
    Algorithm.AUTO: 2,
    Algorithm.GAUSS_COV: 3,
    Algorithm.REFINED_COV: 3,
    Algorithm.REFINED_PCA: 2,
    Algorithm.DP_PCA: 3,
}
SMALL_SAMPLE = 5000
UNCLIPPED = 1.0  # the study's radius "none"
LEAST_COUNT = 10.0  # least noised count, so that a division by it is harmless


def keeps_fractions(plan: Plan) -> bool:
    """Return True if the plan's revision keeps fractions of grid steps."""
    return plan.revision >= FRACTIONS.get(plan.algorithm, math.inf)


def share_of(total: int, share: float) -> int:
    """Return a share of the budget in micro-rho, rounded down. Raises RequestError: code `bad-study`, the
    share is 0."""
    found = math.floor(total * share)
    if found < 1 <= total and share > 0:
        raise RequestError(Code.BAD_STUDY, TOO_LITTLE)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationShares:
    """Cost of the preparations, in shares of rho, or of epsilon under basic composition.

    `steps`: for the norms and for the sum of each step of the mean, as shares of the mean's; `small_mean`:
    that of a small sample. `norms`: where a study does not centre. `final_norms`: extra share of the last
    norms, if they also give a radius for more than the mean. `radius`: for the norms that give the radius of
    a Gram matrix. `scales`: for histograms and moments of the columns."""

    count: float = 0.01
    mean: float = 0.05
    small_mean: float = 0.15
    # One step is twice as bad for data away from the middle of the box; three are not better (measured).
    steps: tuple[tuple[float, float], ...] = ((0.05, 0.15), (0.10, 0.70))
    norms: float = 0.02
    final_norms: float = 0.0
    radius: float = 0.05
    scales: tuple[float, float] = (0.03, 0.07)


# Noise is inverse to a share of epsilon, but to the root of a share of rho: small queries need more epsilon.
BASIC_SHARES = PreparationShares(
    count=0.02,
    mean=0.15,
    small_mean=0.25,
    steps=((0.15, 0.20), (0.20, 0.45)),
    norms=0.08,
    radius=0.08,
    scales=(0.10, 0.15),
)


def shares(plan: Plan) -> PreparationShares:
    """Return the shares of the preparations under the plan's composition."""
    return BASIC_SHARES if plan.composition is Composition.BASIC else PreparationShares()


def noise_distribution(plan: Plan) -> NoiseDistribution:
    """Return the noise of additive queries: Laplace under basic composition, as only it is pure."""
    return NoiseDistribution.LAPLACE if plan.composition is Composition.BASIC else NoiseDistribution.GAUSSIAN


def cost_of_share(plan: Plan, share: float) -> int:
    """Return the cost of a share of the plan's budget in micro-rho, rounded down. A share of rho, or of
    epsilon = sqrt(2 rho) under basic composition, less 1e-9 of it for rounding the sum."""
    if plan.composition is Composition.BASIC:
        return share_of(plan.micro_rho, (share * (1 - 1e-9)) ** 2)
    return share_of(plan.micro_rho, share)


def query_at_share(plan: Plan, query: Query, share: float) -> PricedQuery:
    """Return a query at a share of the plan's budget, with the noise that its composition allows."""
    return PricedQuery(
        query=query, micro_rho=cost_of_share(plan, share), distribution=noise_distribution(plan)
    )


def effective_mu(plan: Plan, micro_rho: int) -> float:
    """Return a sensitivity of 1 in standard deviations of the drawn noise, if all invited sites answer. That
    is mu, or less under secure aggregation, where all shares together exceed the required noise [P32]."""
    return mu(micro_rho) / math.sqrt(share_variance_factor(plan.study, len(plan.study.federation.sites)))


def noise_scale_ratio(plan: Plan, query: AdditiveQuery) -> float:
    """Return the noise sd of an entry relative to Gaussian noise. 1 for Gaussian noise, sqrt 2 l1 / l2 for
    Laplace noise, and sqrt 2 more off the diagonal of a Gram matrix [P3]."""
    if noise_distribution(plan) is NoiseDistribution.GAUSSIAN:
        return math.sqrt(2) if isinstance(query, Gram) and query.flat else 1.0
    one = Neighbours.ADD_REMOVE
    ratio = math.sqrt(2) * query.l1(one) / math.sqrt(query.l2_squared(one))
    return math.sqrt(2) * ratio if isinstance(query, Gram) else ratio


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationEstimate:
    """Location of a plan's records: noised count, public centre (integer, (d,)), norms about the last one.

    `squared_mean_error`: expected squared distance from `mean` to the records' own, in analysis units; 0 if
    the study does not centre. `squared_centre_error`: that of an error e whose e e^T second moments about the
    centre have left, above `squared_mean_error` where `offset` is large. `relative_count_noise`: the noise sd
    of the count relative to it. `left`: the share of the budget that is left. `offset` (d,): the released
    mean minus the centre, in analysis units, below half a step; 0 where fractions are not kept. Second
    moments about the centre exceed those about the mean by offset offset^T."""

    plan: Plan
    records: float
    centre: IntArray
    norms: NormHistogram
    left: float
    relative_count_noise: float
    offset: FloatArray
    squared_mean_error: float = 0.0
    squared_centre_error: float = 0.0

    @property
    def mean(self) -> FloatArray:
        """Return the mean in analysis units. Shape: (d,)."""
        return self.centre / S + self.offset


def locate(plan: Plan, cost: PreparationShares | None = None) -> StepsTo[LocationEstimate]:
    """Return the noised count and, if the study centres, the private mean.

    Privacy: [P7] post-processing of the releases.
    Cost: `cost`, by default 1 % of the budget, and 5 % (15 % below 5,000 records) for the mean; under basic
    composition 2 % and 15 % (25 %) of epsilon. Without centring and clipping only the count is queried."""
    cost = cost or shares(plan)
    release = yield query_at_share(plan, Count(), cost.count)
    records = max(float(release.values[0]), LEAST_COUNT)
    centre, most = midpoint(plan.study), stated_norm(plan.study.radius)
    distribution = noise_distribution(plan)
    # With public radii and no centring no norms are queried: no bin is significant.
    found = LocationEstimate(
        plan=plan,
        records=records,
        centre=centre,
        norms=NormHistogram(grid=_reach(centre, most), counts=np.zeros(BINS)),
        left=1 - cost.count,
        relative_count_noise=release.sigma / records,
        offset=np.zeros(centre.size),
    )
    if not plan.study.centring:
        if has_public_radius(plan):
            return found
        share = max(cost.norms, cost.final_norms)
        norms = yield from row_norms(centre, cost_of_share(plan, share), distribution, most)
        return replace(found, norms=norms, left=found.left - share)
    share = cost.small_mean if records < SMALL_SAMPLE else cost.mean
    for norm_share, sum_share in cost.steps:
        norms_cost = cost_of_nested_share(plan, share, norm_share)
        if cost.final_norms and (norm_share, sum_share) == cost.steps[-1]:
            norms_cost = cost_of_share(plan, share * norm_share + cost.final_norms)
        norms = yield from row_norms(found.centre, norms_cost, distribution, most)
        found = replace(found, norms=norms)
        found = yield from _step(found, cost_of_nested_share(plan, share, sum_share))
    return replace(found, left=found.left - (share + cost.final_norms))


def cost_of_nested_share(plan: Plan, share: float, inner: float) -> int:
    """Return the cost of a share of a share; the order of the products is fixed, so costs are exact."""
    if plan.composition is Composition.BASIC:
        return cost_of_share(plan, share * inner)
    return math.floor(plan.micro_rho * share * inner)


def has_public_radius(plan: Plan) -> bool:
    """Return True if the radius of rows is public: no clipping, or a stated norm about the public middle.

    About a private mean the limit is that norm plus the mean's, which few rows reach: a histogram is better.
    """
    radius = plan.study.radius
    return radius == UNCLIPPED or (isinstance(radius, PublicNorm) and not plan.study.centring)


def _reach(centre: IntArray, most: float) -> NormGrid:
    # Roots of integers, so that every machine computes the same edges.
    return NormGrid(top=min(math.sqrt(centre.size), most) + math.sqrt(int((centre**2).sum())) / S)


def row_norms(
    centre: IntArray,
    micro_rho: int,
    noise_distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN,
    most: float = math.inf,
) -> StepsTo[NormHistogram]:
    """Return the histogram of norms about a public centre, on a grid with a public top. No row has a norm
    above `most`, in analysis units."""
    grid = _reach(centre, most)
    query = RowNorms(centre=centre, edges=grid.edges(S))
    return read_histogram(
        (yield PricedQuery(query=query, micro_rho=micro_rho, distribution=noise_distribution)), grid
    )


def _step(found: LocationEstimate, micro_rho: int) -> StepsTo[LocationEstimate]:
    """Move the centre by the shrunk clipped mean of the rows about it.

    A step of square L, with noise of square B = d sigma^2, is shrunk by a = 1 - (B / L)^2, at least 0. The
    factor 1 - B / L of James & Stein 1961 has a smaller error, but more in one direction, which rotates
    components further (measured). The error is a^2 B + (1 - a)^2 (L - B), where L determines B up to
    sqrt(2 / d) of it, plus the part of the step that the count and clipping remove."""
    plan, centre, norms, d = found.plan, found.centre, found.norms, found.centre.size
    noise = 4 * math.sqrt(d) / effective_mu(plan, micro_rho)
    noise *= noise_scale_ratio(plan, ClippedSum(centre=centre, radius=S))
    radius = choose_radius(norms, None, noise, power=1, quadratic=True)
    query = ClippedSum(centre=centre, radius=row_radius(radius, d))
    release = yield PricedQuery(query=query, micro_rho=micro_rho, distribution=noise_distribution(plan))
    step = release.values / (WEIGHT * found.records)
    length = float((step**2).sum())
    noise_energy = d * (release.sigma / (WEIGHT * found.records)) ** 2
    retained = max(0.0, 1 - (noise_energy / length) ** 2) if length > 0 else 0.0
    most = box(plan.study)
    mean = centre + retained * step
    moved = np.clip(np.rint(mean), -most, most)
    missed = math.hypot(found.relative_count_noise, 1 - norms.retained(query.radius / S, power=1))
    left = retained**2 * noise_energy + (1 - retained) ** 2 * max(length - noise_energy, 0.0)
    error = left + math.sqrt(2 / d) * noise_energy + (missed * retained) ** 2 * length
    centre = frozen(moved.astype(np.int64))
    if not keeps_fractions(plan):
        size = error / S**2
        return replace(found, centre=centre, squared_mean_error=size, squared_centre_error=size)
    offset = np.clip(mean - moved, -0.5, 0.5)
    # The error e adds e e^T to the second moments, and e offset^T where the offset is the longer one.
    moved_by = math.sqrt(error * (error + 2 * float(offset @ offset)))
    return replace(
        found,
        centre=centre,
        offset=offset / S,
        squared_mean_error=error / S**2,
        squared_centre_error=moved_by / S**2,
    )


def signal_to_noise(start: LocationEstimate) -> float:
    """Return mu n / sqrt(d k), the signal-to-noise ratio of the data."""
    plan = start.plan
    size = plan.study.dimension * plan.study.components
    return effective_mu(plan, plan.micro_rho) * start.records / math.sqrt(size)


def public_radius(plan: Plan, centre: IntArray) -> int:
    """Return the largest norm of a row about a centre, by public bounds and a stated norm, in grid units."""
    reach = box(plan.study) + np.abs(centre)
    most = min(math.isqrt(int((reach**2).sum())) + 1, row_norm_limit(centre.size))
    stated = stated_norm(plan.study.radius) * S
    return most if stated >= most else min(most, math.floor(stated) + ceil_sqrt(int((centre**2).sum())))


def row_radius(radius: float, d: int) -> int:
    """Return a row radius in grid units, within the limits of a query."""
    return min(max(math.floor(radius * S), least_row_radius(d)), row_norm_limit(d))
