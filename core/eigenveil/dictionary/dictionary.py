"""Data dictionary: the meaning, unit and public bounds of each column, and the origin of the bounds."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum

from eigenveil.study.checks import check_bounds, check_readable, check_unique, coerce_fields, need
from eigenveil.study.scaling import PLAUSIBLE_SPREADS, PlausibleSpread, Spreads
from eigenveil.study.study import MAX_NAME_LENGTH, Column, check_name, check_range

MAX_COLUMNS = 2000  # a dictionary fits a message of the protocol
MAX_LEVELS = 200
MAX_VERSION = 2**31
MAX_TEXT_LENGTH = 500
MOST_NAMED = 20  # in a message
SIMILAR = 0.6  # of difflib: `Krea` and `Kreatinin`
LOINC = re.compile(r"[0-9]{1,7}-[0-9]")
LEVEL_SEPARATOR = "="  # separates a category and its level in the name of an indicator column


class ColumnType(Enum):
    """Type of a column; each level of a `category` is an indicator column of 0 and 1."""

    NUMBER = "number"
    INTEGER = "integer"
    CATEGORY = "category"


@dataclass(frozen=True, slots=True, kw_only=True)
class DictionaryColumn:
    """Column with `name`, `meaning`, `unit` (UCUM), public bounds `lower` and `upper`, and their `source`.
    Most people's values lie between `plausible_lower` and `plausible_upper`; a file whose values mostly lie
    elsewhere is probably in another unit. `levels` are those of a category, `loinc` is the code of the
    observation, `fill` replaces a missing value in a study that fills.
    Raises RequestError: code `bad-study`, a value is invalid."""

    name: str
    meaning: str
    lower: float
    upper: float
    source: str
    unit: str = ""
    type: ColumnType = ColumnType.NUMBER
    levels: tuple[str, ...] = ()
    plausible_lower: float | None = None
    plausible_upper: float | None = None
    loinc: str | None = None
    fill: float | None = None

    def __post_init__(self) -> None:
        coerce_fields(self)
        need(self.name.strip() not in ("", "*"), f"a column needs a name, and {self.name!r} is none")
        where = f"column {self.name!r}"
        check_readable("a column's name", self.name, MAX_NAME_LENGTH)
        check_readable("a unit", self.unit, MAX_NAME_LENGTH)
        check_readable("a column's meaning", self.meaning, MAX_TEXT_LENGTH)
        check_readable("the source of bounds", self.source, MAX_TEXT_LENGTH)
        need(bool(self.source.strip()), f"{where}: state the origin of its bounds (source)")
        check_bounds(where, self.lower, self.upper, (self.upper - self.lower) / 2)
        self._check_within(where)
        need(
            self.loinc is None or (LOINC.fullmatch(self.loinc) is not None and check_digit(self.loinc)),
            f"{where}: {self.loinc!r} is not a LOINC code (format or check digit)",
        )
        self._check_levels(where)

    def _check_within(self, where: str) -> None:
        inside = [self.plausible_lower, self.plausible_upper, self.fill]
        need(
            all(one is None or self.lower <= one <= self.upper for one in inside),
            f"{where}: fill and the plausible range must lie within {self.lower:g} to {self.upper:g}",
        )
        low, high = self.plausible_lower, self.plausible_upper
        need((low is None) == (high is None), f"{where}: state both plausible_lower and plausible_upper")
        rising = low is None or high is None or low < high
        need(rising, f"{where}: the plausible range {low} to {high} is empty")

    def _check_levels(self, where: str) -> None:
        category = self.type is ColumnType.CATEGORY
        need(category == bool(self.levels), f"{where}: a category needs levels, and other types have none")
        need(len(self.levels) <= MAX_LEVELS, f"{where}: at most {MAX_LEVELS} levels")
        check_unique(f"{where}: levels", self.levels)
        for level in self.levels:
            need(bool(level.strip()), f"{where}: a level needs a text")
            check_readable("a level", level, MAX_NAME_LENGTH)
        need(
            not category or (self.lower, self.upper, self.unit) == (0.0, 1.0, ""),
            f"{where}: a category must have lower = 0, upper = 1 and no unit",
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns that studies may name: the column itself, or one for each level of a category."""
        names = [f"{self.name}{LEVEL_SEPARATOR}{level}" for level in self.levels] or [self.name]
        first = Column(name=names[0], unit=self.unit, lower=self.lower, upper=self.upper, fill=self.fill)
        return tuple(replace(first, name=name) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dictionary:
    """Columns of a federation, or of a shared file. Raises: RequestError, code `bad-study`."""

    name: str
    version: int
    columns: tuple[DictionaryColumn, ...]
    about: str = ""

    def __post_init__(self) -> None:
        coerce_fields(self)
        check_name("dictionary name", self.name)
        check_range(self, "version", MAX_VERSION)
        check_readable("what a dictionary is about", self.about, MAX_TEXT_LENGTH)
        many = len(self.columns)
        need(1 <= many <= MAX_COLUMNS, f"a dictionary must have 1 to {MAX_COLUMNS} columns, got {many}")
        categories = [column.name for column in self.columns if column.levels]
        check_unique("columns", [one.name for column in self.columns for one in column.columns] + categories)

    def usable(self) -> dict[str, Column]:
        """Return all columns that a study may name, in order."""
        return {one.name: one for column in self.columns for one in column.columns}

    def spreads(self) -> Spreads:
        """Return the plausible spread of each column that states a plausible range."""
        return {
            one.name: PlausibleSpread(one.unit, (high - low) / PLAUSIBLE_SPREADS)
            for one in self.columns
            if (low := one.plausible_lower) is not None and (high := one.plausible_upper) is not None
        }


def suggestion(name: str, known: Collection[str]) -> str:
    """Return the similar known names as the end of a sentence; empty if there are none."""
    found = similar_names(name, known)
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are spelled like `name`, three at most, the most similar first."""
    spelled: dict[str, str] = {}
    for one in known:
        spelled.setdefault(folded(one), one)
    return [spelled[one] for one in get_close_matches(folded(name), spelled, n=3, cutoff=SIMILAR)]


def folded(name: str) -> str:
    """Return a name without case, blanks and the marks between words, in which spellings differ."""
    return re.sub(r"[\s_.\-]+", "", name).casefold()


def listed(names: Collection[str], between: str = ", ") -> str:
    """Return a list of names for a message, limited in length."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return between.join([*names][:MOST_NAMED]) + more


def check_digit(code: str) -> bool:
    """Return True if the check digit of a LOINC code is right (modulus 10, doubled from the right)."""
    digits = [int(one) for one in reversed(code.replace("-", ""))]
    total = sum(digits[0::2]) + sum(sum(divmod(2 * one, 10)) for one in digits[1::2])
    return total % 10 == 0


def range_text(lower: float, upper: float) -> str:
    """Return two bounds as text."""
    return f"{number_text(lower)} to {number_text(upper)}"


def number_text(value: float) -> str:
    """Return a number as text, with all its digits."""
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(value)
