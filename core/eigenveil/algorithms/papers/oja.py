"""Iterations with noise: Oja's rule of [DPPCA] in common steps and without privacy, and noisy-power.

[DPPCA] uses steps h / (gap (offset + t)) and searches (h, offset) by the angle to the true component. Neither
the gap nor that angle is known here. So a schedule is relative to the released strength of a direction, w .
g, and candidates are scored by a private Rayleigh quotient: the variance along their directions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.algorithms.recommended.gauss_cov import RowClip, matrix_warnings, noise_ratio, prepared
from eigenveil.algorithms.shared.preparation import cost_of_share, effective_mu, query_at_share
from eigenveil.algorithms.shared.query_builders import GradientQueryBuilder
from eigenveil.algorithms.shared.standardised import changed_queries
from eigenveil.algorithms.shared.stated_error import centre_sine, even_gaps
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import (
    eigenvalues,
    fix_signs,
    orthonormal,
    rotated_eigenpairs,
    single_blas_thread,
    start_directions,
)
from eigenveil.protocol.estimate import Estimate, Outcome, Steps, StepsTo
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.queries import Batch, Gradient, GradientQuery, ShuffledRecord, SquaredNormSum
from eigenveil.queries.gradients import pass_key
from eigenveil.study.grid import S
from eigenveil.study.study import Extraction


class RoundCounter:
    """Counter of queries, which gives a pass its first round."""

    def __init__(self) -> None:
        self.started = 0

    def through(self, steps: StepsTo[Outcome]) -> StepsTo[Outcome]:
        """Run `steps` and count their queries."""
        return changed_queries(steps, self._count)

    def _count(self, priced_query: PricedQuery) -> PricedQuery:
        self.started += 1
        return priced_query


@dataclass(slots=True, kw_only=True)
class BatchPass:
    """One pass over the disjoint batches of the records: a query about each batch, all for one cost."""

    plan: Plan
    first: int
    micro_rho: int
    atto_delta: int = 0
    next: int = 0

    @property
    def size(self) -> int:
        return self.plan.batches

    def about(
        self, query: GradientQuery, noise_distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN
    ) -> PricedQuery:
        """Return `query` about the next batch; the first one has the cost of the pass [P9]."""
        batched = replace(query, batch=self._batch())
        return PricedQuery(
            query=batched,
            micro_rho=self.micro_rho,
            atto_delta=self.atto_delta,
            distribution=noise_distribution,
        )

    def about_record(self, query: Gradient) -> PricedQuery:
        """Return the query for the gradient of the next record in the secret order."""
        shuffled = ShuffledRecord(spec=query.spec, radius=query.radius, batch=self._batch())
        return PricedQuery(query=shuffled, micro_rho=self.micro_rho, atto_delta=self.atto_delta)

    def _batch(self) -> Batch:
        key = pass_key(self.plan.digest, self.first, self.size)
        self.next += 1
        return Batch(first_round=self.first, index=self.next - 1, batches=self.size, key=key)


def orthonormalise_against(w: FloatArray, found: FloatArray) -> FloatArray:
    """Return orthonormalised columns of w, orthogonal to `found`. Shape: (d, m), (d, j) -> (d, m)."""
    return orthonormal(np.hstack([found, w]))[:, found.shape[1] :]


FLOOR = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSchedule:
    """Schedule with step gain / (strength (offset + t)), t from 0: h kappa for a gap of strength / kappa."""

    gain: float
    offset: float

    def step(self, t: int, strength: float) -> float:
        return self.gain / (max(strength, FLOOR) * (self.offset + t))


# From a gap equal to the variance to an eighth of it.
CANDIDATES = (
    StepSchedule(gain=8.0, offset=1.0),
    StepSchedule(gain=3.0, offset=1.0),
    StepSchedule(gain=24.0, offset=1.0),
)


def spectrum_rates(values: FloatArray, k: int, longest: float) -> StepSchedule:
    """Return the schedule of the paper for a known spectrum: h / (gap (offset + t)), with h = 2.

    `longest` is the largest ||x||^2: the first step is then at most 1 / longest. In units of strength = 1.

    Shape: values (d,), falling."""
    below = float(values[k]) if k < len(values) else 0.0
    gap = max(float(values[k - 1]) - below, 1e-3 * float(values[0]), FLOOR)
    return StepSchedule(gain=2 / gap, offset=max(2 * longest / gap, 1.0))


class RunningStrength:
    """Running mean of w . g for each direction, from releases, without cost. Shape: (m,)."""

    def __init__(self, m: int) -> None:
        self._sum, self._seen = np.zeros(m), 0

    def after(self, directions: FloatArray, gradient: FloatArray) -> FloatArray:
        """Return the mean with one more gradient. Shape: directions, gradient (d, m) -> (m,)."""
        self._sum += (directions * gradient).sum(axis=0)
        self._seen += 1
        return np.asarray(self._sum / self._seen)


def oja(rows: FloatArray, k: int, *, rank: Extraction = Extraction.BLOCK) -> FloatArray:
    """Return the result of one pass over the records in order: w <- w + eta_t x (x . w), normalised.

    Algorithm 1 of [DPPCA] at its steps for the data's own spectrum; without privacy, for comparisons only.

    Shape: rows (n, d), centred -> (k, d), orthonormal rows."""
    d, longest = rows.shape[1], float((rows**2).sum(axis=1).max(initial=0.0))
    rates = spectrum_rates(eigenvalues(rows.T @ rows / max(len(rows), 1)), k, longest)
    found, columns = np.zeros((d, 0)), k if rank is Extraction.BLOCK else 1
    while found.shape[1] < k:
        start = start_directions(d, found.shape[1] + columns)[:, -columns:]
        found = np.hstack([found, _oja_pass(rows, start, found, rates)])
    return fix_signs(found).T


def _oja_pass(rows: FloatArray, start: FloatArray, found: FloatArray, rates: StepSchedule) -> FloatArray:
    """Return one pass. Shape: rows (n, d), start (d, m), found (d, j) -> (d, m), orthonormal to `found`."""
    w = orthonormalise_against(start, found)
    with single_blas_thread():
        for t, x in enumerate(rows):
            w = w + rates.step(t, 1.0) * np.outer(x, x @ w)
            w, _ = np.linalg.qr(w - found @ (found.T @ w))
    return orthonormalise_against(w, found)


ROUNDS = 15
ENERGY_SHARE = 0.01


def noisy_power(plan: Plan) -> Steps:
    """Run noisy-power: count, mean, radius, ROUNDS products, total variance.

    Source: Hardt & Price 2014: power iteration whose noise is scaled to a row's largest product.
    Privacy: [P7]; each query is charged and answered behind the barrier.
    Cost: the whole budget, d k integers a round from every site, ROUNDS + 7 rounds (6 without clipping)."""
    d, k = plan.study.dimension, plan.study.components
    clip = yield from prepared(plan, noise_ratio(plan))
    start = clip.start
    each = (clip.left - ENERGY_SHARE) / ROUNDS
    w = start_directions(d, k)
    for _ in range(ROUNDS):
        basis = w
        product, _ = yield from noised_product(clip, basis, each)
        w = orthonormal(product)
    energy = SquaredNormSum(centre=start.centre, radius=clip.radius)
    release = yield query_at_share(plan, energy, ENERGY_SHARE)
    values, turn = rotated_eigenpairs(basis, product)
    scale = (clip.radius / S) ** 2 / (
        effective_mu(plan, cost_of_share(plan, each)) * start.records * clip.retained
    )
    total = max(float(release.values[0]) / clip.unit, 0.0)
    # Rotation of the weakest direction by the last product's noise.
    turned = scale * math.sqrt(d) / max(float(values[-1]), 1e-12)
    gaps = even_gaps(values, total, d) - scale
    return Estimate(
        components=fix_signs(orthonormal(product @ turn)).T,
        explained_variance=np.maximum(values, 0.0),
        mean=start.mean,
        records=start.records,
        total_variance=total,
        noise_scale=scale,
        sin_error=min(1.0, math.hypot(turned, centre_sine(start, gaps))),
        warnings=matrix_warnings(clip, gaps),
    )


def noised_product(clip: RowClip, w: FloatArray, share: float) -> StepsTo[tuple[FloatArray, float]]:
    """Return the noised mean of z (z . W) at a share of the budget, and its noise sd. Shape: (d, k)."""
    slope = GradientQueryBuilder(centre=clip.start.centre, directions=w, offset=np.zeros_like(w))
    query, unit = slope.query((clip.radius / S) ** 2)
    release = yield query_at_share(clip.plan, query, share)
    whole = unit * clip.start.records * clip.retained
    return release.values.reshape(w.shape) / whole, release.sigma / whole
