"""Which fingerprint has enough votes: a stability histogram of which only the winner is spoken of."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.accounting.zcdp import ATTO, scale_of
from eigenveil.errors import Code, RequestError
from eigenveil.mechanisms.outcome import Outcome
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import IntArray, added, frozen
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries import CellVotes, SpanVotes
from eigenveil.queries.fingerprints import WORDS
from eigenveil.study.study import Study

SLACK = 1 + 2.0**-40  # for the logarithms


def changed_votes(study: Study) -> int:
    """How many votes one person can make appear: one at each of their sites, two when replaced."""
    return study.max_sites_per_person * study.neighbours.records


def threshold(scale: float, appearing: int, delta: float) -> int:
    """The least noised count that is spoken of.

    With r = exp(-1 / b), noise reaches x >= 1 with probability r^x / (1 + r). Votes that a person makes
    appear fill empty bins with m_1, m_2, ... of them, `appearing` in all, and one of these bins reaches t
    with probability at most sum_i r^(t - m_i) / (1 + r). As r^-m / m is log-convex in m, that is largest for
    bins of 1 or for one bin of all. As delta, at most 1 / (2 b) is used, so that a bin that falls silent
    costs less than the epsilon that its votes did not use [P15].
    """
    small = min(delta, 1 / (2 * scale)) * (1 + math.exp(-1 / scale))
    silent = -scale * math.log(small)
    silent *= SLACK if silent > 0 else 1 / SLACK
    many = 1 + silent + scale * math.log(appearing) * SLACK
    return max(math.ceil(many), math.ceil(appearing + silent), appearing + 1)


def tally(total: IntArray) -> tuple[IntArray, IntArray]:
    """The fingerprints that were voted for, in order, and their votes. Shape: (4 slots,) -> (m, 4), (m,)."""
    slots = total.reshape(-1, WORDS)
    found, counts = np.unique(slots[slots.any(axis=1)], axis=0, return_counts=True)
    return found, counts.astype(np.int64)


def release(
    asked: RoundQuery, query: SpanVotes | CellVotes, total: IntArray, study: Study, noise: NoiseSource
) -> Outcome:
    """The fingerprint with the largest noised count, or zeros where that is below the threshold or `least`.

    Noise is drawn for every slot, used or not, so that how long it takes says nothing.

    Shape: total (4 slots,), the sites' slots one after the other; values (4,).
    Neighbours: as the study says.
    Sensitivity: query.l1, at every site that a person may be at.
    Privacy: [P15].
    Cost: epsilon = sqrt(2 rho), and asked.atto_delta.

    Raises:
        RequestError: the question has no delta of its own.
    """
    if asked.atto_delta < 1:
        raise RequestError(Code.BAD_STUDY, "votes are counted at a delta of their own; state delta > 0")
    l1 = query.l1(study.neighbours) * study.max_sites_per_person
    scale = scale_of(l1**2, asked.micro_rho)
    spec = NoiseSpec(blocks=(Block(count=total.size // WORDS, scale=scale, law=NoiseLaw.LAPLACE),))
    drawn = noise.draw(spec) if total.size else frozen([])
    least = max(threshold(scale, changed_votes(study), asked.atto_delta / ATTO), query.least)
    return Outcome(values=frozen(winner(total, drawn, least)), sigma=spec.sigma)


def winner(total: IntArray, drawn: IntArray, least: int) -> IntArray:
    """The fingerprint whose noised count is largest, if it reaches `least`; or zeros. Shape: -> (4,)."""
    found, counts = tally(total)
    noised = added(counts, drawn[: len(counts)])
    if not len(noised) or noised.max() < least:
        return np.zeros(WORDS, dtype=np.int64)
    return np.asarray(found[int(noised.argmax())], dtype=np.int64)
