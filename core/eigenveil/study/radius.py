"""Clip radius of records: the rules that a study may state, and their form in a study file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from eigenveil.study.checks import as_float, check_keys, coerce_fields, need, study_error

RADIUS_FORMS = 'radius must be "balance", "none", a quantile strictly between 0 and 1, or { norm = ... }'


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicNorm:
    """Public L2 bound `norm` of every record, known without the data, such as 1 for rows of unit norm.

    In scaled units, from the middle of the bounds: a column's public bounds are -1 and 1 (with
    `scaling = "none"` those of the widest column). A record with a larger norm is clipped to it, so the
    guarantee does not depend on the statement.

    Raises:
        RequestError: code `bad-study`: `norm` is not a finite number above 0.

    >>> from eigenveil import PublicNorm
    >>> PublicNorm(norm=1)
    PublicNorm(norm=1.0)"""

    norm: float

    def __post_init__(self) -> None:
        coerce_fields(self)
        fits = math.isfinite(self.norm) and self.norm > 0
        need(fits, f"radius: norm = {self.norm} must be a finite number above 0")


# None: balance noise and clipping bias. A number: the quantile of the norms; 1.0 clips no record.
Radius = float | PublicNorm | None


def check_radius(radius: Radius) -> None:
    """Check that a radius given as a number is a quantile. Raises: RequestError, code `bad-study`."""
    if isinstance(radius, float):
        need(0 < radius <= 1, f"{RADIUS_FORMS}, got {radius}")  # also rejects NaN


def quantile(radius: Radius) -> float | None:
    """Return the share of records that the stated quantile leaves unclipped, or None."""
    return radius if isinstance(radius, float) else None


def stated_norm(radius: Radius) -> float:
    """Return the stated norm in scaled units; infinite if none is stated."""
    return radius.norm if isinstance(radius, PublicNorm) else math.inf


def unused_norm_warning(radius: Radius, reach: float) -> tuple[str, ...]:
    """Return a warning if no record within the public bounds can exceed the stated norm."""
    norm = stated_norm(radius)
    sentence = (
        f"radius: no record within the public bounds has a norm above {reach:.4g} in scaled units, so norm = "
        f'{norm:g} has no effect. State the norm in scaled units, or radius = "none"'
    )
    return (sentence,) if reach <= norm < math.inf else ()


def radius_from(value: Any) -> Radius:
    """Return the radius of a study file. Raises: RequestError, code `bad-study`."""
    if value in ("balance", "none"):
        return None if value == "balance" else 1.0
    if isinstance(value, dict):
        check_keys(value, ("norm",), ("norm",), "radius", study_error)
        return PublicNorm(norm=value["norm"])
    need(isinstance(value, int | float) and not isinstance(value, bool), f"{RADIUS_FORMS}, got {value!r}")
    share = as_float("radius", value, study_error)
    need(0 < share < 1, f"{RADIUS_FORMS}, got {share}")
    return share


def radius_value(radius: Radius) -> Any:
    """Return the inverse of `radius_from`."""
    if isinstance(radius, PublicNorm):
        return {"norm": radius.norm}
    return {None: "balance", 1.0: "none"}.get(radius, radius)
