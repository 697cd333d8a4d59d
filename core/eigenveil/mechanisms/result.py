"""Result of a mechanism."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.numerics.encoding import IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MechanismResult:
    """Values of a release and the standard deviation of their noise; 0 if it is secret or undefined.

    Shape: values (released_length(query),).
    """

    values: IntArray
    sigma: float
