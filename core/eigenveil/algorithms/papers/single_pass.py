"""dp-pca-single-pass: the DP-PCA of the paper, as a reference with valid constants.

Source: Algorithms 3, 4 and 5 of [DPPCA]. A step uses three batches of the records, each at the whole cost of
the pass [P9]: one for the spread of the gradients (Algorithm 4), one for the range of their coordinates, and
one for their sum, limited to a box around that (Algorithm 5). The paper halves batches and budget instead.

Differences from the paper: octaves instead of quarter octaves for the eigenvalue, because votes of subsets of
a dozen records spread over an octave; noise by the integer box [P23] instead of eq. (15), which is 6 times
too small; keyed batches instead of positional ones."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting.zcdp import ATTO, mu
from eigenveil.algorithms.papers.oja import (
    CANDIDATES,
    BatchPass,
    RoundCounter,
    RunningStrength,
    orthonormalise_against,
)
from eigenveil.algorithms.papers.private_oja import ordered
from eigenveil.algorithms.recommended.dp_pca import VARIANCE_SHARE, read_variances
from eigenveil.algorithms.shared.preparation import LocationEstimate, locate, share_of
from eigenveil.numerics.encoding import FloatArray, frozen
from eigenveil.numerics.linalg import start_directions
from eigenveil.protocol.estimate import Steps, StepsTo, no_release
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.protocol.rounds import Release
from eigenveil.queries import CoordinateClippedSum, CoordinateHistograms, EigenvalueVotes, GradientSpec
from eigenveil.queries.limits import DIRECTION_LIMIT, GRADIENT_LIMIT
from eigenveil.queries.papers.single_pass import MOST_BINS, VOTE_LIMIT
from eigenveil.study.grid import S

FINE = DIRECTION_LIMIT // 2  # the integer length of a direction
QUESTIONS = 3  # batches of one step
OCTAVES = frozen([4**j for j in range(1, 27)])  # edges, in squared units of a gradient
VOTED = 3.0  # votes in total relative to the threshold of one bin: the paper's C1
LEAST_SUBSET_SIZE = 12  # least records of a voting subset
WIDTH, REACH = 4.0, 3.0  # of a bin and of the margin of the box, in units of the spread


def single_pass(plan: Plan) -> Steps:
    """Run dp-pca-single-pass: count, mean, a pass for each component, explained variances.
    Privacy: [P7], [P9], [P22], [P23]; each query is charged and answered behind the barrier.
    Cost: the whole budget, at most 2 * 32 d integers a round from every site."""
    study, rounds = plan.study, RoundCounter()
    start = yield from rounds.through(locate(plan))
    left = start.left - VARIANCE_SHARE
    found, with_release = np.zeros((study.dimension, 0)), 0
    for j in range(study.components):
        once = BatchPass(
            plan=plan,
            first=rounds.started,
            micro_rho=share_of(plan.micro_rho, left / study.components),
            atto_delta=plan.atto_delta // study.components,
        )
        begun = orthonormalise_against(start_directions(study.dimension, j + 1)[:, -1:], found)
        w, moved = yield from rounds.through(_pass(start, once, begun, found))
        found, with_release = np.hstack([found, w]), with_release + bool(moved)
    variances, total, scale = yield from read_variances(start, found)
    if with_release < study.components:
        reason = (
            "no step was possible for a component, because too few records agreed to release a histogram "
            f"bin; use about {records_needed(plan)} records in total, fewer batches, or dp-pca"
        )
        return no_release(plan, start.records, reason)
    return ordered(start, found, variances, total, scale, _warnings(plan, start.records))


def histogram_thresholds(plan: Plan) -> tuple[float, float]:
    """Return approximate thresholds of the stability histograms of a pass [P11]: of votes and coordinates."""
    k, d, changed = plan.study.components, plan.study.dimension, plan.study.changed_records
    epsilon = mu(share_of(plan.micro_rho, 0.9 / k))
    silence = math.log(ATTO * k / max(plan.atto_delta, 1))
    vote = 2 * changed / epsilon
    count = math.sqrt(d) * changed / epsilon
    return 1 + vote * (silence + math.log(2 * changed)), 1 + count * (silence + math.log(d * changed))


def records_needed(plan: Plan) -> int:
    """Return the records that a run of this plan needs so that each histogram likely releases a bin."""
    votes, counts = histogram_thresholds(plan)
    return math.ceil(max(VOTED * votes * LEAST_SUBSET_SIZE, 3 * counts)) * plan.batches


def _warnings(plan: Plan, records: float) -> tuple[str, ...]:
    """Return the warning with the number of records that this reference algorithm needs."""
    wanted = records_needed(plan)
    verdict = "has" if records >= wanted else "does not have"
    sentence = (
        f"dp-pca-single-pass is the paper's algorithm, for reference: with {plan.batches} batches "
        f"it needs about {wanted} records at this epsilon and delta, which this study {verdict}; "
        "dp-pca needs fewer"
    )
    return (sentence,)


def _along(start: LocationEstimate, w: FloatArray) -> tuple[GradientSpec, float]:
    """Return the gradient along w, and the integers per norm of 1. Shape: w (d, 1). The gradients of the
    records of largest norm just fit the limit of a vote."""
    longest = max(start.norms.largest, 1e-6) ** 2
    shift = min(max(0, math.ceil(math.log2(float(S) ** 2 * FINE * longest / VOTE_LIMIT))), 60)
    fine = frozen(np.rint(w * FINE).astype(np.int64))
    spec = GradientSpec(centre=start.centre, directions=fine, offset=np.zeros_like(fine), shift=shift)
    return spec, float(S) ** 2 * FINE / 2.0**shift


def _pass(
    start: LocationEstimate, once: BatchPass, w: FloatArray, found: FloatArray
) -> StepsTo[tuple[FloatArray, int]]:
    """Use all batches once, three a step; return the direction and the number of steps. Shape: w (d, 1).

    All queries are made whatever the earlier releases, so that rounds and costs are public. A coordinate
    without a released bin counts as 0. Before the first released eigenvalue no step is made; later steps use
    the last released one."""
    spread, strength, taken = 0.0, RunningStrength(1), 0
    records = start.records / once.size
    # At each site as many subsets as the threshold needs, if the records suffice.
    wanted = min(VOTED * histogram_thresholds(start.plan)[0], max(records, 2.0) / LEAST_SUBSET_SIZE)
    subsets = max(1, math.ceil(wanted / len(start.plan.study.federation.sites)))
    for t in range(once.size // QUESTIONS):
        spec, unit = _along(start, w)
        votes = yield once.about(
            EigenvalueVotes(spec=spec, edges=OCTAVES, subsets=subsets), NoiseDistribution.STABILITY
        )
        spread = read_spread(votes) or spread
        bins = bins_for(spec, spread)
        counts = yield once.about(bins, NoiseDistribution.STABILITY)
        box = box_for(bins, counts, spread)
        total = yield once.about(box)
        if not spread:
            continue
        gradient = np.where(box.halves > 1, box.middles + total.values / records, 0.0)[:, None] / unit
        level = float(strength.after(w, gradient)[0])
        w, taken = orthonormalise_against(w + CANDIDATES[0].step(t, level) * gradient, found), taken + 1
    return w, taken


def read_spread(votes: Release) -> float:
    """Return the square root of the fullest bin's eigenvalue, in gradient units; 0 without a released bin.
    The first bin, [0, 4), is read as 4: the grid resolves nothing finer."""
    if not votes.values.any():
        return 0.0
    return math.sqrt(float(OCTAVES[max(int(np.argmax(votes.values)) - 1, 0)]) * 2)


def bins_for(spec: GradientSpec, spread: float) -> CoordinateHistograms:
    """Return the coordinate histograms, in bins of WIDTH spreads; before any eigenvalue, the widest bins."""
    most = MOST_BINS // 8
    width = math.ceil(WIDTH * spread) if spread else VOTE_LIMIT
    return CoordinateHistograms(spec=spec, width=width, half=min(max(-(-VOTE_LIMIT // width), 1), most))


def box_for(bins: CoordinateHistograms, counts: Release, spread: float) -> CoordinateClippedSum:
    """Return the box around each coordinate's fullest bin; the least box if all bins are suppressed."""
    table = counts.values.reshape(bins.histograms, 2 * bins.half)
    middles = (table.argmax(axis=1) - bins.half) * bins.width + bins.width // 2
    half = min(bins.width // 2 + math.ceil(REACH * spread), GRADIENT_LIMIT)
    with_release = table.any(axis=1)
    halves = np.where(with_release, max(half, 2), 0)
    if not with_release.any():
        halves = halves + 1  # a query with unused release, so that the next batch is queried in its round
    return CoordinateClippedSum(spec=bins.spec, middles=np.where(with_release, middles, 0), halves=halves)
