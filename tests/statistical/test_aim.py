"""[P2] [P10] [P31] Every attack looks where its two data sets differ.

An audit that compares a data set with itself proves nothing and never alarms. So here both sides of each
attack get the same noise, and what the attacker sees must differ: where noise is added, in every release and
by the whole sensitivity; where noise decides, for at least one of many fixed values of it. Nothing is drawn
at random: no false alarms."""

from __future__ import annotations

import numpy as np
import pytest

from eigenveil.noise.seeded import SeededNoise
from eigenveil.noise.source import NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import CHUNK, FloatArray, IntArray
from tests.statistical.audit import Attack, Gaussian, Mechanism
from tests.statistical.behind import BEHIND
from tests.statistical.counted import COUNTED
from tests.statistical.masked import MASKED
from tests.statistical.mechanisms import ADDITIVE

ALL = {mechanism.name: mechanism for mechanism in (*ADDITIVE, *COUNTED, *BEHIND, *MASKED)}

# The logarithm of the likelihood ratio moves by ||change||^2 / sigma^2 = mu^2 (Laplace: 2 epsilon) where the
# pair moves by the whole sensitivity. Other pairs, in units of that: a record that changes parts is half a
# price in each of two; in masked rounds the noise of a sum is that of several honest sites together, and
# scores are in units of one.
SHARE = {
    "parts, replaced across two": 0.5,
    "masked, one of four colludes": 3.0,
    "masked, a matrix, two of five": 3.0,
    "masked, two attempts": 1.5,
    "masked, who left": 1.5,
    "masked, one answer": 3.0,
    "coordinates": 0.962,  # its claim is in mu, its noise Laplace: 4 sqrt(2) of 5.883
}
SCORED = [
    *(mechanism.name for mechanism in (*ADDITIVE, *MASKED)),
    *("histogram, replaced", "eigenvalue-votes", "votes, replaced", "coordinates"),
    *("spectrum, gaussian", "spectrum, laplace"),
    *("parts", "parts, replaced within one", "parts, replaced across two", "slot, order known"),
]
DECIDED = [name for name in ALL if name not in SCORED]
ROUNDING = 0.005  # the longest record on the grid is that much shorter than the radius


class Constant:
    """Every integer of noise is `value`; uniform numbers are so small that the first trial is the last."""

    private = False

    def __init__(self, value: int = 0) -> None:
        self._value = value

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        return np.full(spec.length, self._value, dtype=np.int64)

    def uniform(self, count: int) -> FloatArray:
        """Shape: (count,)."""
        return np.full(count, 0.01)


class Repeated:
    """The same pseudo-random numbers at every call."""

    private = False

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        return SeededNoise(self._seed).draw(spec)

    def uniform(self, count: int) -> FloatArray:
        """Shape: (count,)."""
        return SeededNoise(self._seed).uniform(count)


def full(mechanism: Mechanism) -> float:
    """By how much the logarithm of the likelihood ratio moves between the data sets."""
    claim = mechanism.claim
    return claim.mu**2 if isinstance(claim, Gaussian) else 2 * claim.epsilon  # type: ignore[attr-defined]


def aimed(mechanism: Mechanism, releases: int) -> bool:
    """True if all releases without noise tell the data sets apart by as much as they should."""
    low, high = mechanism.attack(Constant(), releases)
    expected = SHARE.get(mechanism.name, 1.0) * full(mechanism)
    return bool((np.abs((high - low) / expected - 1) <= ROUNDING).all())


def differs(attack: Attack, noise: NoiseSource) -> bool:
    """True if one release of either data set, with the same noise, looks different."""
    low, high = attack(noise, 1)
    return bool(low[0] != high[0])


def decides(mechanism: Mechanism) -> bool:
    """True if some fixed noise tells the data sets apart."""
    drawn = mechanism.kind in ("eigenvectors", "subspace", "shuffled-record")  # by rejection, or on a sphere
    noises = map(Repeated, range(5)) if drawn else map(Constant, range(-40, 41))
    return any(differs(mechanism.attack, noise) for noise in noises)


@pytest.mark.parametrize("name", SCORED)
def test_without_noise_every_release_differs_by_the_whole_sensitivity(name: str) -> None:
    """More releases than numbers are added in one piece, unless an answer is long."""
    wide = name.startswith(("column-h", "columns", "masked"))
    assert aimed(ALL[name], 1000 if wide else CHUNK + 1)


@pytest.mark.parametrize("name", DECIDED)
def test_some_fixed_noise_separates_the_neighbours(name: str) -> None:
    assert decides(ALL[name])
