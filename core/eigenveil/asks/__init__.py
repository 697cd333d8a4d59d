"""The closed vocabulary of questions a site can be asked, and what each may reveal.

Every question is answered by one vector of 64-bit integers of a length that the question itself
states. Sensitivity, length and overflow bound are computed here, from the clip the question carries.
`Additive` questions are released as their sum over records plus noise; `Trusted` ones by a mechanism
of their own behind the barrier (eigenveil.trusted), from an exact sum that only the coordinator sees.
"""

from __future__ import annotations

from typing import Any

from eigenveil.asks.gradients import Field, Gradient, GradientNorms
from eigenveil.asks.limits import S
from eigenveil.asks.parts import Part
from eigenveil.asks.rows import ClippedSum, Count, Energy, Gram, RowNorms
from eigenveil.asks.spectra import Spectrum

Additive = Count | RowNorms | ClippedSum | Energy | Gram | GradientNorms | Gradient
Trusted = Spectrum
Ask = Additive | Trusted

KINDS: dict[str, type[Any]] = {
    "count": Count,
    "row-norms": RowNorms,
    "clipped-sum": ClippedSum,
    "energy": Energy,
    "gram": Gram,
    "gradient-norms": GradientNorms,
    "gradient": Gradient,
    "spectrum": Spectrum,
}
NAMES = {kind: name for name, kind in KINDS.items()}


def released(ask: Ask) -> int:
    """How many integers the release of `ask` holds."""
    return ask.length if isinstance(ask, Additive) else ask.released


def part_of(ask: Ask) -> Part | None:
    """The part of the records that `ask` is about; None if it is about all of them."""
    return ask.part if isinstance(ask, Gradient) else None


__all__ = [
    "KINDS",
    "NAMES",
    "Additive",
    "Ask",
    "ClippedSum",
    "Count",
    "Energy",
    "Field",
    "Gradient",
    "GradientNorms",
    "Gram",
    "Part",
    "RowNorms",
    "S",
    "Spectrum",
    "Trusted",
    "part_of",
    "released",
]
