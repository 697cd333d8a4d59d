"""How long a record may be before it is shortened: what a study may state, and how a file spells it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from eigenveil.study.checks import need, refuse, settle
from eigenveil.study.plain_values import as_float, check_keys

SAID = 'radius must be "balance", "none", a quantile strictly between 0 and 1, or { norm = ... }'


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicNorm:
    """An L2 bound `norm` on every record that is known before any is seen, such as 1 for rows of unit norm.

    It counts in scaled units (a column's public bounds are -1 and 1; with `scaling = "none"` those of the
    widest column are), from the middle of the bounds. A record that is longer all the same is shortened to
    it, so that no guarantee rests on it.

    Raises:
        RequestError: code `bad-study`: it is not a finite number above 0.

    >>> from eigenveil import PublicNorm
    >>> PublicNorm(norm=1)
    PublicNorm(norm=1.0)
    """

    norm: float

    def __post_init__(self) -> None:
        settle(self)
        need(
            math.isfinite(self.norm) and self.norm > 0,
            f"radius: norm = {self.norm} must be a finite number above 0",
        )


# None: by balance. A number: the quantile of lengths, 1.0 leaving every record whole.
Radius = float | PublicNorm | None


def check_radius(radius: Radius) -> None:
    """Refuse what no study may state.

    Raises:
        RequestError: code `bad-study`: a number that is no quantile.
    """
    if isinstance(radius, float):
        need(0 < radius <= 1, f"{SAID}, got {radius}")  # not of a NaN


def quantile(radius: Radius) -> float | None:
    """The share of the records that a stated quantile leaves whole; None where none is stated."""
    return radius if isinstance(radius, float) else None


def longest(radius: Radius) -> float:
    """The longest that a record may be by a stated norm, in scaled units; infinite where none is stated."""
    return radius.norm if isinstance(radius, PublicNorm) else math.inf


def idle_norm(radius: Radius, reach: float) -> tuple[str, ...]:
    """A sentence if a stated norm shortens no record, because none within the public bounds is that long."""
    if not reach <= longest(radius) < math.inf:
        return ()
    sentence = (
        f"radius: no record within the public bounds is longer than {reach:.4g} in scaled units, so norm = "
        f'{longest(radius):g} says no more than radius = "none"; is it in the columns\' own units?'
    )
    return (sentence,)


def radius_from(value: Any) -> Radius:
    """Read it as a study file spells it.

    Raises:
        RequestError: code `bad-study`.
    """
    if value in ("balance", "none"):
        return None if value == "balance" else 1.0
    if isinstance(value, dict):
        check_keys(value, ("norm",), ("norm",), "radius", refuse)
        return PublicNorm(norm=value["norm"])
    need(isinstance(value, int | float) and not isinstance(value, bool), f"{SAID}, got {value!r}")
    share = as_float("radius", value, refuse)
    need(0 < share < 1, f"{SAID}, got {share}")
    return share


def radius_value(radius: Radius) -> Any:
    """The inverse of `radius_from`."""
    if isinstance(radius, PublicNorm):
        return {"norm": radius.norm}
    return {None: "balance", 1.0: "none"}.get(radius, radius)
