"""The auditor is audited: it sees noise that is too low, keeps quiet about honest noise, and is wrong no more
often than it says.

False-alarm rates: as stated where something is counted, else that of an alarm, 1e-6 (see `audit`). Power: the
planted faults here lie more than 6 standard deviations of the bound above the claim, and so are missed less
than once in 10^8 runs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, ndtr

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
    events,
    limits,
    proven,
)
from tests.statistical.noises import Bulk

SHIFT = 1000
SAMPLES = 20_000  # ten times fewer than the audits of the suite
TRUSTWORTHY = 1e-6


def shifted(law: NoiseDistribution, claim: Claim, scale: float) -> Mechanism:
    """One number, SHIFT larger with the record, and noise from the gateway."""

    def attack(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        spec = NoiseSpec(blocks=(Block(count=m, scale=scale, law=law),))
        return noise.draw(spec).astype(np.float64), SHIFT + noise.draw(spec).astype(np.float64)

    return Mechanism(name="a number", kind="count", claim=claim, attack=attack, tight=0.9)


HONEST = {
    "gaussian, mu = 0.5": shifted(NoiseDistribution.GAUSSIAN, Gaussian(mu=0.5), SHIFT / 0.5),
    "gaussian, mu = 2": shifted(NoiseDistribution.GAUSSIAN, Gaussian(mu=2.0), SHIFT / 2),
    "laplace, epsilon = 1": shifted(NoiseDistribution.LAPLACE, Approximate(epsilon=1.0), SHIFT / 1),
    "laplace, epsilon = 2": shifted(NoiseDistribution.LAPLACE, Approximate(epsilon=2.0), SHIFT / 2),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_noise_raises_no_alarm_and_nearly_its_claim_is_proven(name: str) -> None:
    verdict = audit(HONEST[name], Bulk(), SAMPLES)
    assert not verdict.alarm
    assert max(verdict.proven) >= 0.75 * verdict.claimed


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


def test_noise_a_tenth_too_high_proves_less() -> None:
    verdict = audit(HONEST["gaussian, mu = 2"], Bulk(1.1), SAMPLES)
    assert not verdict.alarm
    assert max(verdict.proven) < 0.93 * verdict.claimed


def test_at_the_edge_of_a_claim_it_errs_no_more_often_than_it_says() -> None:
    """200 audits of noise that is exactly as loud as claimed. False-alarm rate of this test: below 1e-6."""
    rng, audits = np.random.default_rng(11), 200
    most = stats.binom.isf(TRUSTWORTHY, audits, 1 - CONFIDENCE)
    for claim, law in ((Gaussian(mu=1.0), rng.normal), (Approximate(epsilon=1.0), rng.laplace)):
        wrong = [proven(claim, law(0, 1, 2000), law(1, 1, 2000)) > claim.mu for _ in range(audits)]
        assert sum(wrong) <= most


def test_an_alarm_needs_three_audits_in_a_row() -> None:
    """0.01^3 = 1e-6 for each mechanism."""
    assert pytest.approx(TRUSTWORTHY) == (1 - CONFIDENCE) ** REPEATS
    assert Verdict(claimed=1.0, proven=(1.1, 1.2, 1.3)).alarm
    assert not Verdict(claimed=1.0, proven=(1.1, 1.2, 0.99)).alarm
    asked = []

    def lucky(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        """Tells everything the first time only."""
        asked.append(m)
        return np.zeros(m), np.full(m, float(len(asked) == 1))

    mechanism = Mechanism(name="lucky", kind="count", claim=Gaussian(mu=1.0), attack=lucky, tight=0.0)
    verdict = audit(mechanism, Bulk(), 1000)
    assert len(verdict.proven) == len(asked) == 2
    assert not verdict.alarm


@pytest.mark.parametrize(("hits", "n"), [(0, 1000), (1, 1000), (370, 1000), (999, 1000), (1000, 1000)])
def test_the_limits_are_those_of_clopper_and_pearson(hits: int, n: int) -> None:
    """A rate is outside its limit with probability at most 0.5 %, whatever it is."""
    least, most = limits(np.array([hits]), np.array([hits]), n)
    tail = (1 - CONFIDENCE) / 2
    if hits:
        assert stats.binom.sf(hits - 1, n, least[0]) == pytest.approx(tail)
    if hits < n:
        assert stats.binom.cdf(hits, n, most[0]) == pytest.approx(tail)
    assert least[0] <= hits / n <= most[0]


def test_the_curves_are_those_of_the_claims() -> None:
    """An event on the curve needs exactly the claimed mu; one inside needs less."""
    rare = np.array([0.01, 0.1, 0.4])
    for mu in (0.5, 3.0):
        likely = ndtr(stats.norm.ppf(rare) + mu)
        assert Gaussian(mu=mu).needed(likely, rare) == pytest.approx([mu] * 3)
        assert Gaussian(mu=mu, delta=0.01).needed(likely + 0.01, rare) == pytest.approx([mu] * 3)
        assert (Gaussian(mu=mu, delta=0.01).needed(likely, rare) < mu).all()
    for epsilon in (0.5, 1.0):
        claim = Approximate(epsilon=epsilon, delta=0.02)
        assert claim.needed(math.exp(epsilon) * rare + 0.02, rare) == pytest.approx([claim.mu] * 3)
        assert ndtr(claim.mu / 2) == pytest.approx(expit(epsilon))  # where the two curves touch
    assert Approximate(epsilon=1.0, delta=0.02).needed(np.array([0.01]), rare[:1]) == -math.inf


def test_every_event_is_tried_from_both_sides() -> None:
    """A record that makes values smaller, or rarer in the middle of ties, is found like any other."""
    rng = np.random.default_rng(2)
    low, high = rng.normal(0, 1, SAMPLES), rng.normal(2, 1, SAMPLES)
    bounds = [proven(Gaussian(mu=2.0), *sides) for sides in ((low, high), (high, low), (-low, -high))]
    assert bounds == pytest.approx([1.92] * 3, abs=0.12)
    absent, present = (rng.random(SAMPLES) < rate for rate in (0.1, 0.3))
    expected = stats.norm.ppf(0.3) - stats.norm.ppf(0.1)
    for one, other in ((absent, present), (present, absent), (~absent, ~present)):
        bound = proven(Gaussian(mu=2.0), one.astype(np.float64), other.astype(np.float64))
        assert 0.7 * expected <= bound <= expected


def test_the_event_is_chosen_without_a_look_at_the_half_that_tests_it() -> None:
    """Planted: values that are unique to their half. A chooser that saw both would find an event of them."""
    m = 2000
    same = np.concatenate([np.zeros(m // 2), np.ones(m // 2)])
    telling = np.concatenate([np.zeros(m // 2), np.full(m // 2, 2.0)])
    assert candidates(np.concatenate([same[: m // 2], telling[: m // 2]])).tolist() == [0.0]
    assert proven(Gaussian(mu=1.0), same, telling) == 0.0


def test_rates_of_all_eight_kinds_of_event() -> None:
    likely, rare = events(np.array([0.0, 1.0]), np.array([1.0, 2.0]), np.array([1.0]))
    assert likely.tolist() == [1, 2, 2, 1, 0, 1, 1, 0]
    assert rare.tolist() == [0, 1, 1, 0, 1, 2, 2, 1]


def test_what_is_the_same_on_both_sides_proves_nothing() -> None:
    rng = np.random.default_rng(3)
    assert proven(Gaussian(mu=1.0), rng.normal(size=SAMPLES), rng.normal(size=SAMPLES)) < 0.08
    assert proven(Approximate(epsilon=1.0), np.zeros(SAMPLES), np.zeros(SAMPLES)) < 0.05


def test_noise_in_bulk_is_handed_out_once() -> None:
    """Its law is that of `OsNoise` (test_noise): it only asks for more at once."""
    noise, spec = Bulk(), NoiseSpec(blocks=(Block(count=3, scale=2.0**40), Block(count=1, scale=1e9)))
    drawn = np.array([noise.draw(spec) for _ in range(2000)])
    assert len(np.unique(drawn[:, :3])) == 6000
    assert drawn[:, 3].std() == pytest.approx(1e9, rel=0.15)
    assert len(np.unique([noise.uniform(5) for _ in range(2000)])) == 10_000
