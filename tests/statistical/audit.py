"""The auditor: what an attacker can prove about a mechanism from its releases on two neighbouring data sets.

An attack is a test of "the record is there": an event, and how often it happens on either data set. A claim
limits how likely an event may be on one of them if it is rare on the other; turned round, every event proves
a least mu (Gaussian DP, the currency of all audits). `proven` takes m releases a side: with the first half it
chooses the event, with the second half it bounds both of its probabilities (Clopper-Pearson, (1 - CONFIDENCE)
/ 2 each), so what it proves is wrong with probability at most 1 - CONFIDENCE, whatever the mechanism, however
the event was chosen, and even if both sides were given the same noise.

False-alarm rate, exactly: one audit at 99 % would fail an honest mechanism in up to one run of 100. So
`audit` alarms only if REPEATS = 3 audits in a row, each of fresh releases, all prove more than was claimed:
at most 0.01^3 = 1e-6 for each mechanism, 1e-4 for a hundred of them.

Power: between Gaussians mu = 2 apart, the best event has the rates 0.16 and 0.84, and m = 200,000 releases
prove mu less 2 x 2.58 x sqrt(2.28 / 100,000) = 0.025 on average, with a standard deviation of 0.007. Noise
10 % too low makes mu 0.22 larger, 28 standard deviations above the alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit, ndtri
from scipy.stats import beta

from eigenveil.noise.source import NoiseSource
from eigenveil.numerics.encoding import FloatArray

CONFIDENCE = 0.99
REPEATS = 3
SAMPLES = 200_000  # a side
THRESHOLDS = 400  # that the first half is searched for
CHOOSING = 1e-6  # bounds this cautious choose the event: of 3,200, none may win by luck

# A number for each of m independent releases: of the data set without the record, and of the one with it.
Attack = Callable[[NoiseSource, int], tuple[FloatArray, FloatArray]]


class Claim(Protocol):
    """Limit on telling neighbours apart."""

    @property
    def mu(self) -> float:
        """The claim as a mu."""

    def needed(self, likely: FloatArray, rare: FloatArray) -> FloatArray:
        """The least mu at which an event may be this `likely` on one side and this `rare` on the other;
        -inf where it proves nothing. Shape: (events,) each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussian:
    """mu-GDP but for `delta`: likely <= Phi(probit(rare) + mu) + delta. Noise that costs rho: sqrt(2 rho)."""

    mu: float
    delta: float = 0.0

    def needed(self, likely: FloatArray, rare: FloatArray) -> FloatArray:
        """Shape: (events,) each."""
        return np.asarray(ndtri(np.maximum(likely - self.delta, 0)) - ndtri(rare))


@dataclass(frozen=True, slots=True, kw_only=True)
class Approximate:
    """(epsilon, delta)-DP: likely <= e^epsilon rare + delta.

    As a mu it is that of epsilon alone, 2 probit(e^epsilon / (1 + e^epsilon)): the least mu whose trade-off
    curve lies below the one of epsilon-DP. Whatever is proven is proven after delta was taken off."""

    epsilon: float
    delta: float = 0.0

    @property
    def mu(self) -> float:
        return float(2 * ndtri(expit(self.epsilon)))

    def needed(self, likely: FloatArray, rare: FloatArray) -> FloatArray:
        """Shape: (events,) each."""
        with np.errstate(divide="ignore"):
            epsilon = np.log(np.maximum(likely - self.delta, 0)) - np.log(rare)
        return np.asarray(2 * ndtri(expit(epsilon)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """Audit target: a way to release, the most telling pair of data sets, and the claim about it.

    `kind` names the query it answers. An audit must prove at least `tight` times the claim, so that none
    passes by being blind; below 1 where the claim is a bound that no pair of data sets reaches."""

    name: str
    kind: str
    claim: Claim
    attack: Attack
    tight: float
    samples: int = SAMPLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The claimed mu, and the bounds that audits proved, one after the other, until one was within it."""

    claimed: float
    proven: tuple[float, ...]

    @property
    def alarm(self) -> bool:
        """True if all bounds exceed the claim."""
        return min(self.proven) > self.claimed


def audit(mechanism: Mechanism, noise: NoiseSource, samples: int | None = None) -> Verdict:
    """Up to three audits of a mechanism, of `samples` releases a side each."""
    bounds: list[float] = []
    while len(bounds) < REPEATS and all(bound > mechanism.claim.mu for bound in bounds):
        bounds.append(proven(mechanism.claim, *mechanism.attack(noise, samples or mechanism.samples)))
    return Verdict(claimed=mechanism.claim.mu, proven=tuple(bounds))


def proven(claim: Claim, without: FloatArray, with_it: FloatArray) -> float:
    """A lower bound for mu, wrong with probability at most 1 - CONFIDENCE. Shape: (m,) each."""
    half = len(without) // 2
    thresholds = candidates(np.concatenate([without[:half], with_it[:half]]))
    tried = claim.needed(*limits(*events(without[:half], with_it[:half], thresholds), half, CHOOSING))
    best, rest = int(tried.argmax()), len(without) - half
    likely, rare = events(without[half:], with_it[half:], thresholds)
    bound = claim.needed(*limits(likely[best : best + 1], rare[best : best + 1], rest))
    return max(0.0, float(bound[0]))


def candidates(seen: FloatArray) -> FloatArray:
    """Thresholds: every value where they are few, else even quantiles. Shape: (m,) -> (t,)."""
    values = np.unique(seen)
    if len(values) <= THRESHOLDS:
        return values
    return np.unique(np.quantile(seen, np.linspace(0, 1, THRESHOLDS), method="nearest"))


def events(without: FloatArray, with_it: FloatArray, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Count of each event where it is meant to be likely, and where it is meant to be rare.

    The events: above a threshold, at or above it, and what is left over; each meant to be likely with the
    record, or without it. Shape: (m,), (m,), (t,) -> (8 t,), (8 t,)."""
    n = len(without)
    above = [
        np.concatenate([n - np.searchsorted(np.sort(seen), thresholds, side) for side in ("right", "left")])
        for seen in (without, with_it)
    ]
    absent, present = above[0].astype(np.float64), above[1].astype(np.float64)
    likely = np.concatenate([present, n - absent, absent, n - present])
    return likely, np.concatenate([absent, n - present, present, n - absent])


def limits(
    likely: FloatArray, rare: FloatArray, n: int, doubt: float = 1 - CONFIDENCE
) -> tuple[FloatArray, FloatArray]:
    """A lower bound for the probabilities of the likely, an upper one for the rare; for one event, either is
    wrong with probability at most `doubt`. Shape: (events,) each."""
    tail = doubt / 2
    least = np.where(likely > 0, beta.ppf(tail, np.maximum(likely, 1), n - likely + 1), 0.0)
    most = np.where(rare < n, beta.isf(tail, rare + 1, np.maximum(n - rare, 1)), 1.0)
    return least, most
