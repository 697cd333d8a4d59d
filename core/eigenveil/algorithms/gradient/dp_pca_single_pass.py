"""dp-pca-single-pass: the DP-PCA of the paper, as a reference with constants that hold.

Source: Algorithms 3, 4 and 5 of [DPPCA]. A step spends three batches of the records, each at the whole price
of the pass [P9]: one on how widely the gradients spread (Algorithm 4), one on where their coordinates lie,
and one on their sum, cut off to a box around that (Algorithm 5). The paper halves batches and budget instead.

What differs from the paper, and why: octaves instead of quarter octaves for the eigenvalue, because votes of
subsets of a dozen records spread over an octave; the noise follows from the integer box [P23] instead of
eq. (15), which is 6 times too quiet; batches are keyed instead of positional; sums are exact, and prices
add up as zCDP, so any epsilon will do.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from eigenveil.accounting.zcdp import ATTO, mu
from eigenveil.algorithms.gradient.dp_pca import VARIANCE_SHARE, read_variances
from eigenveil.algorithms.gradient.private_oja import ordered
from eigenveil.algorithms.shared.passes import Pass, Rounds, apart
from eigenveil.algorithms.shared.preparation import COUNT_SHARE, Centred, locate, part
from eigenveil.algorithms.shared.step_sizes import CANDIDATES, Strength
from eigenveil.numerics.encoding import FloatArray, frozen
from eigenveil.numerics.linalg import start_directions
from eigenveil.protocol.estimate import Steps, no_release
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import CoordinateClippedSum, Coordinates, GradientSpec, Votes
from eigenveil.queries.limits import DIRECTION_LIMIT, GRADIENT_LIMIT
from eigenveil.queries.single_pass import MOST_BINS, VOTE_LIMIT
from eigenveil.study.grid import S

FINE = DIRECTION_LIMIT // 2  # the integer length of a direction
QUESTIONS = 3  # batches that one step spends
OCTAVES = frozen([4**j for j in range(1, 27)])  # edges, in squared units of a gradient
VOTED = 3.0  # votes in all, over the votes that one bin needs: the paper's C1
FEWEST = 12  # records of a subset that votes
WIDTH, REACH = 4.0, 3.0  # of a bin, and of the box beyond it, in units of the spread


def single_pass(plan: Plan) -> Steps:
    """Count, mean, a pass for each component, explained variances.

    Neighbours: as the study says.
    Privacy: [P7], [P9], [P22], [P23]; the questions are priced and answered behind the barrier.
    Cost: the whole budget, at most 2 * 32 d integers a round from every site.
    """
    study, rounds = plan.study, Rounds()
    start = yield from rounds.through(locate(plan))
    left = 1 - COUNT_SHARE - start.mean_share - VARIANCE_SHARE
    found, spoken = np.zeros((study.dimension, 0)), 0
    for j in range(study.components):
        once = Pass(
            plan=plan,
            first=rounds.asked,
            micro_rho=part(plan.micro_rho, left / study.components),
            atto_delta=plan.atto_delta // study.components,
        )
        begun = apart(start_directions(study.dimension, j + 1)[:, -1:], found)
        w, moved = yield from rounds.through(_pass(plan, start, once, begun, found))
        found, spoken = np.hstack([found, w]), spoken + bool(moved)
    variances, total, scale = yield from read_variances(plan, start, found)
    if spoken < study.components:
        return no_release(plan, start.records, _silent(plan))
    return ordered(start, found, variances, total, scale, _warnings(plan, start.records))


def needs(plan: Plan) -> tuple[float, float]:
    """The thresholds of stability histograms at the price of a pass [P11], about: what they need to speak, in
    one bin of the votes and in one of the coordinates."""
    k, d, changed = plan.study.components, plan.study.dimension, plan.study.max_sites_per_person
    changed *= plan.study.neighbours.records
    epsilon = mu(part(plan.micro_rho, 0.9 / k))
    silence = math.log(ATTO * k / max(plan.atto_delta, 1))
    vote = 2 * changed / epsilon
    count = math.sqrt(d) * changed / epsilon
    return 1 + vote * (silence + math.log(2 * changed)), 1 + count * (silence + math.log(d * changed))


def records_needed(plan: Plan) -> int:
    """How many records a run of this plan needs in all, so that each question is likely to be answered."""
    votes, counts = needs(plan)
    return math.ceil(max(VOTED * votes * FEWEST, 3 * counts)) * plan.batches


def _warnings(plan: Plan, records: float) -> tuple[str, ...]:
    """It ships as a reference: the n that it needs is said with every result."""
    wanted = records_needed(plan)
    verdict = "has" if records >= wanted else "does not have"
    sentence = (
        f"dp-pca-single-pass is the paper's algorithm, kept as a reference: with {plan.batches} batches "
        f"it needs about {wanted} records at this epsilon and delta, which this study {verdict}; "
        "dp-pca needs fewer"
    )
    return (sentence,)


def _silent(plan: Plan) -> str:
    return (
        "for a component no step could be taken, as too few records agreed for the histograms to speak; "
        f"about {records_needed(plan)} records in all would do, or fewer batches, or use dp-pca"
    )


def _along(start: Centred, w: FloatArray) -> tuple[GradientSpec, float]:
    """The gradient along w, and how many integers a norm of 1 is: the gradients of the longest records seen
    just fit what may vote. Shape: w (d, 1)."""
    longest = max(start.norms.largest, 1e-6) ** 2
    shift = min(max(0, math.ceil(math.log2(float(S) ** 2 * FINE * longest / VOTE_LIMIT))), 60)
    fine = frozen(np.rint(w * FINE).astype(np.int64))
    spec = GradientSpec(centre=start.centre, directions=fine, offset=np.zeros_like(fine), shift=shift)
    return spec, float(S) ** 2 * FINE / 2.0**shift


def _pass(
    plan: Plan, start: Centred, once: Pass, w: FloatArray, found: FloatArray
) -> Generator[PricedQuery, Release, tuple[FloatArray, int]]:
    """All batches once, three a step; the direction, and how many steps were taken. Shape: w (d, 1).

    Every question is asked whatever the earlier ones said, so that rounds and prices are public. Where no bin
    spoke, nothing is taken from the step: a coordinate without a bin counts as 0, and before the first
    eigenvalue no step is taken; later ones make do with the last that was released.
    """
    spread, strength, taken = 0.0, Strength(1), 0
    records = start.records / once.size
    subsets = _subsets(plan, records)
    for t in range(once.size // QUESTIONS):
        spec, unit = _along(start, w)
        votes = yield once.about(Votes(spec=spec, edges=OCTAVES, subsets=subsets), NoiseLaw.STABILITY)
        spread = read_spread(votes) or spread
        bins = bins_for(spec, spread)
        counts = yield once.about(bins, NoiseLaw.STABILITY)
        box = box_for(bins, counts, spread)
        total = yield once.about(box)
        if not spread:
            continue
        sums = box.middles + total.values / records
        gradient = np.where(box.halves > 1, sums, 0.0)[:, None] / unit
        level = float(strength.after(w, gradient)[0])
        w, taken = apart(w + CANDIDATES[0].step(t, level) * gradient, found), taken + 1
    return w, taken


def _subsets(plan: Plan, records: float) -> int:
    """Subsets at each site: as many as the bin needs, if their records suffice."""
    wanted = min(VOTED * needs(plan)[0], max(records, 2.0) / FEWEST)
    return max(1, math.ceil(wanted / len(plan.study.federation.sites)))


def read_spread(votes: Release) -> float:
    """The square root of the fullest bin's eigenvalue, in units of a gradient; 0 if no bin spoke.

    The first bin, [0, 4), is read as 4: nothing finer can be told on the grid.
    """
    if not votes.values.any():
        return 0.0
    return math.sqrt(float(OCTAVES[max(int(np.argmax(votes.values)) - 1, 0)]) * 2)


def bins_for(spec: GradientSpec, spread: float) -> Coordinates:
    """The histogram of each coordinate, in bins of WIDTH spreads; before any eigenvalue, the widest bins."""
    most = MOST_BINS // 8
    width = math.ceil(WIDTH * spread) if spread else VOTE_LIMIT
    half = min(max(-(-VOTE_LIMIT // width), 1), most)
    return Coordinates(spec=spec, width=width, half=half)


def box_for(bins: Coordinates, counts: Release, spread: float) -> CoordinateClippedSum:
    """The box around each coordinate's fullest bin; a coordinate whose bins are silent gets the least."""
    table = counts.values.reshape(bins.histograms, 2 * bins.half)
    middles = (table.argmax(axis=1) - bins.half) * bins.width + bins.width // 2
    half = min(bins.width // 2 + math.ceil(REACH * spread), GRADIENT_LIMIT)
    spoken = table.any(axis=1)
    halves = np.where(spoken, max(half, 2), 0)
    if not spoken.any():
        halves = halves + 1  # a question that nobody reads, so that the next batch is asked in its round
    return CoordinateClippedSum(spec=bins.spec, middles=np.where(spoken, middles, 0), halves=halves)
