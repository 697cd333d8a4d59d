"""Numbers with what the privacy noise leaves unknown of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray

LEVEL = 0.95
MOSTLY = 0.5  # of the numbers of an answer: if noise alone could be more of them, that is said


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Uncertain:
    """Shape: values and errors (standard errors) alike. An interval holds the exact answer with probability
    about `level`, and stays within `least` and `most`, where the answer cannot be beyond.

    Raises:
        RequestError: code `bad-argument`, the level is not between 0 and 1.
    """

    values: FloatArray
    errors: FloatArray
    level: float = LEVEL
    least: float = -math.inf
    most: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise RequestError(
                Code.BAD_ARGUMENT, f"level must lie between 0 and 1, such as 0.95; got {self.level}"
            )

    @property
    def reach(self) -> FloatArray:
        """Half of the interval's length."""
        return np.asarray(NormalDist().inv_cdf((1 + self.level) / 2) * self.errors)

    @property
    def low(self) -> FloatArray:
        """Where the intervals begin."""
        return np.asarray(np.clip(self.values - self.reach, self.least, self.most))

    @property
    def high(self) -> FloatArray:
        """Where the intervals end."""
        return np.asarray(np.clip(self.values + self.reach, self.least, self.most))

    @property
    def is_noise(self) -> NDArray[np.bool_]:
        """Whether noise alone could show as much: 0 is in the interval. Boolean, of the same shape."""
        return np.asarray((self.low <= 0) & (self.high >= 0))

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers."""
        return {
            "values": self.values.tolist(),
            "errors": self.errors.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "level": self.level,
        }


def noise_note(what: str, numbers: Uncertain, wide: float) -> tuple[str, ...]:
    """A sentence where most intervals hold 0 and are longer than `wide`: nothing is known then."""
    unknown = numbers.is_noise & (2 * numbers.reach > wide)
    share = float(unknown.mean()) if unknown.size else 0.0
    if share <= MOSTLY:
        return ()
    sentence = (
        f"mostly noise: of {share:.0%} of the {what} the privacy noise leaves nothing known; fewer columns, "
        "more records or a larger epsilon would help"
    )
    return (sentence,)
