"""A guess as the laws need it: gaps and squared coordinates of the directions that may turn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.public_random import public_normals
from eigenveil.planning.error_models.rotation import DRAWS, INSIDE, Outside, outside
from eigenveil.planning.error_models.spectrum import AssumedSpectrum

CERTAIN = 0.05  # a gap whose variance is a smaller part of its square is taken as it is
UNCLEAR = 0.25  # and beyond this, an error that rests on it can be off by more than a factor 1.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Assumed:
    """The wanted directions i that may turn most, the directions j outside, and n records.

    Shape: m of the i, g of the j (in groups, see `Outside`), N points.
    """

    guess: AssumedSpectrum
    k: int
    records: float

    @property
    def first(self) -> int:
        """The first of the wanted directions that are looked at: the last ones turn most."""
        return max(0, self.k - INSIDE)

    @property
    def values(self) -> FloatArray:
        """Their eigenvalues. Shape: (m,)."""
        return self.guess.values[self.first : self.k]

    @cached_property
    def beyond(self) -> Outside:
        """What lies outside. Shape: (g,)."""
        return outside(self.guess.values, self.k)

    @cached_property
    def squares(self) -> FloatArray:
        """x_i^2 of the points. Shape: (N, m)."""
        return self.squared(self.first, self.values)

    @cached_property
    def squares_beyond(self) -> FloatArray:
        """x_j^2 of the points. Shape: (N, g)."""
        return self.squared(self.k, self.beyond.values)

    def squared(self, first: int, values: FloatArray) -> FloatArray:
        """Squared coordinates from one on; of those that the points do not have, what is expected given their
        sum. Shape: values (v,) -> (N, v)."""
        leading, rest = self.guess.leading, self.guess.rest
        single = leading[:, first : first + len(values)] ** 2
        left = max(float(self.guess.values[leading.shape[1] :].sum()), 1e-300)
        return np.hstack([single, rest[:, None] * (values[single.shape[1] :] / left)])

    def product(self, weights: FloatArray) -> FloatArray:
        """mean(weights x_i^2 x_j^2). Shape: weights (N,) -> (m, g)."""
        return np.asarray((self.squares * weights[:, None]).T @ self.squares_beyond / len(weights))

    @cached_property
    def gaps(self) -> FloatArray:
        """lambda_i - lambda_j of the records' own spectrum. Shape: as `opened`."""
        return self.opened(self.values[:, None] - self.beyond.values, np.ones(len(self.guess.rest)))

    def opened(self, gaps: FloatArray, kept: FloatArray) -> FloatArray:
        """Gaps as n records have them: chance moves two like eigenvalues apart, in a public sample as well.

        Of records, the gap is the root of (gap + a)^2 + (2 c)^2, with a of the variance of the difference of
        the variances along i and j, and c of that of their covariance. Where that matters, many are drawn.
        Where clipping, by which points count `kept` times, puts j before i, the gap is as good as none.

        Shape: (m, g), (N,) -> (DRAWS or 1, m, g).
        """
        apart, across = self._chance(kept)
        chance, square = (apart + across) / self.records, gaps**2
        least = 1e-9 * self.guess.values[0]
        lost = (gaps < 0) & (square > chance)
        square = np.where(gaps > 0, square, 0.0)
        if self.guess.sampled is not None:
            square = square**2 / np.maximum(square + (apart + across) / self.guess.sampled, 1e-300)
        if (chance <= CERTAIN * square).all():
            return np.asarray(np.sqrt(square + chance))[None]
        a, c = public_normals(b"eigenveil/gaps/v1", (2, DRAWS, *gaps.shape))
        moved = np.sqrt(square) + a * np.sqrt(apart / self.records)
        drawn = np.sqrt(moved**2 + c**2 * across / self.records)
        return np.asarray(np.where(lost, least, np.maximum(drawn, least)))

    @property
    def clear(self) -> bool:
        """Whether the sample, and n records, tell the last wanted direction from the next one."""
        if self.k == len(self.guess.values):
            return True
        apart, across = self._chance(np.ones(len(self.guess.rest)))
        chance = (apart + across)[-1, 0] / min(self.records, self.guess.sampled or self.records)
        gap = float(self.values[-1] - self.beyond.values[0])
        return bool(chance <= UNCLEAR * gap**2)

    def _chance(self, kept: FloatArray) -> tuple[FloatArray, FloatArray]:
        """n Var(a) and n Var(2 c) of points that count `kept` times. Shape: (m, g) each."""
        weights = kept**2
        both = self.product(weights)
        fourth = (weights[:, None] * self.squares**2).mean(axis=0)
        fourth_beyond = (weights[:, None] * self.squares_beyond**2).mean(axis=0)
        return np.maximum(fourth[:, None] + fourth_beyond - 2 * both, 0.0), 4 * both


def bent(assumed: Assumed, kept: FloatArray, gaps: FloatArray) -> FloatArray:
    """Variances of the leans that clipping causes, when a point counts `kept` times.

    A direction leans by mean(s x_i x_j) / gap' among the clipped records and by mean(x_i x_j) / gap among the
    records. The difference has a variance over n, and where the records are lopsided a mean.

    Shape: kept (N,), gaps of the clipped records (r, m, g) -> (r, m, g).
    """
    true = assumed.gaps
    square = assumed.product(kept**2) / gaps**2 - 2 * assumed.product(kept) / (gaps * true)
    square = square + assumed.product(np.ones_like(kept)) / true**2
    return np.asarray(np.maximum(square, 0.0) / assumed.records + _lopsided(assumed, kept) / gaps**2)


def _lopsided(assumed: Assumed, kept: FloatArray) -> FloatArray:
    """The square of mean(s x_i x_j), less what chance makes of it in a sample. Shape: (m, g)."""
    out = np.zeros((len(assumed.values), len(assumed.beyond.values)))
    if assumed.guess.sampled is None:
        return out
    leading = assumed.guess.leading
    x, y = leading[:, assumed.first : assumed.k], leading[:, assumed.k :]
    weighted = x * (kept - kept.mean())[:, None]
    chance = (weighted**2).T @ y**2 / len(x) ** 2
    out[: x.shape[1], : y.shape[1]] = np.maximum((weighted.T @ y / len(x)) ** 2 - chance, 0.0)
    return out
