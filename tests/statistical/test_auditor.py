"""The auditor is audited: it sees noise that is too low, keeps quiet about honest noise, and is wrong no more
often than it says.

False-alarm rates: as stated where something is counted, else that of an alarm, 1e-6 (see `audit`). Power: the
planted faults here lie more than 6 standard deviations of the bound above the claim, and so are missed less
than once in 10^8 runs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray
from eigenveil.protocol.query import NoiseDistribution
from tests.statistical.audit import (
    CONFIDENCE,
    REPEATS,
    Approximate,
    Claim,
    Gaussian,
    Mechanism,
    Verdict,
    audit,
    candidates,
    proven,
)
from tests.statistical.noises import Bulk

SHIFT = 1000
SAMPLES = 20_000  # ten times fewer than the audits of the suite
TRUSTWORTHY = 1e-6


def shifted(distribution: NoiseDistribution, claim: Claim, scale: float) -> Mechanism:
    """One number, SHIFT larger with the record, and noise from the gateway."""

    def attack(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        spec = NoiseSpec(blocks=(Block(count=m, scale=scale, distribution=distribution),))
        return noise.draw(spec).astype(np.float64), SHIFT + noise.draw(spec).astype(np.float64)

    return Mechanism(name="a number", kind="count", claim=claim, attack=attack, tight=0.9)


HONEST = {
    "gaussian, mu = 0.5": shifted(NoiseDistribution.GAUSSIAN, Gaussian(mu=0.5), SHIFT / 0.5),
    "gaussian, mu = 2": shifted(NoiseDistribution.GAUSSIAN, Gaussian(mu=2.0), SHIFT / 2),
    "laplace, epsilon = 1": shifted(NoiseDistribution.LAPLACE, Approximate(epsilon=1.0), SHIFT / 1),
    "laplace, epsilon = 2": shifted(NoiseDistribution.LAPLACE, Approximate(epsilon=2.0), SHIFT / 2),
}


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("gaussian, mu = 2", SAMPLES),
        *(pytest.param(name, 10 * SAMPLES, marks=pytest.mark.slow) for name in HONEST),
    ],
)
def test_noise_a_tenth_too_low_is_caught(name: str, samples: int) -> None:
    verdict = audit(HONEST[name], Bulk(0.9), samples)
    assert verdict.alarm
    assert len(verdict.proven) == REPEATS


def test_at_the_edge_of_a_claim_it_errs_no_more_often_than_stated() -> None:
    """100 audits of noise that is exactly as loud as claimed. False-alarm rate of this test: below 1e-6."""
    rng, audits = np.random.default_rng(11), 100
    most = stats.binom.isf(TRUSTWORTHY, audits, 1 - CONFIDENCE)
    for claim, distribution in ((Gaussian(mu=1.0), rng.normal), (Approximate(epsilon=1.0), rng.laplace)):
        wrong = [
            proven(claim, distribution(0, 1, 2000), distribution(1, 1, 2000)) > claim.mu
            for _ in range(audits)
        ]
        assert sum(wrong) <= most


def test_an_alarm_needs_three_audits_in_a_row() -> None:
    """0.01^3 = 1e-6 for each mechanism."""
    assert pytest.approx(TRUSTWORTHY) == (1 - CONFIDENCE) ** REPEATS
    assert Verdict(claimed=1.0, proven=(1.1, 1.2, 1.3)).alarm
    assert not Verdict(claimed=1.0, proven=(1.1, 1.2, 0.99)).alarm
    round_query = []

    def lucky(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        """Tells everything the first time only."""
        round_query.append(m)
        return np.zeros(m), np.full(m, float(len(round_query) == 1))

    mechanism = Mechanism(name="lucky", kind="count", claim=Gaussian(mu=1.0), attack=lucky, tight=0.0)
    verdict = audit(mechanism, Bulk(), 1000)
    assert len(verdict.proven) == len(round_query) == 2
    assert not verdict.alarm


def test_the_event_is_chosen_without_a_look_at_the_half_that_tests_it() -> None:
    """Planted: values that are unique to their half. A chooser that saw both would find an event of them."""
    m = 2000
    same = np.concatenate([np.zeros(m // 2), np.ones(m // 2)])
    telling = np.concatenate([np.zeros(m // 2), np.full(m // 2, 2.0)])
    assert candidates(np.concatenate([same[: m // 2], telling[: m // 2]])).tolist() == [0.0]
    assert proven(Gaussian(mu=1.0), same, telling) == 0.0
