"""A dimension and a cell of it, out of many candidates at three times the price of one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from eigenveil.accounting.zcdp import ATTO, scale_of
from eigenveil.errors import Code, RequestError
from eigenveil.mechanisms.fingerprint_votes import changed_votes, tally
from eigenveil.mechanisms.outcome import Outcome
from eigenveil.mechanisms.score_gap import clears, reach
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries import RankVotes
from eigenveil.queries.fingerprints import WORDS
from eigenveil.queries.subspaces import TRIAL_PRICE, TRIALS
from eigenveil.study.study import Study


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """What the subsamples say about one dimension: the leader among those that propose, its votes there, and
    its votes among those that agree. Shape: fingerprint (4,)."""

    fingerprint: IntArray
    proposed: int
    agreed: int


def candidates(query: RankVotes, total: IntArray) -> list[Candidate]:
    """One for each dimension from 1 on. Shape: total (sites rank subsamples 4,)."""
    half = query.cells.count // 2
    slots = total.reshape(-1, query.cells.rank, 2, half, WORDS)
    return [
        candidate(slots[:, i, 0].reshape(-1), slots[:, i, 1].reshape(-1)) for i in range(query.cells.rank)
    ]


def candidate(proposing: IntArray, agreeing: IntArray) -> Candidate:
    """Shape: (4 slots,) each."""
    found, counts = tally(proposing)
    if not len(counts):
        return Candidate(fingerprint=frozen([0] * WORDS), proposed=0, agreed=0)
    best = found[int(counts.argmax())]
    votes = int((agreeing.reshape(-1, WORDS) == best).all(axis=1).sum())
    return Candidate(fingerprint=best, proposed=int(counts.max()), agreed=votes)


def release(
    asked: RoundQuery, query: RankVotes, total: IntArray, study: Study, noise: NoiseSource
) -> Outcome:
    """The largest dimension that passed any of its trials, and its cell; or zeros.

    A trial takes a dimension at random, tests whether its leader has a clear majority among the subsamples
    that propose, and scores it by the noised votes of those that agree. After each trial the run ends with a
    fixed probability.

    Shape: total as `candidates` reads it; values (5,).
    Neighbours: as the study says.
    Sensitivity: a person's record changes D votes in all, each among those that propose or those that agree.
    Privacy: [P17].
    Cost: epsilon = sqrt(2 rho), a third of it a trial; asked.atto_delta, its share at each trial.

    Raises:
        RequestError: the question has no delta of its own.
    """
    stop = 1 / (TRIALS * query.cells.rank)
    delta = asked.atto_delta / ATTO * stop
    if asked.atto_delta < 1:
        raise RequestError(Code.BAD_STUDY, "votes are counted at a delta of their own; state delta > 0")
    changed = changed_votes(study)
    scale = scale_of((TRIAL_PRICE * changed) ** 2, asked.micro_rho)
    trial = Trial(scale=scale, changed=changed, bound=reach(scale, changed, delta))
    slots = total.size // (2 * WORDS * query.cells.rank)
    proposed, best = candidates(query, total), 0
    best_score = -1
    while True:
        chance = noise.uniform(2)
        i = min(int(chance[0] * len(proposed)), len(proposed) - 1)
        score = trial.score(proposed[i], slots, noise)
        if score is not None and (i, score) > (best - 1, best_score):
            best, best_score = i + 1, score
        if chance[1] < stop:
            break
    values = [best, *proposed[best - 1].fingerprint] if best else [0] * query.released
    return Outcome(values=frozen(values), sigma=math.sqrt(2) * scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The noise of one trial: discrete Laplace of `scale`, truncated at `bound` for the majority."""

    scale: float
    changed: int
    bound: int

    def score(self, candidate: Candidate, slots: int, noise: NoiseSource) -> int | None:
        """The noised votes of those that agree; None if either half of the `slots` has no clear majority."""
        majority = candidate.proposed - slots // 2 - self.changed
        clear = clears(majority, self.scale, self.bound, noise)
        block = Block(count=1, scale=self.scale, law=NoiseLaw.LAPLACE)
        noised = candidate.agreed + int(noise.draw(NoiseSpec(blocks=(block,)))[0])
        return noised if clear and noised > slots // 2 else None
