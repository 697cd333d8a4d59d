"""Checks of the parts of a study: types, texts, and bounds that the grid can represent."""

from __future__ import annotations

import math
from dataclasses import is_dataclass
from enum import Enum
from numbers import Integral, Real
from types import UnionType
from typing import Any, get_args, get_origin

from eigenveil.errors import Code, RequestError
from eigenveil.study.plain_values import TYPE_NAMES, as_float, field_types

# Half the range of a column, relative to its bounds and absolute: the float64 steps of the grid are then
# exact to a part in 2**11, so that a rounded entry never leaves [-S, S].
RESOLUTION = 2.0**-30
TINIEST = 2.0**-900
WIDEST = 1e100  # its square, a variance, is still an ordinary number


def study_error(message: str) -> RequestError:
    """Return the error of an invalid study."""
    return RequestError(Code.BAD_STUDY, message)


def need(condition: bool, message: str) -> None:
    """Raise the error of an invalid study unless `condition` holds."""
    if not condition:
        raise study_error(message)


def coerce_fields(values: Any) -> None:
    """Convert the fields of a frozen dataclass to their annotated types.

    An enumeration's value becomes its member, a list a tuple, a number of numpy one of Python.

    Raises:
        RequestError: a field cannot be converted.
    """
    for name, hint in field_types(values.__class__).items():
        value = getattr(values, name)
        if type(value) is not hint:  # a fast path for studies of 20,000 columns
            object.__setattr__(values, name, _coerced(hint, name, value))


def _coerced(hint: Any, name: str, value: Any) -> Any:
    if isinstance(hint, UnionType):  # or None
        if value is None or type(value) in get_args(hint):
            return value
        hint = get_args(hint)[0]
    kind = get_origin(hint) or hint
    if issubclass(kind, Enum):
        return _member(kind, name, value)
    if kind in (int, float):
        return _number(kind, name, value)
    if kind is tuple and not isinstance(value, str):
        return tuple(value)
    need(
        is_dataclass(kind) or type(value).__name__ == kind.__name__, f"{name} = {value!r} has the wrong type"
    )
    return value


def _member(kind: type[Enum], name: str, value: Any) -> Enum:
    try:
        return kind(value)
    except ValueError as problem:
        known = ", ".join(str(one.value) for one in kind)
        raise study_error(f"{name} = {value!r} is unknown; choose one of: {known}") from problem


def _number(kind: Any, name: str, value: Any) -> Any:
    fits = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    need(fits, f"{name} = {value!r} must be {TYPE_NAMES[kind]}")
    return int(value) if kind is int else as_float(name, value, study_error)


def check_readable(what: str, text: str, most: int) -> None:
    """Check that a text is printable, so that it cannot alter what a terminal shows to a person."""
    need(
        len(text) <= most and text.isprintable(),
        f"{what} must have at most {most} printable characters; got {text[:most]!r}",
    )


def check_bounds(where: str, lower: float, upper: float, half_range: float) -> None:
    """Check that public bounds are finite, rising, and neither too far apart nor too close for the grid."""
    need(
        math.isfinite(lower) and math.isfinite(upper),
        f"{where}: bounds must be finite numbers, got lower = {lower}, upper = {upper}",
    )
    need(
        lower < upper,
        f"{where}: lower bound {lower} must be below upper bound {upper}; "
        "leave out a column that cannot vary",
    )
    need(
        half_range <= WIDEST,
        f"{where}: the bounds are more than {2 * WIDEST:g} apart; change the column's unit",
    )
    need(
        half_range > max(RESOLUTION * max(abs(lower), abs(upper)), TINIEST),
        f"{where}: the bounds {lower} and {upper} are too close for 64-bit numbers to separate "
        "values between them; subtract a constant from the column or change its unit",
    )
