"""What a reader says, held to the form that it must have: plain values become ours, or it is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from eigenveil_client.records.apart.frames import Broken
from eigenveil_client.records.profile import ColumnProfile
from eigenveil_client.records.quality import ColumnQuality

MOST_TEXT = 2**16  # characters of a name
MOST = 2**62
MOST_NAMES = 2**20

Given = ParamSpec("Given")
Made = TypeVar("Made")


def strict(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """Have what does not fit raise Broken, however it shows."""

    @wraps(make)
    def made(*given: Given.args, **named: Given.kwargs) -> Made:
        try:
            return make(*given, **named)
        except (TypeError, ValueError, KeyError, IndexError, OverflowError):
            raise Broken from None

    return made


def count(value: Any, most: int = MOST) -> int:
    """A number of things, or Broken."""
    if type(value) is not int or not 0 <= value <= most:
        raise Broken
    return value


def text(value: Any) -> str:
    """A name or a sentence, or Broken."""
    if type(value) is not str or len(value) > MOST_TEXT:
        raise Broken
    return value


def number(value: Any) -> float:
    """A float, or Broken."""
    if type(value) not in (int, float):
        raise Broken
    return float(value)


@strict
def digest_of(value: Any) -> bytes:
    """32 bytes, as hexadecimal digits."""
    found = bytes.fromhex(text(value))
    if len(found) != 32:
        raise Broken
    return found


def add(found: list[Made], more: Sequence[Made], most: int | None = None) -> None:
    """Put `more` behind what is `found`, or raise Broken: there would be more than `most`, or than
    there may be names."""
    if len(found) + len(more) > (MOST_NAMES if most is None else most):
        raise Broken
    found.extend(more)


@strict
def texts(value: Any) -> list[str]:
    """Names, as a list."""
    return [text(one) for one in list(value)]


@strict
def quality(name: str, counts: Any, persons: int = MOST) -> ColumnQuality:
    """The counts of one column, in their order: none above the persons."""
    every, *some = (count(one, persons) for one in counts)
    missing, unreadable, below, above, at_bound, implausible = (count(one, every) for one in some)
    return ColumnQuality(
        name=name, persons=every, missing=missing, unreadable=unreadable,
        below=below, above=above, at_bound=at_bound, implausible=implausible,
    )  # fmt: skip


@strict
def column_profile(value: Any, counts: tuple[str, ...]) -> ColumnProfile:
    """A profile as `asdict` wrote it."""
    name, good, problem, span = (value[key] for key in ("name", "quality", "problem", "span"))
    lower_upper = None if span is None else (number(span[0]), number(span[1]))
    return ColumnProfile(
        name=text(name),
        quality=None if good is None else quality(text(good["name"]), [good[one] for one in counts]),
        frequent=tuple((number(one), count(times)) for one, times in value["frequent"]),
        quantiles=tuple(number(one) for one in value["quantiles"]),
        span=lower_upper,
        histogram=tuple(count(one) for one in value["histogram"]),
        problem=None if problem is None else text(problem),
    )
