"""What an algorithm is, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from eigenveil.numerics.encoding import FloatArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, PricedQuery
from eigenveil.protocol.release import Release

# An algorithm yields a priced question and receives its noised, already charged release. It never
# sees a true sum, so whatever it computes is post-processing [P7].
Steps = Generator[PricedQuery, Release, "Estimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixNoise:
    """What is known of the errors of a released covariance, in its own units.

    Independent noise of `law` on every entry of the upper triangle, of sd `diagonal` and `off_diagonal` [P3];
    all entries are divided by one record count that is off by `count` of itself; the centre that they are
    about is off the mean by about `centre`, squared. Clipping left about the share `kept` of the records'
    squared length, and the matrix is larger by that again. `divided`, unless it is empty, is what each column
    was divided by after the noise was added: sizes are about the matrix before that.

    Raises:
        ValueError: a number is negative or not finite, or nothing was kept.
    """

    law: NoiseLaw
    diagonal: float
    off_diagonal: float
    count: float
    centre: float
    kept: float
    divided: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        sizes = (self.diagonal, self.off_diagonal, self.count, self.centre)
        if not all(math.isfinite(size) and size >= 0 for size in sizes) or not 0 < self.kept <= 1:
            raise ValueError(f"no sizes of noise: {self}")

    def to_dict(self) -> dict[str, Any]:
        """As release.json has it."""
        return asdict(self) | {"law": self.law.value, "divided": list(self.divided)}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> MatrixNoise:
        """Read what `to_dict` wrote."""
        return cls(**dict(said) | {"law": NoiseLaw(said["law"]), "divided": tuple(said["divided"])})

    def in_units(self, square: float) -> MatrixNoise:
        """The same where a variance of 1 is written as `square`."""
        return replace(
            self,
            diagonal=self.diagonal * square,
            off_diagonal=self.off_diagonal * square,
            centre=self.centre * square,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """Principal components in grid units scaled to [-1, 1] (see `grid.steps` for a column's unit), or of
    columns that were divided by `scale`, where there is one, in these units; the mean is not divided.

    Shape: components (k, d) with orthonormal rows, explained_variance (k,), mean (d,),
    covariance (d, d) or None, scale (d,) or None.

    `records` is the noised record count, `total_variance` the noised trace. `sin_error` predicts the
    sine of the largest principal angle to the data's own components (1.0 means "this is noise"; None
    where the radius rule does not allow to say). `noise_scale` is the standard deviation that noise
    gives one entry of the covariance (gauss-cov) or of the gradient the variances are read from (dp-pca).
    `declined` says why nothing is released; there are then no components (0, d). Algorithms that choose the
    dimension may return fewer components than the study allows. `noise` is what is known of the errors of
    `covariance`, where that is a noised matrix and nothing else; None where no such law is known. `way` says
    what the first releases decided, and why; None where they decided nothing.
    """

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
    way: str | None = None
    scale: FloatArray | None = None


def no_release(plan: Plan, records: float, why: str) -> Estimate:
    """The defined outcome "nothing is released": charged as declared, and no components. `why` may rest on
    releases only, as everything here does, and ends with what would do."""
    d = plan.study.dimension
    return Estimate(
        components=np.zeros((0, d)),
        explained_variance=np.zeros(0),
        mean=np.zeros(d),
        records=records,
        total_variance=0.0,
        noise_scale=0.0,
        sin_error=1.0,
        declined=why,
    )
