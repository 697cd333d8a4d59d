"""Result of a mechanism, and what several mechanisms do alike."""

from __future__ import annotations

from typing import NamedTuple

from eigenveil.accounting.zcdp import ATTO
from eigenveil.errors import Code, RequestError
from eigenveil.noise.source import NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import IntArray, add_noise
from eigenveil.protocol.query import PricedQuery


class MechanismResult(NamedTuple):
    """Values of a release and the standard deviation of their noise; 0 if it is secret or undefined. Shape:
    values (released_length(query),)."""

    values: IntArray
    sigma: float = 0.0


def noised(total: IntArray, spec: NoiseSpec, noise: NoiseSource) -> MechanismResult:
    """Return a sum plus independent noise."""
    return MechanismResult(add_noise(total, noise.draw(spec)), spec.sigma)


def required_delta(priced: PricedQuery, mechanism: str) -> float:
    """Return the delta of a query. Raises RequestError: it has none."""
    if priced.atto_delta < 1:
        raise RequestError(Code.BAD_STUDY, f"{mechanism} needs a delta; set delta > 0 in the study")
    return priced.atto_delta / ATTO
