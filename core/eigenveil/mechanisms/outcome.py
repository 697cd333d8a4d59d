"""What a mechanism behind the barrier hands out."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.numerics.encoding import IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The values of a release, and the public standard deviation of their noise (0 where it is not public
    or there is none to state). Shape: values (released(query),)."""

    values: IntArray
    sigma: float
