"""Mechanisms that release the fingerprint of a subspace, and the preimage that it determines without noise.

- `release_most_voted`: a stability histogram that releases only the winner.
- `release_leading_span`: truncated Laplace noise on the distance to a data set with another best candidate.
- `release_rank`: a dimension and its cell from many candidates, at three times the cost of one."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from eigenveil.accounting.zcdp import scale_of
from eigenveil.errors import Code, InternalError
from eigenveil.mechanisms.result import MechanismResult, required_delta
from eigenveil.noise.source import NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import IntArray, add_noise, frozen
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.queries import CellVotes, Preimage, RankVotes, SpanGap, SpanVotes
from eigenveil.queries.papers.fingerprints import FINGERPRINT_WORDS
from eigenveil.queries.papers.subspaces import TRIAL_COST, TRIALS
from eigenveil.study.study import Study

SLACK = 1 + 2.0**-40  # for the logarithms


def vote_threshold(scale: float, appearing: int, delta: float) -> int:
    """Return the least noised count that is released.

    With r = exp(-1 / b), noise reaches x >= 1 with probability r^x / (1 + r). A person's
    votes fill empty bins with m_1, m_2, ... votes, `appearing` in total. One of these bins reaches t with
    probability at most sum_i r^(t - m_i) / (1 + r). As r^-m / m is log-convex in m, the maximum is at bins of
    1 or at one bin of all. Delta is at most 1 / (2 b), so that the suppression of a bin costs less than the
    epsilon that its votes did not use [P15]."""
    small = min(delta, 1 / (2 * scale)) * (1 + math.exp(-1 / scale))
    suppression_margin = -scale * math.log(small)
    suppression_margin *= SLACK if suppression_margin > 0 else 1 / SLACK
    many = 1 + suppression_margin + scale * math.log(appearing) * SLACK
    return max(math.ceil(many), math.ceil(appearing + suppression_margin), appearing + 1)


def count_votes(total: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct fingerprints, in order, and their votes. Shape: (4 slots,) -> (m, 4), (m,)."""
    slots = total.reshape(-1, FINGERPRINT_WORDS)
    found, counts = np.unique(slots[slots.any(axis=1)], axis=0, return_counts=True)
    return found, counts.astype(np.int64)


def release_most_voted(
    priced: PricedQuery, query: SpanVotes | CellVotes, total: IntArray, study: Study, noise: NoiseSource
) -> MechanismResult:
    """Release the fingerprint with the largest noised count; zeros below threshold or `min_votes`.

    Noise is drawn for every slot, so that the running time reveals nothing.

    Shape: total (4 slots,), the sites' slots concatenated; values (4,).
    Sensitivity: query.l1, at each of a person's sites.
    Privacy: [P15].
    Cost: epsilon = sqrt(2 rho), and priced.atto_delta.

    Raises:
        RequestError: the query has no delta."""
    delta = required_delta(priced, "a count of votes")
    l1 = query.l1(study.neighbours) * study.max_sites_per_person
    scale = scale_of(l1**2, priced.micro_rho)
    spec = NoiseSpec.of(total.size // FINGERPRINT_WORDS, scale, NoiseDistribution.LAPLACE)
    drawn = noise.draw(spec) if total.size else frozen([])
    least = max(vote_threshold(scale, study.changed_records, delta), query.min_votes)
    found, counts = count_votes(total)
    noised = add_noise(counts, drawn[: len(counts)])
    wins = len(noised) and noised.max() >= least
    return MechanismResult(frozen(found[noised.argmax()] if wins else [0] * FINGERPRINT_WORDS), spec.sigma)


DRAWS = 8  # drawn together; one of them nearly always lies within the support


def truncation_bound(scale: float, changed: int, delta: float) -> int:
    """Return the least A at which noise of scale b on {-A, ..., A} hides a change of `changed` but for delta.

    With r = exp(-1 / b), the distribution is r^|x| / Z with Z = (1 + r - 2 r^(A+1)) / (1 - r). Shifted by
    D = changed, the D outermost points are uncovered: r^(A+1) (r^-D - 1) / (1 + r - 2 r^(A+1)), which is at
    most delta from r^(A+1) = delta (1 + r) / (r^-D - 1 + 2 delta) down. In the limit r -> 1 that is
    A = (D / epsilon) ln(1 + (e^epsilon - 1) / (2 delta)), as in [SUB]. Elsewhere the ratio is at most r^-D
    [P16]."""
    # Beyond e^700 floats overflow, and one point on either side suffices already.
    moved = math.expm1(min(changed / scale, 700.0))
    ratio = delta * (1 + math.exp(-1 / scale)) / (moved + 2 * delta)
    return max(math.ceil(-scale * math.log(ratio) * SLACK) - 1, changed)


def exceeds_noise(margin: int, scale: float, bound: int, noise: NoiseSource) -> bool:
    """Return True if the noised margin exceeds all noise alone; never for a margin of 0 or less.

    Noise is from r^|x| / Z on {-bound, ..., bound}, by rejection. Whether all draws miss does not depend on
    data, so the answer may then be False."""
    drawn = noise.draw(NoiseSpec.of(DRAWS, scale, NoiseDistribution.LAPLACE))
    within = drawn[np.abs(drawn) <= bound]
    return bool(within.size) and max(0, margin) + int(within[0]) > bound


def release_leading_span(
    priced: PricedQuery, query: SpanGap, total: IntArray, study: Study, noise: NoiseSource
) -> MechanismResult:
    """Release the fingerprint of the best span if its lead over the second best is large; or zeros.

    The printed algorithm adds noise to every span of records, and so reveals a random one if none leads. Here
    nothing is released unless the lead minus the noise is certainly above 0.

    Shape: total (6,) from the one site, or nothing; values (4,).
    Sensitivity: D = a person's change of a score; the lead minus D changes by at most D.
    Privacy: [P16].
    Cost: epsilon = sqrt(2 rho), and priced.atto_delta.

    Raises:
        RequestError: the query has no delta."""
    delta = required_delta(priced, "the test of a lead")
    if total.size not in (0, query.length):
        raise InternalError(Code.BUG, "the lead of a span needs the answer of exactly one site")
    changed = query.gap_sensitivity(study.neighbours) * study.max_sites_per_person
    scale = scale_of(changed**2, priced.micro_rho)
    bound = truncation_bound(scale, changed, delta)
    margin = int(total[0]) - int(total[1]) - changed if total.size else 0
    values = total[2:] if exceeds_noise(margin, scale, bound, noise) else [0] * FINGERPRINT_WORDS
    return MechanismResult(frozen(values), math.sqrt(2) * scale)


class Candidate(NamedTuple):
    """Candidate of one dimension: its fingerprint, and its votes among proposing and confirming subsamples.
    Shape: fingerprint (4,)."""

    fingerprint: IntArray
    proposed: int
    agreed: int


def candidates(query: RankVotes, total: IntArray) -> list[Candidate]:
    """Return the candidate of each dimension from 1 on. Shape: total (sites rank subsamples 4,)."""
    rank, half = query.cells.rank, query.cells.count // 2
    slots = total.reshape(-1, rank, 2, half, FINGERPRINT_WORDS)
    return [candidate(slots[:, i, 0].reshape(-1), slots[:, i, 1].reshape(-1)) for i in range(rank)]


def candidate(proposing: IntArray, agreeing: IntArray) -> Candidate:
    """Return the candidate of one dimension. Shape: (4 slots,) each."""
    found, counts = count_votes(proposing)
    if not len(counts):
        return Candidate(frozen([0] * FINGERPRINT_WORDS), 0, 0)
    best = found[int(counts.argmax())]
    votes = int((agreeing.reshape(-1, FINGERPRINT_WORDS) == best).all(axis=1).sum())
    return Candidate(best, int(counts.max()), votes)


def release_rank(
    priced: PricedQuery, query: RankVotes, total: IntArray, study: Study, noise: NoiseSource
) -> MechanismResult:
    """Release the largest dimension that passed one of its trials, and its cell; or zeros.

    A trial draws a dimension and tests its candidate for a clear majority of the proposing subsamples. Its
    score is the noised votes of the confirming ones. After each trial the run ends with a fixed probability.

    Shape: total as `candidates` reads it; values (5,).
    Sensitivity: a person changes D votes in total, each proposing or confirming.
    Privacy: [P17].
    Cost: epsilon = sqrt(2 rho), a third of it a trial; priced.atto_delta, a share of it each trial.

    Raises:
        RequestError: the query has no delta."""
    stop = 1 / (TRIALS * query.cells.rank)
    delta = required_delta(priced, "a count of votes") * stop
    changed = study.changed_records
    scale = scale_of((TRIAL_COST * changed) ** 2, priced.micro_rho)
    bound = truncation_bound(scale, changed, delta)
    half = total.size // (2 * FINGERPRINT_WORDS * query.cells.rank) // 2
    proposed, best = candidates(query, total), 0
    best_score = -1
    while True:
        chance = noise.uniform(2)
        i = min(int(chance[0] * len(proposed)), len(proposed) - 1)
        # Both halves of the slots need a clear majority; the score is the noised confirming votes.
        clear = exceeds_noise(proposed[i].proposed - half - changed, scale, bound, noise)
        score = proposed[i].agreed + int(noise.draw(NoiseSpec.of(1, scale, NoiseDistribution.LAPLACE))[0])
        if clear and score > half and (i, score) > (best - 1, best_score):
            best, best_score = i + 1, score
        if chance[1] < stop:
            break
    values = [best, *proposed[best - 1].fingerprint] if best else [0] * query.released_length
    return MechanismResult(frozen(values), math.sqrt(2) * scale)


def release_preimage(
    query: Preimage, total: IntArray, study: Study, present: tuple[str, ...]
) -> MechanismResult:
    """Release the values with that fingerprint, after a 1; zeros if a voting site is absent.

    Shape: total (sites, 1 + size) flat, every row zeros or checked against the fingerprint on receipt;
    values (1 + size,).
    Sensitivity: none. The fingerprint was released and determines its values (SHA-256 has no known
    collision), and a voting site has them; presence is public. Without the check, a round with only some
    of these sites would reveal whether they have a subsample with that vote.
    Privacy: [P18]."""
    rows = total.reshape(-1, query.length)
    known = rows[rows[:, 0] == 1]
    holders = {study.federation.sites[place] for place in query.voting_sites}
    complete = holders <= set(present)
    return MechanismResult(frozen(known[0] if complete and len(known) else [0] * query.length))
