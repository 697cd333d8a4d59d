"""What a picture is of: a release, in the units of its study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenvalues, noise_edge
from eigenveil.study.study import Scaling, Study
from eigenveil.study.toml import study_from_dict

SCALES = {
    Scaling.BOUNDS: "columns scaled to [\N{MINUS SIGN}1, 1]",
    Scaling.STANDARD: "columns divided by their standard deviation",
}
FEW = 6  # directions of which only the sum is known, to show how even shares of it would look


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """The `result` of a release as its document holds it, the `study` it answers, the `algorithm` that ran.

    Shape: components (k, d); variances and shares (k,), along them; covariance (d, d) or None.

    Raises:
        RequestError: code `bad-argument`: the study released no components.
    """

    result: Mapping[str, Any]
    study: Study
    algorithm: str
    components: FloatArray
    variances: FloatArray
    shares: FloatArray
    covariance: FloatArray | None

    def __post_init__(self) -> None:
        if not len(self.components):
            raise RequestError(
                Code.BAD_ARGUMENT, f"there is nothing to draw: {self.result['declined'] or 'no components'}"
            )

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Of the content of a release.json, or of a simulation's.

        Raises:
            RequestError: as the constructor.
        """
        plan, result = document["plan"], document["result"]
        covariance = result["covariance"]
        return cls(
            result=result,
            study=study_from_dict(plan["study"]),
            algorithm=plan["algorithm"],
            components=np.array(result["components"], dtype=np.float64).reshape(-1, len(result["columns"])),
            variances=np.array(result["explained_variance"], dtype=np.float64),
            shares=np.array(result["explained_variance_ratio"], dtype=np.float64),
            covariance=None if covariance is None else np.array(covariance, dtype=np.float64),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.result["columns"])

    @property
    def k(self) -> int:
        """How many components were released."""
        return len(self.components)

    @property
    def units(self) -> str:
        """Those of a variance, for a label."""
        if self.study.scaling is not Scaling.NONE:
            return SCALES[self.study.scaling]
        units = {column.unit for column in self.study.columns}
        return f"{units.pop()}²" if len(units) == 1 and units != {""} else "squared units of the columns"

    @property
    def left(self) -> float:
        """An even share of the variance that the components leave, for each direction beside them."""
        over = float(self.result["total_variance"]) - float(self.variances.sum())
        return max(0.0, over) / max(len(self.columns) - self.k, 1)

    @property
    def others(self) -> FloatArray:
        """The variances along the directions left out: known, or a few even shares of their sum."""
        if self.covariance is not None:
            return eigenvalues(self.covariance)[self.k :]
        return np.full(min(len(self.columns) - self.k, FEW), self.left)

    @property
    def noise_edge(self) -> float | None:
        """The variance up to which noise alone may make a direction; None where no matrix was released."""
        if self.covariance is None and not self.result.get("matrix_apart"):
            return None
        return noise_edge(self.result["noise_scale"], len(self.columns))

    @property
    def from_noise(self) -> tuple[bool, ...]:
        """Of each component, whether noise alone could have made it."""
        edge = self.noise_edge
        return tuple(edge is not None and one < edge for one in self.variances.tolist())
