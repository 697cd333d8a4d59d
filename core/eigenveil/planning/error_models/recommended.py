"""Error models of the recommended and power algorithms, from a plan's numbers and an assumed spectrum. The
prediction is the sine of the largest principal angle to the records' own components. It has two causes, both
to first order: noise, and clipping bias, as clipped records weigh less in the noised sum. The clip radius
follows from the study's rule on the assumed records. Estimated column scales add the rotation of the
components of the correlations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from eigenveil.algorithms.papers.oja import ENERGY_SHARE, ROUNDS
from eigenveil.algorithms.recommended import refined
from eigenveil.algorithms.recommended.dp_pca import Schedule, gradient_radius, read_variances, schedule
from eigenveil.algorithms.recommended.gauss_cov import RowClip, noise_ratio, prepared
from eigenveil.algorithms.recommended.refined_cov import chooses_stage
from eigenveil.algorithms.shared.column_scales import predicted_scale_error
from eigenveil.algorithms.shared.preparation import (
    LocationEstimate,
    cost_of_share,
    effective_mu,
    locate,
)
from eigenveil.algorithms.shared.query_builders import CrossQueryBuilder, GradientQueryBuilder, part_unit
from eigenveil.algorithms.shared.refinement import (
    SPARE,
    AlignedCovariance,
    cross_query_builder,
    part_norm_grid,
    refine_directions,
    refinement_steps,
)
from eigenveil.algorithms.shared.standardised import remaining_plan
from eigenveil.algorithms.shared.stated_error import entry_noise, scale_sine
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.error_models.assumed_records import AssumedSpectrum, locate_noiseless, run_noiseless
from eigenveil.planning.error_models.perturbation import (
    AssumedRecords,
    PredictedError,
    clipping_bias,
    combine_independent,
    predict_sine,
)
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.queries import CrossCovariance
from eigenveil.queries.limits import DIRECTION_LIMIT, WEIGHT
from eigenveil.study.algorithm import Algorithm, CustomAlgorithm
from eigenveil.study.grid import S

# Budget share of an algorithm's matrix; its diagonal is a second estimate of the scales.
MATRIX: dict[Algorithm | CustomAlgorithm, float] = {
    Algorithm.GAUSS_COV: 0.9,
    Algorithm.ANALYZE_GAUSS: 0.9,
    Algorithm.ADAPTIVE_COV: 0.5,
    Algorithm.SEPARATE_COV: 0.5,
    Algorithm.REFINED_COV: 0.3,
    Algorithm.AUTO: 0.3,
}
LONG = 1.5  # squared clip radius of rows relative to the total variance


def scale_error(plan: Plan, spectrum: AssumedSpectrum) -> float:
    """Return the sine for records of this spectrum with directions spread over all columns."""
    d, k = plan.study.dimension, plan.study.components
    return scale_sine(spectrum.values, np.full((k, d - k), _error(plan) ** 2 / d))


def _error(plan: Plan) -> float:
    """Return the final relative error of the columns' variances."""
    first, share = predicted_scale_error(plan), MATRIX.get(plan.algorithm, 0.0)
    if share == 0:
        return first
    moved = LONG * plan.study.dimension * plan.study.max_sites_per_person
    paid = effective_mu(plan, cost_of_share(remaining_plan(plan), share))
    second = moved / (paid * plan.study.expected_records)
    return first * second / math.hypot(first, second)


def gram_error(
    plan: Plan, spectrum: AssumedSpectrum, *, share: float = 1.0, flat: bool = False
) -> PredictedError:
    """Return the error of one noised Gram matrix at `share` of the budget left after the radius. With `flat`
    the noise off the diagonal is sqrt 2 larger."""
    clip, assumed = clipped_records(plan, spectrum, noise_ratio(plan, flat=flat))
    return matrix_error(plan, assumed, clip.radius, cost_of_share(plan, clip.left * share), flat=flat)


def clipped_records(plan: Plan, spectrum: AssumedSpectrum, ratio: float) -> tuple[RowClip, AssumedRecords]:
    """Return the clip for a Gram matrix of this `noise_ratio`, and the assumed records."""
    clip = run_noiseless(plan, prepared(plan, ratio), spectrum.lengths * S)
    return clip, AssumedRecords(spectrum, plan.study.components, clip.start.records)


def retained_shares(spectrum: AssumedSpectrum, radius: int) -> FloatArray:
    """Return the share of each squared norm left by clipping to a radius in grid units. Shape: (N,)."""
    return np.asarray(np.minimum(1.0, radius / S / np.maximum(spectrum.lengths, 1e-300)) ** 2)


def clipped_variances(assumed: AssumedRecords, retained: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return variances of the clipped points along each i and gaps to each j. Shape: (m,), (r, m, g)."""
    inside = (retained[:, None] * assumed.squares).mean(axis=0)
    beyond = (retained[:, None] * assumed.squares_beyond).mean(axis=0)
    return inside, assumed.observed_gaps(inside[:, None] - beyond, retained)


def matrix_error(
    plan: Plan, assumed: AssumedRecords, radius: int, micro_rho: int, *, flat: bool = False
) -> PredictedError:
    """Return the error of a matrix's leading directions: noise over gaps; `radius` in grid units."""
    retained = retained_shares(assumed.spectrum, radius)
    _, gaps = clipped_variances(assumed, retained)
    noise = entry_noise(plan, micro_rho) * (radius / S) ** 2 / assumed.records
    noise *= noise_ratio(plan, flat=flat) / noise_ratio(plan)
    return predict_sine(noise**2 / gaps**2 + clipping_bias(assumed, retained, gaps), assumed.beyond.counts)


# Beyond first order, fitted to about 100 simulations: several directions together are 8 % worse, and rounds
# with large tilts no longer build on each other, less so with more directions.
SEVERAL_DIRECTIONS = 1.08


class GradientModel:
    """Gradients of the assumed records along the first m directions, and their clipping. For dp-pca and
    noisy-power. A round multiplies the tilt of direction i towards j by a factor rho < 1 and adds fresh
    noise. The rest of the public starting directions fades by rho a round. dp-pca averages its tail, and its
    tilt with it. A gradient is x a^T - C with a_i = x_i / sqrt(lambda_i), and C has sqrt(lambda_i) v_i in
    column i (0 without pull). If not `scaled`, a_i = x_i."""

    def __init__(self, assumed: AssumedRecords, m: int, *, pulled: bool, scaled: bool = True) -> None:
        spectrum = assumed.spectrum
        top = spectrum.values[:m] if scaled else np.ones(m)
        self.assumed, self.pulled, self.m = assumed, float(pulled), m
        self._scales = assumed.values if scaled else np.ones(len(assumed.values))
        known = spectrum.leading[:, :m] ** 2
        across = (known / top[: known.shape[1]]).sum(axis=1) + (m - known.shape[1])
        off = self.pulled * (top.sum() - 2 * known.sum(axis=1))
        self.norms = np.sqrt(np.maximum(spectrum.lengths**2 * across + off, 1e-300))

    def radius(self, plan: Plan, start: LocationEstimate, times: Schedule) -> float:
        """Return the clip radius by the study's rule."""
        roots = np.sqrt(self.assumed.spectrum.values[: self.m])
        axes = np.eye(plan.study.dimension, self.m)
        slope = GradientQueryBuilder(
            centre=start.centre, directions=axes / roots, offset=axes * roots * self.pulled
        )
        steps = gradient_radius(start, times, slope, None)
        return run_noiseless(plan, steps, self.norms * S**2 * slope.integer_scale) * slope.largest_norm

    def retained(self, radius: float) -> FloatArray:
        """Return the share of each gradient left by clipping to a radius. Shape: (N,)."""
        return np.asarray(np.minimum(1.0, radius / self.norms))

    def response(self, retained: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the growth of direction i in a round, and its gap to that of a tilt towards j. A clipped
        gradient has constant norm, so a tilt only rotates it. The part that the pull holds back follows the
        directions. Shape: (N,) -> (m,), (r, m, g)."""
        assumed, x, y = self.assumed, self.assumed.squares, self.assumed.squares_beyond
        pull_loss = self.pulled * assumed.values * (1 - retained.mean())
        inside = pull_loss + (retained[:, None] * x).mean(axis=0)
        other = pull_loss[:, None] + (retained[:, None] * y).mean(axis=0)
        lengths = assumed.spectrum.lengths**2
        answered = (retained * (retained < 1) / self.norms**2)[:, None] * x
        answered = answered * (lengths[:, None] / self._scales - 2 * self.pulled)
        gaps = assumed.observed_gaps(inside[:, None] - other + answered.T @ y / len(x), retained)
        return inside, np.minimum(gaps, inside[:, None])


def dp_pca(plan: Plan, spectrum: AssumedSpectrum) -> PredictedError:
    """Return the error of dp-pca: noise and clipping of the averaged tail, and the rest of the start."""
    start = locate_noiseless(plan, spectrum)
    return tail_average_error(plan, spectrum, start, schedule(start))


def tail_average_error(
    plan: Plan, spectrum: AssumedSpectrum, start: LocationEstimate, times: Schedule
) -> PredictedError:
    """Return the error of the directions of an averaged tail."""
    k = plan.study.components
    assumed = AssumedRecords(spectrum, k, start.records)
    paid = effective_mu(plan, times.round_cost)
    noise = plan.study.changed_records / (paid * start.records) * np.sqrt(assumed.values)
    ratios, tilts = [], []
    for pulled in (False, True):
        pulls = GradientModel(assumed, times.directions, pulled=pulled)
        radius = pulls.radius(plan, start, times)
        retained = pulls.retained(radius)
        inside, gaps = pulls.response(retained)
        ratios.append(1 - gaps / inside[:, None])
        tilts.append((noise * radius / inside)[:, None] ** 2)
    rounds = times.rounds - times.tail
    variances, started = tail_variances(tilts, ratios, times.tail, rounds)
    counts, spare = assumed.beyond.counts, times.directions - k
    if spare > 0:  # the last rotation, within all m directions, uses the mean of the tail
        both = 1 + assumed.beyond.values[:spare] / assumed.values[:, None]
        inner = (noise * radius)[:, None] ** 2
        variances[..., :spare] = inner * both / (4 * rounds * gaps[..., :spare] ** 2)
        started[..., :spare] = 0.0
    once = (tilts[1] * counts / (1 - ratios[1] ** 2)).sum(axis=(-1, -2))[:, None, None]
    beyond = (1 + (once * (k + 1) / 3) ** 2 / 2) * (SEVERAL_DIRECTIONS if k > 1 else 1.0)
    return predict_sine(beyond**2 * (variances + clipping_bias(assumed, retained, gaps)), counts, started)


def tail_variances(
    tilts: list[FloatArray], ratios: list[FloatArray], before: int, rounds: int
) -> tuple[FloatArray, FloatArray]:
    """Return the variance of a tilt averaged over `rounds` rounds after `before` others, and a squared rest.
    The rest is that of the initial tilt.
    Shape: tilts (a round's fresh variance) and ratios (r, m, g), of the rounds before and of the averaged
    ones."""
    first, rho = ratios
    carried, gone = first ** (2 * before), rho**rounds
    weight = (rho * (1 - gone) / ((1 - rho) * rounds)) ** 2
    fresh = rounds - 2 * rho * (1 - gone) / (1 - rho) + rho**2 * (1 - gone**2) / (1 - rho**2)
    noise = tilts[0] * (1 - carried) / (1 - first**2) * weight + tilts[1] * fresh / ((1 - rho) * rounds) ** 2
    return noise, carried * weight


def noisy_power(plan: Plan, spectrum: AssumedSpectrum) -> PredictedError:
    """Return the error of the last of a few rounds, each with the noise of a whole squared row."""
    clip, assumed = clipped_records(plan, spectrum, noise_ratio(plan))
    retained = retained_shares(spectrum, clip.radius)
    inside, gaps = clipped_variances(assumed, retained)
    gaps = np.minimum(gaps, inside[:, None])
    rho = 1 - gaps / inside[:, None]
    each = effective_mu(plan, cost_of_share(plan, (clip.left - ENERGY_SHARE) / ROUNDS))
    noise = plan.study.changed_records * (clip.radius / S) ** 2 / (each * assumed.records)
    faded = rho ** (2 * ROUNDS)
    variances = (noise / inside[:, None]) ** 2 * (1 - faded) / (1 - rho**2) + clipping_bias(
        assumed, retained, gaps
    )
    return predict_sine(variances, assumed.beyond.counts, faded)


# The rest of a first stage's error b is of order b^2, as after a Newton step, and levels off for large b:
# (b / (1 + b))^2. Noisy variances rotate directions too far or too little, by their error over the gap.
# Fitted to about 100 simulations of random studies.
ONE_LEFT, SEVERAL_LEFT, GRADIENTS_LEFT = 1.25, 1.5, 0.8
MISREAD = 0.8


def refined_cov(plan: Plan, spectrum: AssumedSpectrum) -> PredictedError:
    """Return the error of refined-cov: one noised matrix, then refined directions. On a wide table its
    releases choose gradients instead where they are better."""
    if plan.study.components == plan.study.dimension:  # the algorithm is gauss-cov then
        return gram_error(plan, spectrum)
    found = _refined_matrix(plan, spectrum)
    return min(found, refined_pca(plan, spectrum), key=lambda one: one.raw) if chooses_stage(plan) else found


def _refined_matrix(plan: Plan, spectrum: AssumedSpectrum) -> PredictedError:
    k = plan.study.components
    start = run_noiseless(plan, locate(plan, refined.PREPARED), spectrum.lengths * S)
    share = refined.matrix_share(start)
    clip = refined.matrix_clip(start, share)
    sd = entry_noise(plan, cost_of_share(plan, clip.left * share)) / clip.unit * clip.radius**2
    leading_values = spectrum.values[: k + SPARE]
    first = refined.on_axes(
        np.eye(plan.study.dimension, leading_values.size), leading_values, k, math.sqrt(2) * sd
    )
    rest = spectrum.values[leading_values.size :]
    if rest.size:
        first = replace(first, level=max(first.level, float(rest.mean())))
    assumed = AssumedRecords(spectrum, k, start.records)
    before = predict_sine(np.asarray(sd**2 / assumed.gaps**2), assumed.beyond.counts).raw
    found = _turned(plan, assumed, start, first, clip.left * (1 - share), before)
    return combine_independent(found, (SEVERAL_LEFT if k > 1 else ONE_LEFT) * (before / (1 + before)) ** 2)


def refined_pca(plan: Plan, spectrum: AssumedSpectrum) -> PredictedError:
    """Return the error of refined-pca: a short noisy power iteration, then refined directions."""
    k = plan.study.components
    if k == plan.study.dimension:  # the algorithm is dp-pca then
        return dp_pca(plan, spectrum)
    start = locate_noiseless(plan, spectrum)
    times, left = refined.schedule(start, start.left)
    before = tail_average_error(plan, spectrum, start, times).raw
    basis = np.eye(plan.study.dimension, times.directions)
    assumed = AssumedRecords(spectrum, k, start.records)
    norms = GradientModel(assumed, times.directions, pulled=False, scaled=False).norms
    steps = read_variances(start, basis)
    _, _, scale = run_noiseless(plan, steps, norms * S**2 * (DIRECTION_LIMIT / 2))
    first = refined.refined_pca_on_axes(
        basis, spectrum.values[: times.directions], k, float(spectrum.values.sum()), scale
    )
    found = _turned(plan, assumed, start, first, left, before)
    misread = min(1.0, MISREAD * scale / float(np.median(assumed.gaps[:, -1, 0])))
    return combine_independent(
        found, math.hypot(GRADIENTS_LEFT * (before / (1 + before)) ** 2, min(1.0, before) * misread)
    )


def _turned(
    plan: Plan,
    assumed: AssumedRecords,
    start: LocationEstimate,
    first: AlignedCovariance,
    share: float,
    sine: float,
) -> PredictedError:
    """Return the error of the last stage: the sd of each entry over the gap. It runs without noise on assumed
    records with right directions, so its stated sd is the predicted one. A poor first stage is not corrected
    in full; the rest was fitted, and is added by the callers."""
    cross = cross_query_builder(start, first)
    norms = _parts(assumed, cross)
    priced_queries: list[PricedQuery] = []
    grid_unit = part_unit(cross.norms(part_norm_grid(start)).spec)
    found = run_noiseless(
        plan,
        refine_directions(start, first, share, refinement_steps(sine)),
        norms * grid_unit,
        priced_queries,
    )
    query = priced_queries[-1].query
    assert isinstance(query, CrossCovariance)
    retained = np.minimum(1.0, query.radius / part_unit(query.spec) / np.maximum(norms, 1e-300))
    retained = retained * (norms.sum() / (retained * norms).sum())
    counts = assumed.beyond.counts
    before = (np.cumsum(counts) - counts).astype(int)  # directions outside before a group
    known = found.sd[assumed.first :][:, np.minimum(before, found.sd.shape[1] - 1)]
    return predict_sine(known**2 / assumed.gaps**2 + clipping_bias(assumed, retained, assumed.gaps), counts)


def _parts(assumed: AssumedRecords, cross: CrossQueryBuilder) -> FloatArray:
    """Return the weighted |a| |b| of the points. Shape: (N,)."""
    spectrum, k = assumed.spectrum, cross.k
    squares = assumed.squared(0, spectrum.values[: cross.basis.shape[1]])
    lead = squares[:, :k] @ (cross.leading / WEIGHT) ** 2
    spare = squares[:, k:] @ (cross.spare / WEIGHT) ** 2
    outside = np.maximum(spectrum.lengths**2 - squares.sum(axis=1), 0.0)
    return np.asarray(np.sqrt(lead * (spare + outside)))
