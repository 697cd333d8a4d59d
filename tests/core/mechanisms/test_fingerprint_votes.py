"""[P15] [P16] [P17] [P18] What is released of votes, computed from the discrete laws themselves, not from
their derivations.

The smallest delta at which two laws are (epsilon, delta)-indistinguishable is sum max(0, p - e^epsilon q). It
is computed here for every release, over pairs of counts that a person can turn into each other, and must not
exceed what is charged; and it must come near, so that the release is not needlessly silent. The same
computation catches each planted fault."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from eigenveil.accounting.zcdp import ATTO, MICRO, Neighbours, scale_of
from eigenveil.errors import Code
from eigenveil.mechanisms import apply_mechanism
from eigenveil.mechanisms.papers import subspaces
from eigenveil.noise.source import OsNoise
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.queries import CellVotes, Preimage, RankVotes, SpanGap, SpanVotes
from eigenveil.queries.papers.fingerprints import FINGERPRINT_WORDS, Cells, Pool, Subsamples, fingerprint
from tests.support import a_study, refused

ONE, REPLACED = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
KEY = np.arange(4)
BLOCKS = Subsamples(centre=np.zeros(3, dtype=np.int64), rank=2, count=40, key=KEY)
CELLS = Cells(centre=np.zeros(3, dtype=np.int64), rank=2, count=40, key=KEY, points=2, width=2**30)
POOL = Pool(centre=np.zeros(3, dtype=np.int64), rank=1, max_records=1000, truncated=False, key=KEY)
QUERIES: dict[str, SpanVotes | CellVotes] = {
    "span": SpanVotes(subsamples=BLOCKS),
    "cell": CellVotes(cells=CELLS, min_votes=1),
}
VoteQuery = SpanVotes | CellVotes | SpanGap | RankVotes | Preimage
EPSILONS = (0.3, 1.0, 2.5)
DELTA = 1e-6


def asking(query: VoteQuery, epsilon: float, delta: float = DELTA) -> PricedQuery:
    return PricedQuery(
        query=query,
        micro_rho=int(Fraction(epsilon) ** 2 * MICRO / 2),
        atto_delta=int(Fraction(delta) * ATTO),
        distribution=NoiseDistribution.GAUSSIAN,
    )


def distribution(scale: float, truncation_bound: int) -> FloatArray:
    """The discrete Laplace law on -reach..reach."""
    x = np.abs(np.arange(-truncation_bound, truncation_bound + 1))
    return np.asarray(np.exp(-x / scale) * math.tanh(1 / (2 * scale)))


def winners(counts: tuple[int, ...], scale: float, least: int) -> FloatArray:
    """The probability that each bin is named, and that none is. Shape: (bins + 1,)."""
    truncation_bound = int(60 * scale) + 10
    top = max((*counts, least)) + truncation_bound
    values = np.arange(least, top + 1)
    below = np.ones((len(counts), len(values)))  # P(noised count < v)
    at = np.zeros_like(below)
    for i, m in enumerate(counts):
        if m == 0:
            continue
        pmf = distribution(scale, top + truncation_bound)
        cdf = np.cumsum(pmf)
        place = values - m + top + truncation_bound
        at[i], below[i] = pmf[place], cdf[place - 1]
    named = np.zeros(len(counts) + 1)
    for i in range(len(counts)):
        others = np.ones(len(values))
        for j in range(len(counts)):  # of equal counts the first wins
            if j != i:
                others *= below[j] + (at[j] if j > i else 0)
        named[i] = float((at[i] * others).sum())
    named[-1] = 1 - named[:-1].sum()
    return named


def smallest_delta(p: FloatArray, q: FloatArray, epsilon: float) -> float:
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p)))


Pair = tuple[tuple[int, ...], tuple[int, ...]]


def pairs(kind: str, neighbours: Neighbours, least: int) -> list[Pair]:
    """Counts that one person can turn into each other; a bin of 0 has no votes."""
    single = neighbours is ONE
    out: list[Pair] = []
    for m in [0, 1, 2, 3, least // 2, least - 2, least - 1, least, least + 1, 2 * least]:
        appears: list[Pair] = [((m, 0, 0), (m, 1, 0)), ((m, 0, 0), (m + 1, 0, 0))]
        moved: list[Pair] = [((m + 1, 0, 0), (m, 1, 0)), ((m + 1, m, 0), (m, m + 1, 0))]
        twice: list[Pair] = [((m, 0, 0), (m, 2, 0)), ((m, 0, 0), (m, 1, 1)), ((m, 0, 0), (m + 2, 0, 0))]
        both: list[Pair] = [
            ((m + 2, 0, 0), (m, 2, 0)),
            ((m + 2, 0, 0), (m, 1, 1)),
            ((m + 2, m, 0), (m, m + 2, 0)),
        ]
        out += appears if single else appears + twice + moved
        if kind == "cell":
            out += moved if single else both
    return out


def worst_delta(kind: str, neighbours: Neighbours, epsilon: float, scale: float, least: int) -> float:
    return max(
        smallest_delta(winners(a, scale, least), winners(b, scale, least), epsilon)
        for a, b in pairs(kind, neighbours, least)
    )


def setting(kind: str, neighbours: Neighbours, epsilon: float) -> tuple[float, int, int]:
    study = a_study(neighbours=neighbours)
    appearing = study.changed_records
    scale = scale_of(QUERIES[kind].l1(neighbours) ** 2, asking(QUERIES[kind], epsilon).micro_rho)
    return scale, appearing, subspaces.vote_threshold(scale, appearing, DELTA)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("kind", QUERIES)
def test_the_winner_is_private_at_the_epsilon_and_delta_charged(
    kind: str, neighbours: Neighbours, epsilon: float
) -> None:
    scale, _, least = setting(kind, neighbours, epsilon)
    found = worst_delta(kind, neighbours, epsilon, scale, least)
    assert found <= DELTA * (1 + 1e-6)
    assert worst_delta(kind, neighbours, epsilon, scale, least - 2) > DELTA


def slots(*named: tuple[int, int]) -> IntArray:
    """`m` slots of a fingerprint, for each (fingerprint, m), and one empty one."""
    rows = [[mark] * FINGERPRINT_WORDS for mark, m in named for _ in range(m)]
    return frozen(np.array([*rows, [0] * FINGERPRINT_WORDS]).reshape(-1))


def test_no_votes_name_nothing_and_no_delta_is_refused() -> None:
    for total in (slots(), frozen([])):
        assert not apply_mechanism(asking(QUERIES["span"], 1.0), total, a_study(), OsNoise()).values.any()
    no_one = asking(SpanGap(pool=POOL), 1.0)
    assert not apply_mechanism(no_one, frozen([]), a_study(), OsNoise()).values.any()
    requests: list[VoteQuery] = [QUERIES["span"], SpanGap(pool=POOL), RankVotes(cells=CELLS)]
    for query in requests:
        with refused(Code.BAD_STUDY, "delta"):
            apply_mechanism(asking(query, 1.0, 0.0), frozen([0] * query.length), a_study(), OsNoise())


# ---------------------------------------------------------------- a lead with truncated Laplace noise


def named(margin: int, scale: float, bound: int) -> FloatArray:
    """P(nothing), P(named) at f = max(0, margin). Shape: (2,)."""
    x = np.arange(-bound, bound + 1)
    weights = np.exp(-np.abs(x) / scale)
    chance = float(weights[x > bound - max(0, margin)].sum() / weights.sum())
    return np.array([1 - chance, chance])


def gap_delta(changed: int, epsilon: float, scale: float, bound: int) -> float:
    return max(
        smallest_delta(named(f, scale, bound), named(f + step, scale, bound), epsilon)
        for f in range(3 * bound)
        for step in range(1, changed + 1)
    )


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.2])
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("changed", [1, 2, 3])
def test_a_lead_is_private_and_its_noise_reaches_no_further_than_it_must(
    changed: int, epsilon: float, delta: float
) -> None:
    scale = changed / epsilon
    bound = subspaces.truncation_bound(scale, changed, delta)
    assert gap_delta(changed, epsilon, scale, bound) <= delta * (1 + 1e-9)
    if bound > changed:
        assert gap_delta(changed, epsilon, scale, bound - 1) > delta
    continuous = changed / epsilon * math.log(1 + math.expm1(epsilon) / (2 * delta))
    assert continuous - changed - 1 <= bound <= continuous + changed + 1


# ---------------------------------------------------------------- the best of many trials


def best_of_trials(trial: FloatArray, stop: float) -> FloatArray:
    """The law of the best of a geometric number of trials, by its generating function."""
    better = 1 - np.cumsum(trial)  # outputs in rising order
    at_most = 1 - better

    def generating(y: FloatArray) -> FloatArray:
        return np.asarray(stop * y / (1 - (1 - stop) * y))

    return np.asarray(np.diff(generating(np.concatenate([[0.0], at_most]))))


class TrialNoise(NamedTuple):
    """Noise of one trial: discrete Laplace of `scale`, truncated at `bound` for the majority."""

    scale: float
    changed: int
    bound: int


def trial_distribution(rule: TrialNoise, candidates: list[tuple[int, int]], half: int) -> FloatArray:
    """The law of one trial: nothing, then (dimension, noised votes) in rising order."""
    truncation_bound = int(45 * rule.scale)
    out = []
    for proposed, agreed in candidates:
        clear = named(proposed - half // 2 - rule.changed, rule.scale, rule.bound)[1]
        scores = np.arange(-truncation_bound, truncation_bound + 1) + agreed
        chance = np.zeros(2 * truncation_bound + 200)
        wanted = scores > half // 2
        chance[scores[wanted] - half // 2] = clear * distribution(rule.scale, truncation_bound)[wanted]
        out.append(chance / len(candidates))
    flat = np.concatenate(out)
    return np.concatenate([[1 - flat.sum()], flat])


@pytest.mark.parametrize("neighbours", Neighbours)
def test_the_best_of_many_trials_costs_three_times_one(neighbours: Neighbours) -> None:
    """Exactly, over what a person can do to two dimensions' votes; a trial at the whole epsilon is caught."""
    changed, epsilon, stop, half = (a_study(neighbours=neighbours).changed_records, 1.0, 0.05, 40)
    for share, fine in ((3, True), (1, False)):
        scale = scale_of((share * changed) ** 2, 500_000)
        rule = TrialNoise(scale, changed, subspaces.truncation_bound(scale, changed, DELTA * stop))
        worst = 0.0
        for low in (half, half - changed, half // 2 + changed + 3, half // 2 + changed):
            for agreed in (half, half // 2):
                base = trial_distribution(rule, [(low, agreed), (low, agreed)], half)
                moves = [((low - m, agreed - changed + m),) * 2 for m in range(changed + 1)]
                moves += [((low - changed, agreed), (low, agreed)), ((low, agreed), (low, agreed - changed))]
                for move in moves:
                    other = trial_distribution(rule, list(move), half)
                    p, q = best_of_trials(base, stop), best_of_trials(other, stop)
                    worst = max(worst, smallest_delta(p, q, epsilon))
        assert (worst <= DELTA) is fine


# ---------------------------------------------------------------- fetching


def test_a_preimage_is_released_only_if_every_holder_answered() -> None:
    values = frozen([1, 2, 3, 4, 5, 6])
    query = Preimage(fingerprint=fingerprint(values), voting_sites=[0, 2], subsamples=BLOCKS)  # type: ignore[arg-type]
    study = a_study(sites=("anna", "bert", "carl"))
    full = frozen([0] * 7 + [1, *values])
    for present, message in (
        (("anna", "carl"), True),
        (("anna", "bert", "carl"), True),
        (("carl", "bert"), False),
    ):
        assert bool(subspaces.release_preimage(query, full, study, present).values.any()) is message
    assert not subspaces.release_preimage(query, frozen([0] * 14), study, ("anna", "carl")).values.any()


def test_an_epsilon_beyond_floats_hides_by_its_bound() -> None:
    assert subspaces.truncation_bound(1 / 800, 1, 1e-6) == 1


def test_a_pool_of_too_many_spans_is_refused() -> None:
    key = frozen([1, 2, 3, 4])
    with refused(Code.OVERFLOW, "spans"):
        Pool(centre=frozen([0] * 20), rank=10, max_records=32_768, truncated=True, key=key)
