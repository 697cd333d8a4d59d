"""Checks and conversions of the parts of a study: TOML size, types, texts, and bounds that the grid holds."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, fields
from datetime import date
from enum import Enum
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import tomli_w

from eigenveil.errors import Code, RequestError

DEEPEST = 16  # nested tables and arrays, with the text as the first level; this project's files need four
MOST_CHARACTERS = 4 * 2**20  # twice the largest study
MOST_KEYS = 2**18  # each part of a dotted key is one; 20,000 columns have 100,000
MAX_WORD_LENGTH = 1024  # characters of a number, a date or a bare key: longer numbers cannot even be printed

NEWLINE = "\n"
_WORD = r"""[^\s"'#\[\]{}.=,]"""
# Possessive quantifiers (`*+`) never backtrack, so the scan is linear. An unterminated string extends to the
# place where `tomllib` rejects it.
_TOKEN = re.compile(
    rf"""
      \#[^\n]*+
    | \"\"\" (?: [^"\\]++ | \\. | "(?!"") )*+ (?: "{{3,5}}+ )?+
    | ''' (?: [^']++ | '(?!'') )*+ (?: '{{3,5}}+ )?+
    | " (?: [^"\\\n]++ | \\[^\n] )*+ "?+
    | ' [^'\n]*+ '?+
    | (?P<long> {_WORD}{{{MAX_WORD_LENGTH + 1}}} )
    | {_WORD}++
    | (?P<mark> \n++ | [\[\]{{}}.=,] )
    """,
    re.VERBOSE | re.DOTALL,
)


def check_toml_size(text: str) -> None:
    """Check that a text stays within the limits, so that reading it takes time and memory linear in its size.
    `tomllib` stores an entry for each prefix of a dotted key, so a key of 50,000 parts takes gigabytes, and
    reads arrays and inline tables by recursion. This scan before it reads each character once, and stores the
    open brackets only. It splits a text as `tomllib` does and does not stop at errors: all that `tomllib`
    would build before an error is counted.
    Raises ValueError: too many characters, keys or levels, or a word that is too long."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has more than {MOST_CHARACTERS} characters")
    path = _Path()
    for token in _TOKEN.finditer(text):
        mark, word = token["mark"], token["long"]
        if mark is not None:
            path.take(mark[0])
        if word is not None or path.depth > DEEPEST or path.keys > MOST_KEYS:
            raise ValueError(f"line {text.count(NEWLINE, 0, token.start()) + 1} {path.fault()}")


class _Path:
    """Nesting level of the next key or value; the text itself is the first level."""

    def __init__(self) -> None:
        self.depth = 1
        self.keys = 0
        self._table = 1  # the depth of the last header's table
        self._in_header = False
        self._in_key = True
        # Of each array or inline table that is open: the depth around it, and whether it has keys.
        self._open: list[tuple[int, bool]] = []

    def fault(self) -> str:
        """Return the error at the current position."""
        if self.depth > DEEPEST:
            return f"nests tables and arrays more than {DEEPEST} deep; write them side by side"
        if self.keys > MOST_KEYS:
            return f"has key number {MOST_KEYS + 1}, which is over the limit; use fewer columns"
        return f"has a number or name of over {MAX_WORD_LENGTH} characters; put a text in quotation marks"

    def take(self, mark: str) -> None:
        """Update the position at a mark outside strings and comments."""
        match mark:
            case "\n" if not self._open:
                if self._in_header:
                    self._table, self._in_header = self.depth, False
                self.depth, self._in_key = self._table, True
            case "[" if self._in_key and not self._open:
                # The second bracket of an array of tables is a level too.
                self.depth = self.depth + 1 if self._in_header else 2
                self.keys += 1
                self._in_header = True
            case "[" | "{":
                self._in_key = mark == "{"
                self._open.append((self.depth, self._in_key))
                self.depth += 1
            case "]" | "}" if self._open:
                self.depth, _ = self._open.pop()
                self._in_key = False
            case "," if self._open:
                around, self._in_key = self._open[-1]
                self.depth = around + 1
            case "." if self._in_key:
                self.depth += 1
                self.keys += 1
            case "=" if self._in_key:
                self._in_key = False
                self.keys += 1


BOM = "\ufeff"  # byte order mark, which some editors write before the first character
TYPE_NAMES: dict[Any, str] = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false",
    tuple[str, ...]: "a list of names",
}  # fmt: skip

Member = TypeVar("Member", bound=Enum)
Refuse = Callable[[str], RequestError]  # makes an error from a message
Readers = Mapping[Any, Callable[[str], Any]]  # convert a text to a type; ValueError has the expected form
NO_READERS: Readers = {}


def parse_toml(text: str) -> dict[str, Any]:
    """Return the content of a TOML text. Raises: ValueError, not TOML, or beyond `check_toml_size`."""
    text = text.removeprefix(BOM)
    check_toml_size(text)
    return tomllib.loads(text)


def read_toml(text: str, what: str) -> dict[str, Any]:
    """Return the content of the TOML text of `what`. Raises: RequestError, code `bad-study`."""
    try:
        return parse_toml(text)
    except ValueError as problem:
        raise study_error(f"{what} is not valid TOML: {problem}") from problem


def toml_text(data: Mapping[str, Any]) -> str:
    """Return `data` as TOML, without values that are None."""
    return tomli_w.dumps(_without_none(data))


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value


def to_plain(value: Any) -> Any:
    """Return the inverse of `coerce_values`: texts, numbers, lists of them, and plain fields."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [to_plain(one) for one in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return value.tolist() if hasattr(value, "tolist") else value


def plain_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as plain values."""
    return {one.name: to_plain(getattr(value, one.name)) for one in fields(value)}


@cache
def field_types(kind: Any) -> dict[str, Any]:
    found = get_type_hints(kind)
    return {one.name: found[one.name] for one in fields(kind)}


@cache
def required(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)


def check_keys(
    data: Collection[str], known: Collection[str], needed: Collection[str], where: str, refuse: Refuse
) -> None:
    """Check that `data` has only `known` keys, and all that are `needed`."""
    if strange := sorted(set(data) - set(known)):
        raise refuse(f"{where}: unknown key {', '.join(strange)} (known: {', '.join(known)})")
    if missing := [key for key in needed if key not in data]:
        raise refuse(f"{where} has no {', '.join(missing)}")


def coerce_values(
    kind: Any, data: Mapping[str, Any], refuse: Refuse, readers: Readers = NO_READERS
) -> dict[str, Any]:
    """Return the values of `data`, converted to the field types of the dataclass `kind`. An enumeration's
    value becomes its member, a list a tuple, a number of numpy one of Python, and a text the value of the
    type's reader, if there is one."""
    wanted = field_types(kind)
    return {key: _converted(wanted[key], key, value, refuse, readers) for key, value in data.items()}


def coerce_fields(values: Any) -> None:
    """Convert the fields of a frozen dataclass to their annotated types. Raises: RequestError."""
    for name, hint in field_types(values.__class__).items():
        value = getattr(values, name)
        if type(value) is not hint:  # a fast path for studies of 20,000 columns
            object.__setattr__(values, name, _converted(hint, name, value, study_error, NO_READERS))


def _converted(hint: Any, key: str, value: Any, refuse: Refuse, readers: Readers) -> Any:
    if isinstance(hint, UnionType):  # or None
        if value is None or type(value) in get_args(hint):
            return value
        hint = get_args(hint)[0]
    kind = get_origin(hint) or hint
    if hint in readers and isinstance(value, str):
        try:
            return readers[hint](value)
        except ValueError as problem:
            raise refuse(f"{key} = {value!r} {problem}") from problem
    if issubclass(kind, Enum):
        return member(kind, key, value, refuse)
    if kind in (int, float):
        fits = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
        if fits:
            return int(value) if kind is int else as_float(key, value, refuse)
    elif kind is tuple:
        element = get_args(hint)[0]
        if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
            value = tuple(value)
            if element is float:  # canonical JSON writes 1.0 as 1
                return tuple(_converted(float, key, one, refuse, readers) for one in value)
            if all(isinstance(one, element) for one in value):
                return value
    elif type(value).__name__ == kind.__name__:  # numpy's bool as well
        return value
    raise refuse(f"{key} = {value!r} must be {TYPE_NAMES.get(hint, 'a text')}")


def member(kind: type[Member], key: str, value: Any, refuse: Refuse) -> Member:
    """Return the enum member of a value, or raise `refuse` with the known ones."""
    try:
        return kind(value)
    except ValueError as problem:
        known = ", ".join(f'"{one.value}"' for one in kind)
        raise refuse(f"{key} = {value!r} is unknown; choose one of: {known}") from problem


def as_float(key: str, value: Any, refuse: Refuse) -> float:
    """Return a number as a 64-bit float."""
    try:
        return float(value)
    except OverflowError as problem:
        raise refuse(f"{key} is beyond the range of 64-bit numbers") from problem


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


def check_readable(what: str, text: str, most: int) -> None:
    """Check that a text is printable, so that it cannot alter what a terminal shows to a person."""
    need(
        len(text) <= most and text.isprintable(),
        f"{what} must have at most {most} printable characters; got {text[:most]!r}",
    )


def check_unique(what: str, names: Collection[str]) -> None:
    """Check that no name occurs twice."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    need(not twice, f"{what} named twice: {', '.join(twice)}")


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
    need(half_range <= WIDEST, f"{where}: the bounds are over {2 * WIDEST:g} apart; change the column's unit")
    need(
        half_range > max(RESOLUTION * max(abs(lower), abs(upper)), TINIEST),
        f"{where}: the bounds {lower} and {upper} are too close for 64-bit numbers to separate "
        "values between them; subtract a constant from the column or change its unit",
    )


def is_date(text: str) -> bool:
    """Return True if a text of the form YYYY-MM-DD is a day."""
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False
