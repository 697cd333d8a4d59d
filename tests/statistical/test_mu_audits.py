"""[P2] [P3] [P9] [P10] [P11] [P12] [P13] [P15] [P16] [P17] [P19] [P20] [P21] [P22] [P23] [P24] [P26] [P28] No
attacker proves more than was claimed, for every mechanism that releases anything.

Each audit: 200,000 releases a side, a lower bound for mu at 99 % confidence, at most the claim. Fewer where a
release takes a millisecond; those say so. False-alarm rate: 1e-6 for each mechanism, as an alarm needs three
audits in a row (see `audit`); for all of them together below 1e-4. Each audit must also prove a good part of
its claim, or where no pair of data sets comes near it, what it is known to show.

The default suite runs most of them with 20,000 releases a side, and `test_aim` sees that every attack looks
where its data sets differ; `make audit` runs all, in full."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec, noise_spec
from eigenveil.numerics.encoding import FloatArray
from eigenveil.queries import KINDS, Count
from tests.core.queries.kinds import SUM
from tests.statistical.audit import Gaussian, Mechanism, audit
from tests.statistical.behind import BEHIND
from tests.statistical.checks import discrete_normal, rounded_normal
from tests.statistical.counted import COUNTED
from tests.statistical.mechanisms import ADDITIVE, COST, LEVEL
from tests.statistical.noises import Bulk

MECHANISMS = {mechanism.name: mechanism for mechanism in (*ADDITIVE, *COUNTED, *BEHIND)}
# Drawn one by one, 50 microseconds each; 130 numbers a release; a mu so small that few releases prove little.
SLOW = {"span-votes", "span-gap", "radius-search", "subspace", "column-histograms", "shuffled-record"}
QUICK = [name for name, m in MECHANISMS.items() if m.tight >= 0.6 and m.kind not in SLOW]
FREE = {"preimage"}  # releases what a released fingerprint already determines [P18]


def proven_share(mechanism: Mechanism, samples: int | None = None) -> float:
    """Part of the claim that an audit proves, without an alarm."""
    verdict = audit(mechanism, Bulk(), samples)
    assert not verdict.alarm
    return max(verdict.proven) / verdict.claimed


@pytest.mark.parametrize("name", QUICK)
def test_no_attacker_proves_more_than_was_claimed_with_few_releases(name: str) -> None:
    """A tenth of the releases prove 0.84 of the claim or more where all prove 0.95; three quarters of the
    stated power lie more than 6 standard deviations of the bound, 0.02 mu, below that."""
    tight = MECHANISMS[name].tight
    least = 0.75 if tight >= 0.95 else 0.75 * tight
    assert proven_share(MECHANISMS[name], 20_000) >= least


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MECHANISMS)
def test_no_attacker_proves_more_than_was_claimed(name: str) -> None:
    assert proven_share(MECHANISMS[name]) >= MECHANISMS[name].tight


def test_every_kind_of_query_is_audited() -> None:
    assert {mechanism.kind for mechanism in MECHANISMS.values()} | FREE == set(KINDS)
    assert len(MECHANISMS) == len(ADDITIVE) + len(COUNTED) + len(BEHIND)


FIRST = 0.25  # of the price, for a first release
PATHS = ((), (0.75,), (0.25, 0.25, 0.25))  # for more, as that one speaks against the record, hardly, for it


def chosen_by_results(more: float) -> Mechanism:
    """One sum queried again and again by an analyst who decides by the results so far how often, and at
    which shares (times `more`) of the cost. Released is the evidence for the record in all of them."""

    def evidence(share: float, noise: NoiseSource, m: int, present: bool) -> FloatArray:
        """Shape: (m,)."""
        sigma = noise_spec(SUM, round(COST * share), Neighbours.ADD_REMOVE).sigma
        drawn = noise.draw(NoiseSpec(blocks=(Block(count=m, scale=sigma),)))
        shift = math.sqrt(SUM.l2_squared(Neighbours.ADD_REMOVE))
        return np.asarray((drawn + shift * present - shift / 2) * shift / sigma**2)

    def attack(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        found = []
        for present in (False, True):
            known = evidence(FIRST, noise, m, present)
            paths = [
                sum((evidence(more * x, noise, m, present) for x in path), np.zeros(m)) for path in PATHS
            ]
            found.append(known + np.choose(np.digitize(known, [-1.0, 0.5]), paths))
        return found[0], found[1]

    return Mechanism(name="adaptive", kind="clipped-sum", claim=Gaussian(mu=LEVEL), attack=attack, tight=0.75)


def test_adaptively_chosen_costs_prove_no_more_than_the_mu_of_their_sum() -> None:
    """[P4] Squares of adaptively chosen mu add up. Planted: a third more for what comes second is seen."""
    assert proven_share(chosen_by_results(1.0)) >= 0.75
    assert audit(chosen_by_results(4 / 3), Bulk()).alarm


def test_the_noise_of_a_count_is_gaussian_dp_at_any_scale() -> None:
    """[P26] Rounding is all that happens to a normal law, so no event tells more than mu, as loud or quiet
    as it may be. Of the discrete Gaussian "at least one" tells 2.48 where mu = 2 was paid."""
    sigma = noise_spec(Count(), COST, Neighbours.ADD_REMOVE).sigma
    assert sigma == pytest.approx(0.5)
    for scale, shift in ((0.3, 1), (sigma, 1), (1.0, 1), (1.0, 3), (25.0, 50)):
        assert proven_mu(rounded_normal(scale, math.ceil(9 * scale)), shift) <= shift / scale * (1 + 1e-6)
    assert proven_mu(discrete_normal(sigma, 5), 1) > 1.2 / sigma


def proven_mu(distribution: FloatArray, shift: int) -> float:
    """The largest mu that an event proves of an exact law, moved by `shift`."""
    tail = np.cumsum(distribution[::-1])[::-1]  # P[X >= x]
    rare, likely = tail[shift:], tail[:-shift]
    inside = (rare > 1e-9) & (likely < 1 - 1e-9)
    return float((ndtri(likely[inside]) - ndtri(rare[inside])).max())
