"""The type of an algorithm and its result: principal components, mean and covariance."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.protocol.rounds import Release
from eigenveil.study.checks import plain_fields

# An algorithm yields a priced query and receives its noised release, which is charged already. It never
# receives a true sum, so all that it computes is post-processing [P7].
Outcome = TypeVar("Outcome")
StepsTo = Generator[PricedQuery, Release, Outcome]
Steps = StepsTo["Estimate"]


class PlainResult:
    """Dataclass that can be written as lists, texts and numbers."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return lists, texts and numbers by field."""
        return plain_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixNoise(PlainResult):
    """Error model of a released covariance, in its own units.

    - Every entry of the upper triangle has independent noise of `distribution`: sd `diagonal`,
      `off_diagonal` [P3].
    - All entries are divided by one record count, with the relative error `count`.
    - The released mean differs from the records' own by about `centre`, squared.
    - Clipping retained about `retained_share` of the records' squared norm; the matrix was divided by it.
    - `divisors`, unless empty, divided each column after the noise; all sizes refer to the matrix before.
    Raises ValueError: a number is negative or not finite, or `retained_share` is not above 0 and at most 1.
    """

    distribution: NoiseDistribution
    diagonal: float
    off_diagonal: float
    count: float
    centre: float
    retained_share: float
    divisors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        sizes = (self.diagonal, self.off_diagonal, self.count, self.centre)
        if not all(math.isfinite(size) and size >= 0 for size in sizes) or not 0 < self.retained_share <= 1:
            raise ValueError(f"invalid noise sizes: {self}")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MatrixNoise:
        """Return the inverse of `to_dict`."""
        return cls(
            **dict(data)
            | {"distribution": NoiseDistribution(data["distribution"]), "divisors": tuple(data["divisors"])}
        )

    def in_units(self, square: float) -> MatrixNoise:
        """Return the model in units where a variance of 1 is `square`."""
        return replace(
            self,
            diagonal=self.diagonal * square,
            off_diagonal=self.off_diagonal * square,
            centre=self.centre * square,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixClipping(PlainResult):
    """Limits of what clipping changed in a released covariance, in the units of its `MatrixNoise`.

    - `lost`: the most variance that clipping rows removed from each column, if all clipped records lay along
      it and as many more as the noise of the histogram of norms hides. 0 if no record was clipped.
    - `outside`: an estimate of the variance that the ends of a column's frame cut off.
    - `radius`: rows were clipped to this norm; `largest`: the largest norm within the public bounds.
    Raises ValueError: a number is negative or not finite, or `radius` is 0."""

    lost: tuple[float, ...]
    outside: tuple[float, ...]
    radius: float
    largest: float

    def __post_init__(self) -> None:
        sizes = (*self.lost, *self.outside, self.radius, self.largest)
        if not all(math.isfinite(size) and size >= 0 for size in sizes) or self.radius == 0:
            raise ValueError(f"invalid limits of clipping: {self}")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MatrixClipping:
        """Return the inverse of `to_dict`; other keys are ignored."""
        return cls(
            lost=tuple(data["lost"]),
            outside=tuple(data["outside"]),
            radius=data["radius"],
            largest=data["largest"],
        )

    def in_units(self, square: float) -> MatrixClipping:
        """Return the limits in units where a variance of 1 is `square`."""
        root = math.sqrt(square)
        return MatrixClipping(
            lost=tuple(one * square for one in self.lost),
            outside=tuple(one * square for one in self.outside),
            radius=self.radius * root,
            largest=self.largest * root,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorUse(PlainResult):
    """Part of a study's prior in its result. `used` is False where the releases contradicted it or are more
    exact: nothing of it is in the result then. `confirmed`: they show that it fits. `shares` has the prior's
    share of what is known of each component, 0 to 1; the rest is from the releases. `shared_sites` are in an
    earlier release, which the prior is from, as well. Raises ValueError: a share is out of range."""

    used: bool
    confirmed: bool
    shares: tuple[float, ...]
    shared_sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(0 <= share <= 1 for share in self.shares):
            raise ValueError(f"invalid shares of a prior: {self.shares}")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PriorUse:
        """Return the inverse of `to_dict`."""
        return cls(
            used=bool(data["used"]),
            confirmed=bool(data["confirmed"]),
            shares=tuple(map(float, data["shares"])),
            shared_sites=tuple(map(str, data["shared_sites"])),
        )

    @property
    def text(self) -> str:
        """A sentence for the readers of a result."""
        if not self.used:
            return "The prior was not used: the releases of this study contradict it, or are more exact."
        parts = (f"{share:.0%} of component {place}" for place, share in enumerate(self.shares, 1))
        text = f"From the prior: {', '.join(parts)}. The rest is from the releases of this study."
        if not self.confirmed:
            text += (
                " These are too noisy to confirm the prior or to contradict it, so the stated error leaves "
                "it out."
            )
        if not self.shared_sites:
            return text
        return (
            f"{text} The prior is an earlier release with the same sites ({', '.join(self.shared_sites)}): "
            "it may be about the same persons. It confirms nothing, and the stated error leaves it out."
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """Result of an algorithm, in grid units scaled to [-1, 1] (`grid.steps` has a column's unit). Where there
    is a `scale`, components and covariance are about columns divided by it; the mean is not. `records` is the
    noised record count, `total_variance` the noised trace. `sin_error` is the predicted sine of the largest
    principal angle to the components of the records: 1.0 is pure noise. It is None where the radius rule
    allows no prediction. `noise_scale` is the noise standard deviation of one entry of the covariance
    (gauss-cov), or of the gradient that the variances are read from (dp-pca). `declined` is the reason why
    nothing is released; components then have shape (0, d). Algorithms that choose the dimension may return
    fewer components than the study allows. `noise` is the error model of `covariance`, or None if it is not a
    plain noised matrix. `clipping` has the limits of clipping's effect on it, from revisions that state them.
    `decision` is what the first releases led to, with its reason; None if there was none. `prior` is the part
    of the study's prior in it; None without one.
    Shape: components (k, d) with orthonormal rows, explained_variance (k,), mean (d,), covariance (d, d) or
    None, scale (d,) or None."""

    components: FloatArray
    explained_variance: FloatArray
    mean: FloatArray
    records: float
    total_variance: float
    noise_scale: float
    sin_error: float | None
    covariance: FloatArray | None = None
    noise: MatrixNoise | None = None
    warnings: tuple[str, ...] = ()
    declined: str | None = None
    decision: str | None = None
    scale: FloatArray | None = None
    clipping: MatrixClipping | None = None
    prior: PriorUse | None = None


def no_release(plan: Plan, records: float, reason: str) -> Estimate:
    """Return an estimate without components; the study is charged as declared. `reason` may use releases
    only, and ends with a remedy."""
    d = plan.study.dimension
    return Estimate(
        components=np.zeros((0, d)),
        explained_variance=np.zeros(0),
        mean=np.zeros(d),
        records=records,
        total_variance=0.0,
        noise_scale=0.0,
        sin_error=1.0,
        declined=reason,
    )
