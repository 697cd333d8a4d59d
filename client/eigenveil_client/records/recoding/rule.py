"""What a site says of one column: a `[column.NAME]` table of site.toml."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any

from eigenveil.errors import Code, RequestError
from eigenveil.study.plain_values import as_float, check_keys, checked, hints, plain
from eigenveil_client.records.recoding.codes import check_codes
from eigenveil_client.records.recoding.units import conversion
from eigenveil_client.records.tables.cells import MISSING
from eigenveil_client.records.tables.dialect import Dialect
from eigenveil_common.config import need

LEVEL = "="  # between a column's name and one of its levels
FROM = "from"  # a word of Python, so the field has another name


class Rows(Enum):
    """Which number of a person's rows is the record's. Rows without a value are passed over; `first` and
    `last` are by a date, and of several rows of that date the least value is the first, the largest the last.
    `count` is how many rows have a cell that is not missing."""

    FIRST = "first"
    LAST = "last"
    MEAN = "mean"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    COUNT = "count"


class Censored(Enum):
    """What `<0.6` and `>90` are: the limit; half the limit where the value is below it (a limit above 0); or
    missing."""

    HALF = "half"
    LIMIT = "limit"
    MISSING = "missing"


DATED = (Rows.FIRST, Rows.LAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRule:
    """How the cells of `source` (`name`, if it is empty) are one number a record: fields but `source`, which
    is `from`, are keys, and deploy/config/site.example.toml explains them. A column without a rule is
    `ColumnRule(name=...)`: a number as it stands, of the person's first row in the file.

    Raises:
        RequestError: code `bad-config`: a value that cannot be meant, or two that exclude each other.
    """

    name: str
    source: str = ""
    missing: tuple[str, ...] = ()
    decimal: str | None = None
    thousands: str | None = None
    censored: Censored | None = None
    factor: float | None = None
    offset: float | None = None
    units: tuple[str, ...] = ()
    molar_mass: float | None = None
    values: tuple[tuple[str, float], ...] = ()
    levels: tuple[str, ...] = ()
    dates: str | None = None
    years_since: str | None = None
    rows: Rows | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        need(bool(self.name.strip()), "a column needs a name")
        if self.plain:  # as each of twenty thousand columns
            return
        check_codes("missing", self.missing)
        self._check_kind()
        self._check_numbers()
        need(
            (self.rows in DATED) == (self.by is not None),
            'rows = "first" and "last" need by, which names a date column, and nothing else has one',
        )
        need(
            self.dates is None or self.years_since is not None or self.by is not None,
            "dates is how the dates of years_since and by are written; state one of them",
        )
        need(self.dates != "", "dates must be a form such as %d.%m.%Y")

    def _check_kind(self) -> None:
        """A cell is a number, or what `values` make of it, one of `levels`, or a date; or it is counted."""
        number = ("decimal", "thousands", "censored", "factor", "offset", "units", "molar_mass")
        kinds = [name for name in ("values", "levels", "years_since") if getattr(self, name)]
        if self.rows is Rows.COUNT:
            kinds.append("rows = count")
        if kinds:
            kinds += [name for name in number if getattr(self, name) not in (None, ())]
        need(len(kinds) < 2, f"{' and '.join(kinds)} exclude each other; keep one")
        for key, words in [("levels", self.levels), ("values", tuple(word for word, _ in self.values))]:
            check_codes(key, words)
            lost = [word for word in words if word.lower() in (*MISSING, *map(str.lower, self.missing))]
            need(not lost, f"{key}: {', '.join(map(repr, lost))} would be missing")
        need(all(math.isfinite(value) for _, value in self.values), "values must be finite numbers")

    def _check_numbers(self) -> None:
        self.written(Dialect())
        need(
            not (self.units and (self.factor, self.offset) != (None, None)), "units exclude factor and offset"
        )
        need(
            self.factor is None or (math.isfinite(self.factor) and self.factor), "factor must not be 0 or inf"
        )
        need(self.offset is None or math.isfinite(self.offset), "offset must be a finite number")
        need(
            len(self.units) in (0, 2),
            'units are two: the records\', and the study\'s, as ["mmol/L", "mg/dL"]',
        )
        need(self.molar_mass is None or bool(self.units), "molar_mass goes with units")
        need(self.molar_mass is None or 0 < self.molar_mass < math.inf, "molar_mass must be above 0")
        self.linear  # noqa: B018 - refuse units that nothing converts

    @property
    def header(self) -> str:
        """The column of the records that it is about."""
        return self.source or self.name

    @property
    def linear(self) -> tuple[float, float]:
        """Factor and offset of a number."""
        if self.units:
            return conversion(*self.units, self.molar_mass)
        return 1.0 if self.factor is None else self.factor, self.offset or 0.0

    @property
    def recodes(self) -> bool:
        """Whether a cell becomes another number, so that a unit beside the header is not the study's."""
        stated = (self.factor, self.offset, self.years_since)
        counted = self.rows is Rows.COUNT
        return counted or any(one is not None for one in stated) or bool(self.values or self.levels)

    @property
    def plain(self) -> bool:
        """Whether a cell is the number that it says, of the person's first row in the file."""
        said, default = _unsaid()
        return bool(said(self) == default)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a study may name."""
        return tuple(f"{self.name}{LEVEL}{level}" for level in self.levels) or (self.name,)

    def written(self, dialect: Dialect) -> Dialect:
        """The marks of its numbers: its own if it states one, else those of the whole table."""
        if self.decimal is None and self.thousands is None:
            return dialect
        return replace(dialect, decimal=self.decimal or ".", thousands=self.thousands or "")


@cache
def _unsaid() -> tuple[attrgetter[Any], tuple[Any, ...]]:
    """What reads all but the name of a rule, and what that is where nothing is said."""
    said = [one for one in fields(ColumnRule) if one.name != "name"]
    return attrgetter(*(one.name for one in said)), tuple(one.default for one in said)


def rules(table: Any) -> tuple[ColumnRule, ...]:
    """The rules in the tables `[column.NAME]`.

    Raises:
        RequestError: code `bad-config`, naming the column and the key.
    """
    tables = isinstance(table, Mapping) and all(isinstance(one, Mapping) for one in table.values())
    need(tables, "column must be tables [column.NAME]; what studies may use is columns = [...]")
    made = tuple(_rule(name, stated) for name, stated in table.items())
    names = [column for rule in made for column in rule.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    need(not twice, f"column: two rules make {', '.join(twice)}; rename one")
    return made


def _rule(name: str, stated: Mapping[str, Any]) -> ColumnRule:
    known = [FROM, *(key for key in hints(ColumnRule) if key not in ("name", "source"))]
    where = f"[column.{name}]"
    check_keys(stated, known, (), where, _refuse)
    data = {"source" if key == FROM else key: value for key, value in stated.items()}
    try:
        values = _numbers_by_word(data.pop("values", {}))
        if isinstance(data.get("missing"), list):
            data["missing"] = [str(one) if type(one) in (int, float) else one for one in data["missing"]]
        return ColumnRule(name=name, values=values, **checked(ColumnRule, data, _refuse, {}))
    except RequestError as problem:
        raise RequestError(problem.code, f"{where}: {problem}") from problem


def _numbers_by_word(table: Any) -> tuple[tuple[str, float], ...]:
    numbers = isinstance(table, Mapping) and all(type(one) in (int, float) for one in table.values())
    need(numbers, "values must be a table from words to numbers, as {female = 0, male = 1}")
    return tuple((word, as_float(f"values.{word}", value, _refuse)) for word, value in table.items())


def digest(stated: tuple[ColumnRule, ...]) -> bytes:
    """What changes when a rule does: SHA-256."""
    text = json.dumps([asdict(rule) for rule in stated], default=plain, sort_keys=True)
    return hashlib.sha256(text.encode()).digest()


def _refuse(message: str) -> RequestError:
    return RequestError(Code.BAD_CONFIG, message)
