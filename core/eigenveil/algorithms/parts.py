"""What both algorithms begin with: the number of records, the mean, and how far the records lie from it."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from eigenveil.accounting import MICRO
from eigenveil.algorithms.radius import Balance, Grid, Histogram, choose, read_histogram
from eigenveil.asks import ClippedSum, Count, RowNorms, S
from eigenveil.asks.limits import WEIGHT, row_norm_limit
from eigenveil.grid import midpoint
from eigenveil.ints import FloatArray, IntArray, frozen
from eigenveil.plan import Plan
from eigenveil.query import Priced
from eigenveil.release import Release

COUNT_SHARE = 0.01
MEAN_SHARE, SMALL_MEAN_SHARE, SMALL = 0.05, 0.15, 5000
# Two steps, each a histogram of norms and a clipped sum, as shares of the mean's budget. One step is
# twice as bad when the data lie off the middle of the box; three are not better (measured).
MEAN_STEPS = ((0.05, 0.15), (0.10, 0.70))
FEWEST = 10.0  # a noised count below it is taken as this, so that dividing by it stays harmless


def mu(micro_rho: int) -> float:
    """Gaussian-DP parameter of a Gaussian query of that price: noise sd is sensitivity / mu."""
    return math.sqrt(2 * micro_rho / MICRO)


def part(total: int, share: float) -> int:
    """A share of the budget in micro-rho, rounded down."""
    return math.floor(total * share)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Centred:
    """Where the records are: noised count, public centre (integer, (d,)), norms about the last one asked."""

    records: float
    centre: IntArray
    norms: Histogram
    mean_share: float

    @property
    def mean(self) -> FloatArray:
        """The centre in analysis units. Shape: (d,)."""
        return self.centre / S


def locate(plan: Plan) -> Generator[Priced, Release, Centred]:
    """Noised count and, if the study centres, the private mean.

    Privacy: [P7] post-processing of the releases asked for.
    Cost: 1 % of the budget, and 5 % (15 % below 5,000 records) for the mean.
    """
    release = yield Priced(ask=Count(), micro_rho=part(plan.micro_rho, COUNT_SHARE))
    records = max(float(release.values[0]), FEWEST)
    share = SMALL_MEAN_SHARE if records < SMALL else MEAN_SHARE
    budget = plan.micro_rho * share
    if not plan.study.centring:
        norms = yield from row_norms(midpoint(plan.study), part(plan.micro_rho, 0.02))
        return Centred(records=records, centre=midpoint(plan.study), norms=norms, mean_share=0.02)
    centre = midpoint(plan.study)
    for norm_share, sum_share in MEAN_STEPS:
        norms = yield from row_norms(centre, math.floor(budget * norm_share))
        centre = yield from _step(centre, norms, records, math.floor(budget * sum_share))
    return Centred(records=records, centre=centre, norms=norms, mean_share=share)


def row_norms(centre: IntArray, micro_rho: int) -> Generator[Priced, Release, Histogram]:
    """How far the records lie from a public centre, on a grid whose top is public."""
    grid = Grid(top=math.sqrt(centre.size) + float(np.linalg.norm(centre / S)))
    ask = RowNorms(centre=centre, edges=grid.edges(S))
    return read_histogram((yield Priced(ask=ask, micro_rho=micro_rho)), grid)


def _step(
    centre: IntArray, norms: Histogram, records: float, micro_rho: int
) -> Generator[Priced, Release, IntArray]:
    """Move the centre by the clipped mean of the rows about it."""
    noise = 4 * math.sqrt(centre.size) / mu(micro_rho)
    radius = choose(norms, None, Balance(power=1, noise=noise, quadratic=True))
    ask = ClippedSum(centre=centre, radius=row_radius(radius, centre.size))
    release = yield Priced(ask=ask, micro_rho=micro_rho)
    moved = np.rint(centre + release.values / (WEIGHT * records))
    return frozen(np.clip(moved, -S, S).astype(np.int64))


def row_radius(radius: float, d: int) -> int:
    """A row radius in grid units, within what a query accepts."""
    return min(max(math.floor(radius * S), 1), row_norm_limit(d))
