"""What the parts of a study must be, whoever builds them: types, texts, and bounds that a grid can hold."""

from __future__ import annotations

import math
from dataclasses import is_dataclass
from enum import Enum
from numbers import Integral, Real
from types import UnionType
from typing import Any, get_args, get_origin

from eigenveil.errors import Code, RequestError
from eigenveil.study.plain_values import WORDS, as_float, hints

# Half the range of a column, relative to its bounds and absolute: the float64 steps of the grid are then
# exact to a part in 2**11, so that a rounded entry never leaves [-S, S].
RESOLUTION = 2.0**-30
TINIEST = 2.0**-900
WIDEST = 1e100  # its square, a variance, is still an ordinary number


def refuse(message: str) -> RequestError:
    """The error of a study that cannot be."""
    return RequestError(Code.BAD_STUDY, message)


def need(condition: bool, message: str) -> None:
    """Refuse what no study may say."""
    if not condition:
        raise refuse(message)


def settle(values: Any) -> None:
    """The fields of a frozen dataclass as they are annotated: a member of an enumeration for its value, a
    tuple for a list, Python's numbers for numpy's.

    Raises:
        RequestError: one cannot be that.
    """
    for name, hint in hints(values.__class__).items():
        value = getattr(values, name)
        if type(value) is not hint:  # twenty thousand columns are made of nothing but these
            object.__setattr__(values, name, _settled(hint, name, value))


def _settled(hint: Any, name: str, value: Any) -> Any:
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
        raise refuse(f"{name} = {value!r} is unknown; choose one of: {known}") from problem


def _number(kind: Any, name: str, value: Any) -> Any:
    fits = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    need(fits, f"{name} = {value!r} must be {WORDS[kind]}")
    return int(value) if kind is int else as_float(name, value, refuse)


def check_readable(what: str, text: str, most: int) -> None:
    """Whoever consents reads it on a terminal, which other characters could make show something else."""
    need(
        len(text) <= most and text.isprintable(),
        f"{what} has at most {most} characters, all of them printable; got {text[:most]!r}",
    )


def check_bounds(where: str, lower: float, upper: float, half_range: float) -> None:
    """Public bounds are finite, rise, and are neither too far apart nor too close to count in steps."""
    need(
        math.isfinite(lower) and math.isfinite(upper),
        f"{where}: bounds must be finite numbers, got lower = {lower}, upper = {upper}",
    )
    need(
        lower < upper,
        f"{where}: lower bound {lower} must be below upper bound {upper}; "
        "a column that cannot vary has no principal component: leave it out",
    )
    need(
        half_range <= WIDEST,
        f"{where}: the bounds lie further apart than {2 * WIDEST:g}; change the column's unit",
    )
    need(
        half_range > max(RESOLUTION * max(abs(lower), abs(upper)), TINIEST),
        f"{where}: the bounds {lower} and {upper} are too close for 64-bit numbers to tell "
        "values between them apart; subtract a constant from the column or change its unit",
    )
