"""What most algorithms begin with: the number of records, the mean, and how far the records lie from it."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import mu
from eigenveil.algorithms.shared.bounds import box
from eigenveil.algorithms.shared.clip_radius import Balance, Grid, Histogram, choose, read_histogram
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.noise_ratio import excess
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import TOO_LITTLE, NoiseLaw, PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import Additive, ClippedSum, Count, Gram, Query, RowNorms
from eigenveil.queries.limits import BINS, WEIGHT, least_row_radius, root_up, row_norm_limit
from eigenveil.study.grid import S, midpoint
from eigenveil.study.price import Composition
from eigenveil.study.radius import PublicNorm, longest

COUNT_SHARE = 0.01
MEAN_SHARE, SMALL_MEAN_SHARE, SMALL = 0.05, 0.15, 5000
# Two steps, each a histogram of norms and a clipped sum, as shares of the mean's budget. One step is
# twice as bad when the data lie off the middle of the box; three are not better (measured).
MEAN_STEPS = ((0.05, 0.15), (0.10, 0.70))
NORMS_SHARE = 0.02  # for the norms of a study that does not centre
UNCLIPPED = 1.0  # the study's radius "none"
FEWEST = 10.0  # a noised count below it is taken as this, so that dividing by it stays harmless


def part(total: int, share: float) -> int:
    """A share of the budget in micro-rho, rounded down.

    Raises:
        RequestError: code `bad-study`, nothing is left of it.
    """
    found = math.floor(total * share)
    if found < 1 <= total and share > 0:
        raise RequestError(Code.BAD_STUDY, TOO_LITTLE)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What the preparations cost, in shares of rho, or of epsilon where epsilons add up.

    `steps`: for the norms and for the sum of each step of the mean, as shares of the mean's. `last`: what the
    last norms asked get beside, where a radius for more than the mean is read off them.
    """

    count: float = COUNT_SHARE
    mean: float = MEAN_SHARE
    small_mean: float = SMALL_MEAN_SHARE
    steps: tuple[tuple[float, float], ...] = MEAN_STEPS
    norms: float = NORMS_SHARE
    last: float = 0.0


# A share of epsilon buys the square of what the same share of rho does, so small questions need more of it.
EPSILONS = Shares(count=0.02, mean=0.15, small_mean=0.25, steps=((0.15, 0.20), (0.20, 0.45)), norms=0.08)


def shares(plan: Plan) -> Shares:
    """The shares of the preparations under the plan's composition."""
    return EPSILONS if plan.composition is Composition.BASIC else Shares()


def law(plan: Plan) -> NoiseLaw:
    """The noise of additive questions: Laplace wherever epsilons are added up, as only it is pure."""
    return NoiseLaw.LAPLACE if plan.composition is Composition.BASIC else NoiseLaw.GAUSSIAN


def price(plan: Plan, share: float) -> int:
    """A share of the plan's budget in micro-rho, rounded down: of rho, or of epsilon = sqrt(2 rho) where
    epsilons add up (less 1e-9 of it, which pays for rounding their sum up)."""
    if plan.composition is Composition.BASIC:
        return part(plan.micro_rho, (share * (1 - 1e-9)) ** 2)
    return part(plan.micro_rho, share)


def priced(plan: Plan, query: Query, share: float) -> PricedQuery:
    """A question at a share of the plan's budget, with the noise that its composition allows."""
    return PricedQuery(query=query, micro_rho=price(plan, share), law=law(plan))


def drawn_mu(plan: Plan, micro_rho: int) -> float:
    """What a sensitivity of 1 is in standard deviations of the noise that is drawn at a price, if all invited
    sites answer: mu, or less under secure aggregation, where all shares together are more than due [P32]."""
    return mu(micro_rho) / math.sqrt(excess(plan.study, len(plan.study.federation.sites)))


def louder(plan: Plan, query: Additive) -> float:
    """How much larger the sd of an entry is than with Gaussian noise: 1 where rho adds up, sqrt 2 l1 / l2 for
    Laplace noise, and sqrt 2 more off the diagonal of a Gram matrix [P3]."""
    if law(plan) is NoiseLaw.GAUSSIAN:
        return math.sqrt(2) if isinstance(query, Gram) and query.flat else 1.0
    one = Neighbours.ADD_REMOVE
    ratio = math.sqrt(2) * query.l1(one) / math.sqrt(query.l2_squared(one))
    return math.sqrt(2) * ratio if isinstance(query, Gram) else ratio


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Centred:
    """Where the records are: noised count, public centre (integer, (d,)), norms about the last one asked.

    `off`: about how far noise puts the centre from the records' mean, squared, in analysis units; 0 where the
    study does not centre. `counted`: the sd of noise in the count, in parts of it.
    """

    records: float
    centre: IntArray
    norms: Histogram
    mean_share: float
    counted: float
    off: float = 0.0

    @property
    def mean(self) -> FloatArray:
        """The centre in analysis units. Shape: (d,)."""
        return self.centre / S


def locate(plan: Plan, cost: Shares | None = None) -> Generator[PricedQuery, Release, Centred]:
    """Noised count and, if the study centres, the private mean.

    Privacy: [P7] post-processing of the releases asked for.
    Cost: `cost`, by default 1 % of the budget, and 5 % (15 % below 5,000 records) for the mean; where
    epsilons are added up, 2 % and 15 % (25 %) of epsilon. A study that neither centres nor clips asks for
    the count alone.
    """
    cost = cost or shares(plan)
    release = yield priced(plan, Count(), cost.count)
    records = max(float(release.values[0]), FEWEST)
    centre, most = midpoint(plan.study), longest(plan.study.radius)
    counted = release.sigma / records  # the relative error of the count
    if not plan.study.centring:
        # Where every radius is public none is asked for: no bin counts.
        norms, share = Histogram(grid=_reach(centre, most), counts=np.zeros(BINS)), 0.0
        if not is_public(plan):
            share = max(cost.norms, cost.last)
            norms = yield from row_norms(centre, price(plan, share), law(plan), most)
        return Centred(records=records, centre=centre, norms=norms, mean_share=share, counted=counted)
    share, off = cost.small_mean if records < SMALL else cost.mean, 0.0
    for norm_share, sum_share in cost.steps:
        seen = step_price(plan, share, norm_share)
        if cost.last and (norm_share, sum_share) == cost.steps[-1]:
            seen = price(plan, share * norm_share + cost.last)
        norms = yield from row_norms(centre, seen, law(plan), most)
        paid = step_price(plan, share, sum_share)
        centre, off = yield from _step(plan, centre, norms, records, counted, paid)
    mean_share = share + cost.last
    return Centred(
        records=records, centre=centre, norms=norms, mean_share=mean_share, counted=counted, off=off
    )


def step_price(plan: Plan, share: float, inner: float) -> int:
    """A share of a share; the products are taken in this order, so that prices do not change by a bit."""
    if plan.composition is Composition.BASIC:
        return price(plan, share * inner)
    return math.floor(plan.micro_rho * share * inner)


def is_public(plan: Plan) -> bool:
    """Whether the radius of rows is: nothing is clipped, or all is to a stated norm about the public middle.

    About a private mean a row reaches to that norm and the mean's together, which few do: a histogram pays.
    """
    radius = plan.study.radius
    return radius == UNCLIPPED or (isinstance(radius, PublicNorm) and not plan.study.centring)


def _reach(centre: IntArray, most: float) -> Grid:
    # Roots of integers, so that every machine has the same edges.
    return Grid(top=min(math.sqrt(centre.size), most) + math.sqrt(int((centre**2).sum())) / S)


def row_norms(
    centre: IntArray, micro_rho: int, law: NoiseLaw = NoiseLaw.GAUSSIAN, most: float = math.inf
) -> Generator[PricedQuery, Release, Histogram]:
    """How far the records lie from a public centre, on a grid whose top is public: no row is longer than
    `most`, in analysis units."""
    grid = _reach(centre, most)
    query = RowNorms(centre=centre, edges=grid.edges(S))
    return read_histogram((yield PricedQuery(query=query, micro_rho=micro_rho, law=law)), grid)


def _step(
    plan: Plan, centre: IntArray, norms: Histogram, records: float, counted: float, micro_rho: int
) -> Generator[PricedQuery, Release, tuple[IntArray, float]]:
    """Move the centre by the clipped mean of the rows about it, as far as that stands out of its noise; and
    about how far it is off then, squared.

    A step of square L, with noise of square B = d sigma^2 in it, is shortened to a = 1 - (B / L)^2 of itself,
    or to nothing. (1 - B / L, by James & Stein 1961, is off by less, but more in one direction, which turns
    components further: measured.) What is left is a^2 B + (1 - a)^2 (L - B), where L tells B up to
    sqrt(2 / d) of it, and as much of the step as the count and clipping make it too short.
    """
    noise = 4 * math.sqrt(centre.size) / drawn_mu(plan, micro_rho)
    noise *= louder(plan, ClippedSum(centre=centre, radius=S))
    radius = choose(norms, None, Balance(power=1, noise=noise, quadratic=True))
    query = ClippedSum(centre=centre, radius=row_radius(radius, centre.size))
    release = yield PricedQuery(query=query, micro_rho=micro_rho, law=law(plan))
    step = release.values / (WEIGHT * records)
    length = float((step**2).sum())
    blur = centre.size * (release.sigma / (WEIGHT * records)) ** 2
    kept = max(0.0, 1 - (blur / length) ** 2) if length > 0 else 0.0
    most = box(plan.study)
    moved = np.clip(np.rint(centre + kept * step), -most, most)
    missed = math.hypot(counted, 1 - norms.kept(query.radius / S, power=1))
    left = kept**2 * blur + (1 - kept) ** 2 * max(length - blur, 0.0)
    off = left + math.sqrt(2 / centre.size) * blur + (missed * kept) ** 2 * length
    return frozen(moved.astype(np.int64)), off / S**2


def signal(plan: Plan, records: float) -> float:
    """mu n / sqrt(d k): how far the data stand above the noise."""
    return drawn_mu(plan, plan.micro_rho) * records / math.sqrt(plan.study.dimension * plan.study.components)


def public_radius(plan: Plan, centre: IntArray) -> int:
    """The largest norm that a row can have about a centre, by the public bounds and a stated norm, in grid
    units."""
    reach = box(plan.study) + np.abs(centre)
    most = min(math.isqrt(int((reach**2).sum())) + 1, row_norm_limit(centre.size))
    stated = longest(plan.study.radius) * S
    return most if stated >= most else min(most, math.floor(stated) + root_up(int((centre**2).sum())))


def row_radius(radius: float, d: int) -> int:
    """A row radius in grid units, within what a query may ask."""
    return min(max(math.floor(radius * S), least_row_radius(d)), row_norm_limit(d))
