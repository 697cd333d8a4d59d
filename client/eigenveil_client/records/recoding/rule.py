"""Rules of a site for columns: the `[column.NAME]` tables of site.toml, and conversions between units. A
conversion is a factor and an offset, exact until they become floats."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tokenize
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from eigenveil.dictionary.dictionary import LEVEL_SEPARATOR
from eigenveil.errors import Code, RequestError, install_command
from eigenveil.study.checks import as_float, check_keys, coerce_values, field_types, to_plain
from eigenveil_client.records.tables.codes import MISSING, check_codes, merged
from eigenveil_client.records.tables.source import Dialect
from eigenveil_common.config import ensure

if TYPE_CHECKING:
    import pint

# Units of UCUM (unified code for units of measure) for which pint has other names; braces hold remarks.
UCUM = {"mm[Hg]": "mmHg", "[IU]": "IU", "[degF]": "degF", "Cel": "degC", "10*": "10**"}
REMARK = re.compile(r"\{[^}]*\}")
# Pint parses a unit as a Python expression, and asserts that it is complete ("g/" is not); its own errors
# derive from these.
PINT_RAISES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    TypeError,
    ValueError,
    SyntaxError,
    tokenize.TokenError,
)
EXPONENT = re.compile(r"(?<=[A-Za-z])(-?[0-9])")
# Powers are computed exactly, and 10**9**9 has more digits than a machine has bytes. So an exponent has at
# most two digits, and a power of a power is refused, by a parenthesis or by a second exponent.
MOST_CHARACTERS = 100
TOO_HIGH = re.compile(
    r"\)\s*\*\*|\*\*(?!\s*\(?[-+]?[0-9]{1,2}\)?(?![0-9.eE_]|\s*\*\*))|[0-9.]_*[eE][-+]?_*[0-9_]{3,}|[0-9]{31,}"
)


@cache
def conversion(given: str, wanted: str, molar_mass: float | None) -> tuple[float, float]:
    """Return the factor and the offset from a number in `given` to one in `wanted`. `molar_mass` in g/mol
    converts between an amount of substance and its mass."""
    ensure(bool(given.strip() and wanted.strip()), "units: state both")
    zero, one = (_convert(Fraction(number), given, wanted, molar_mass) for number in (0, 1))
    return float(one - zero), float(zero)


@cache
def _registry() -> pint.UnitRegistry[Any]:
    try:
        import pint  # an extra, for rules with units
    except ImportError:
        raise RequestError(
            Code.BAD_CONFIG,
            f"units needs pint, which is not installed. Run: {install_command('eigenveil[sources]')}",
        ) from None
    registry: pint.UnitRegistry[Any] = pint.UnitRegistry(non_int_type=Fraction)
    registry.define("international_unit = [biological_activity] = IU")
    return registry


def _convert(value: Fraction, given: str, wanted: str, molar_mass: float | None) -> Fraction:
    registry = _registry()
    try:
        here, there = _unit_quantity(registry, given), _unit_quantity(registry, wanted)
        amount = registry.Quantity(value * here.magnitude, here.units)
        if molar_mass is not None:
            mole = registry.Quantity(Fraction(str(molar_mass)), "g/mol")
            amount = amount * mole if (amount * mole).is_compatible_with(there.units) else amount / mole
        return Fraction(amount.to(there.units).magnitude / there.magnitude)
    except PINT_RAISES as problem:
        why = "" if molar_mass is not None else ", or molar_mass between an amount of substance and its mass"
        raise RequestError(
            Code.BAD_CONFIG, f"units: cannot convert {given!r} to {wanted!r}. State factor and offset{why}"
        ) from problem


def _unit_quantity(registry: pint.UnitRegistry[Any], unit: str) -> Any:
    """Return one of a unit, such as 10**3/uL, as a number and a unit of pint."""
    from pint.util import string_preprocessor  # it substitutes words and superscripts

    text = REMARK.sub("1", f"1{unit}" if unit.startswith("/") else unit)
    for name, known in UCUM.items():
        text = text.replace(name, known)
    text = EXPONENT.sub(r"**\1", text)
    if len(text) > MOST_CHARACTERS or TOO_HIGH.search(string_preprocessor(text)):
        raise ValueError("an exponent of more than two digits, or a power of a power")
    found: Any = registry.parse_expression(text)
    return found if isinstance(found, registry.Quantity) else registry.Quantity(Fraction(found), "")


_refuse = partial(RequestError, Code.BAD_CONFIG)
FROM = "from"  # a keyword of Python, so the field has another name


class Rows(Enum):
    """Reduction of a person's rows to one number. Rows without a value are skipped. `first` and `last` are by
    a date; of several rows of that date the least value is the first, the largest the last. `count` is the
    number of rows whose cell is not missing."""

    FIRST = "first"
    LAST = "last"
    MEAN = "mean"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    COUNT = "count"


class Censored(Enum):
    """Value of `<0.6` and `>90`: the limit; half the limit for values below a limit above 0; or missing."""

    HALF = "half"
    LIMIT = "limit"
    MISSING = "missing"


DATED = (Rows.FIRST, Rows.LAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRule:
    """Rule from the cells of `source` (default: `name`) to one number a record. Fields are keys of site.toml
    (`source` is `from`); deploy/config/site.example.toml explains them. A column without a rule is
    `ColumnRule(name=...)`: the number in the person's first row in the file."""

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
        ensure(bool(self.name.strip()), "a column needs a name")
        if self.plain:  # as each of twenty thousand columns
            return
        check_codes("missing", self.missing)
        self._check_kind()
        self._check_numbers()
        ensure(
            (self.rows in DATED) == (self.by is not None),
            'rows = "first" and "last" need by, the name of a date column. Other rows have no by',
        )
        ensure(
            self.dates is None or self.years_since is not None or self.by is not None,
            "dates is the form of the dates of years_since and by. State one of them",
        )
        ensure(self.dates != "", "dates must be a form such as %d.%m.%Y")

    def _check_kind(self) -> None:
        """Check that a cell has one kind: a number, one of `values` or `levels`, a date, or counted."""
        number = ("decimal", "thousands", "censored", "factor", "offset", "units", "molar_mass")
        kinds = [name for name in ("values", "levels", "years_since") if getattr(self, name)]
        if self.rows is Rows.COUNT:
            kinds.append("rows = count")
        if kinds:
            kinds += [name for name in number if getattr(self, name) not in (None, ())]
        ensure(len(kinds) < 2, f"{' and '.join(kinds)} exclude each other. Keep one")
        for key, words in [("levels", self.levels), ("values", tuple(word for word, _ in self.values))]:
            check_codes(key, words)
            absent = [one for one in words if one.lower() in (*MISSING, *map(str.lower, self.missing))]
            ensure(not absent, f"{key}: {', '.join(map(repr, absent))} means missing. Remove it")
        ensure(all(math.isfinite(value) for _, value in self.values), "values must be finite numbers")

    def _check_numbers(self) -> None:
        self.number_marks(Dialect())
        alone = not self.units or (self.factor, self.offset) == (None, None)
        ensure(alone, "units exclude factor and offset. Keep one of them")
        factor = 1.0 if self.factor is None else self.factor
        ensure(math.isfinite(factor) and factor, "factor must be finite and not 0")
        ensure(math.isfinite(self.offset or 0.0), "offset must be a finite number")
        two = 'units must be two, of the records and of the study, as ["mmol/L", "mg/dL"]'
        ensure(len(self.units) in (0, 2), two)
        ensure(self.molar_mass is None or bool(self.units), "molar_mass needs units")
        ensure(self.molar_mass is None or 0 < self.molar_mass < math.inf, "molar_mass must be above 0")
        self.linear  # noqa: B018 - raises for units that cannot be converted

    @property
    def header(self) -> str:
        """The column of the records that it reads."""
        return self.source or self.name

    @property
    def linear(self) -> tuple[float, float]:
        """The factor and the offset of a number."""
        if self.units:
            return conversion(*self.units, self.molar_mass)
        return 1.0 if self.factor is None else self.factor, self.offset or 0.0

    @property
    def recodes(self) -> bool:
        """True if a cell becomes another number, so that a unit in the header is not the study's."""
        stated = (self.factor, self.offset, self.years_since)
        recoded = self.rows is Rows.COUNT or self.values or self.levels
        return bool(recoded) or any(one is not None for one in stated)

    @property
    def plain(self) -> bool:
        """True if the record is the unchanged number in the person's first row in the file."""
        read_fields, default = _defaults()
        return bool(read_fields(self) == default)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a study may name."""
        return tuple(f"{self.name}{LEVEL_SEPARATOR}{level}" for level in self.levels) or (self.name,)

    def with_missing(self, words: tuple[str, ...]) -> ColumnRule:
        """Return the rule with further words for "missing": those of the whole file."""
        return replace(self, missing=merged(self.missing, words)) if words else self

    def number_marks(self, dialect: Dialect) -> Dialect:
        """Return the marks of its numbers: those of the rule if it states one, else those of the table."""
        if self.decimal is None and self.thousands is None:
            return dialect
        return replace(dialect, decimal=self.decimal or ".", thousands=self.thousands or "")


Rules = tuple[ColumnRule, ...]


@cache
def _defaults() -> tuple[attrgetter[Any], tuple[Any, ...]]:
    """Return a getter of all fields of a rule but its name, and their defaults."""
    defaults = {one.name: one.default for one in fields(ColumnRule) if one.name != "name"}
    return attrgetter(*defaults), tuple(defaults.values())


def rules(table: Any) -> Rules:
    """Parse the rules in the tables `[column.NAME]`."""
    tables = isinstance(table, Mapping) and all(isinstance(one, Mapping) for one in table.values())
    wanted = "column must be tables [column.NAME]. The columns that studies may use are columns = [...]"
    ensure(tables, wanted)
    made = tuple(_rule(name, stated) for name, stated in table.items())
    names = [column for rule in made for column in rule.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    ensure(not twice, f"column: two rules define {', '.join(twice)}. Rename one")
    return made


def _rule(name: str, stated: Mapping[str, Any]) -> ColumnRule:
    known = [FROM, *(key for key in field_types(ColumnRule) if key not in ("name", "source"))]
    where = f"[column.{name}]"
    check_keys(stated, known, (), where, _refuse)
    data = {"source" if key == FROM else key: value for key, value in stated.items()}
    try:
        values = _word_values(data.pop("values", {}))
        if isinstance(data.get("missing"), list):
            data["missing"] = [str(one) if type(one) in (int, float) else one for one in data["missing"]]
        return ColumnRule(name=name, values=values, **coerce_values(ColumnRule, data, _refuse, {}))
    except RequestError as problem:
        raise RequestError(problem.code, f"{where}: {problem}") from problem


def _word_values(table: Any) -> tuple[tuple[str, float], ...]:
    numbers = isinstance(table, Mapping) and all(type(one) in (int, float) for one in table.values())
    ensure(numbers, "values must map words to numbers, as {female = 0, male = 1}")
    return tuple((word, as_float(f"values.{word}", value, _refuse)) for word, value in table.items())


def digest(stated: Rules) -> bytes:
    """Return the SHA-256 of the rules."""
    text = json.dumps([asdict(rule) for rule in stated], default=to_plain, sort_keys=True)
    return hashlib.sha256(text.encode()).digest()
