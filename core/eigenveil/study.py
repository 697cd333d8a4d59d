"""A study: what the analyst asks, as frozen and validated values.

TOML in (`parse_study`), values out. Nothing here is read off the data: every bound is public.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from eigenveil.accounting import MAX_EPSILON
from eigenveil.errors import Code, RequestError

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
MAX_COLUMNS = 4096
MAX_RECORDS = 2**31
MAX_MULTIPLICITY = 1000
# Half the range of a column, relative to its bounds and absolute: the float64 steps of the grid are then
# exact to a part in 2**11, so that a rounded entry never leaves [-S, S].
RESOLUTION = 2.0**-30
TINIEST = 2.0**-900


class Neighbours(Enum):
    """Which two data sets must look alike."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


class Algorithm(Enum):
    """The closed set of algorithms; `auto` is resolved by the planner before any round."""

    AUTO = "auto"
    GAUSS_COV = "gauss-cov"
    DP_PCA = "dp-pca"


class Missing(Enum):
    """What happens to a record with a missing value."""

    DROP = "drop"
    FILL = "fill"


class Scaling(Enum):
    """`bounds`: every column to [-1, 1]; `none`: one common factor, so directions keep their units."""

    BOUNDS = "bounds"
    NONE = "none"


def _refuse(message: str) -> RequestError:
    return RequestError(Code.BAD_STUDY, message)


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise _refuse(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One measurement: its name, unit and public bounds (never read off the data).

    `fill` replaces a missing value when the study's rule is `fill`; it must lie within the bounds.
    """

    name: str
    unit: str
    lower: float
    upper: float
    fill: float | None = None

    def __post_init__(self) -> None:
        _need(bool(self.name.strip()), "a column needs a name")
        where = f"column {self.name!r}"
        _need(
            math.isfinite(self.lower) and math.isfinite(self.upper),
            f"{where}: bounds must be finite numbers, got lower = {self.lower}, upper = {self.upper}",
        )
        _need(
            self.lower < self.upper,
            f"{where}: lower bound {self.lower} must be below upper bound {self.upper}; "
            "a column that cannot vary has no principal component: leave it out",
        )
        _need(
            math.isfinite(self.upper - self.lower),
            f"{where}: the bounds are further apart than a 64-bit number can say",
        )
        _need(
            self.half_range > max(RESOLUTION * max(abs(self.lower), abs(self.upper)), TINIEST),
            f"{where}: the bounds {self.lower} and {self.upper} are too close for 64-bit numbers to tell "
            "values between them apart; subtract a constant from the column or change its unit",
        )
        if self.fill is not None:
            _need(
                self.lower <= self.fill <= self.upper,
                f"{where}: fill value {self.fill} must lie within [{self.lower}, {self.upper}]",
            )

    @property
    def middle(self) -> float:
        """The middle of the public bounds, in the column's unit."""
        return self.lower + (self.upper - self.lower) / 2

    @property
    def half_range(self) -> float:
        """Half the distance between the public bounds, in the column's unit."""
        return (self.upper - self.lower) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """Who takes part, and what it takes to go on.

    `sites` are all invited sites; `required` must answer every round; at least `quorum` of them
    must; a round waits `deadline_seconds` for those who have not answered.
    """

    sites: tuple[str, ...]
    required: tuple[str, ...] = ()
    quorum: int | None = None
    deadline_seconds: float = 60.0
    minimum_cohort: int = 20

    def __post_init__(self) -> None:
        _need(len(self.sites) > 0, "a study invites at least one site")
        for name in self.sites:
            _need(
                NAME.fullmatch(name) is not None,
                f"site name {name!r}: use lower-case letters, digits and hyphens",
            )
        _need(len(set(self.sites)) == len(self.sites), "a site is invited twice")
        for name in self.required:
            _need(name in self.sites, f"required site {name!r} is not among the invited sites")
        _need(
            1 <= self.least <= len(self.sites),
            f"quorum {self.quorum} must lie between 1 and the {len(self.sites)} invited sites",
        )
        _need(
            math.isfinite(self.deadline_seconds) and 0 < self.deadline_seconds <= 7 * 86400,
            f"deadline_seconds must lie between 0 and a week, got {self.deadline_seconds}",
        )
        _need(
            1 <= self.minimum_cohort <= MAX_RECORDS,
            f"minimum_cohort must lie between 1 and {MAX_RECORDS}",
        )

    @property
    def least(self) -> int:
        """How many sites must answer a round (all of them unless a quorum is stated)."""
        return len(self.sites) if self.quorum is None else self.quorum

    def check_present(self, present: Collection[str]) -> None:
        """Whether a round may go on with the sites `present`.

        Raises:
            RequestError: code `study-failed`: a required site or the quorum is missing.
        """
        missing = [name for name in self.required if name not in present]
        if missing:
            raise RequestError(
                Code.STUDY_FAILED,
                f"required sites did not answer: {', '.join(missing)}; nothing was charged for this round",
            )
        if len(present) < self.least:
            raise RequestError(
                Code.STUDY_FAILED,
                f"{len(present)} of the {self.least} sites needed answered; "
                "nothing was charged for this round",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is asked of the federation; see deploy/config/study.example.toml for every key.

    `radius` is "balance" or a quantile such as 0.8 (the share of records left unclipped).
    `max_records` is a public upper bound on one site's records: exact sums are proven not to
    overflow below it. `expected_records` is a public guess of the whole federation's records; it
    steers only the planner and may be wrong without harm to privacy.
    """

    name: str
    columns: tuple[Column, ...]
    epsilon: float
    delta: float
    components: int
    federation: Federation
    purpose: str = ""
    algorithm: Algorithm = Algorithm.AUTO
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    max_sites_per_person: int = 1
    missing: Missing = Missing.DROP
    person_column: str | None = None
    centring: bool = True
    scaling: Scaling = Scaling.BOUNDS
    radius: float | None = field(default=None)
    max_records: int = 2**24
    expected_records: int = 10_000

    def __post_init__(self) -> None:
        self._check_names()
        self._check_privacy()
        _need(
            1 <= self.components <= len(self.columns),
            f"components = {self.components} must lie between 1 and the {len(self.columns)} columns",
        )
        _need(
            self.radius is None or (math.isfinite(self.radius) and 0 < self.radius < 1),
            f'radius must be "balance" or a quantile strictly between 0 and 1, got {self.radius}',
        )
        _need(
            1 <= self.max_records <= MAX_RECORDS,
            f"max_records must lie between 1 and {MAX_RECORDS}, got {self.max_records}",
        )
        _need(
            1 <= self.expected_records <= MAX_RECORDS,
            f"expected_records must lie between 1 and {MAX_RECORDS}, got {self.expected_records}",
        )
        if self.missing is Missing.FILL:
            for column in self.columns:
                _need(
                    column.fill is not None,
                    f'column {column.name!r}: the rule missing = "fill" needs a public fill value',
                )

    def _check_names(self) -> None:
        _need(
            NAME.fullmatch(self.name) is not None,
            f"study name {self.name!r}: use at most 63 lower-case letters, digits and hyphens",
        )
        _need(
            1 <= len(self.columns) <= MAX_COLUMNS,
            f"a study has between 1 and {MAX_COLUMNS} columns, got {len(self.columns)}",
        )
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        _need(not twice, f"columns named twice: {', '.join(twice)}")
        _need(
            self.person_column not in names,
            f"person_column {self.person_column!r} cannot also be a measurement",
        )

    def _check_privacy(self) -> None:
        _need(
            0 < self.epsilon <= MAX_EPSILON,
            f"epsilon must be a finite number above 0 and at most {MAX_EPSILON:g}, got {self.epsilon}",
        )
        _need(
            math.isfinite(self.delta) and 0 < self.delta < 1,
            f"delta must lie strictly between 0 and 1 (Gaussian noise needs it), got {self.delta}",
        )
        _need(
            1 <= self.max_sites_per_person <= MAX_MULTIPLICITY,
            f"max_sites_per_person must lie between 1 and {MAX_MULTIPLICITY}",
        )

    @property
    def dimension(self) -> int:
        """Number of columns, d."""
        return len(self.columns)

    def warnings(self) -> tuple[str, ...]:
        """Sentences the analyst should read; none of them stops the study."""
        if self.delta * self.expected_records >= 0.1:
            sentence = (
                f"delta = {self.delta:g} is not far below 1/n for about {self.expected_records} "
                f"records; choose delta below {0.1 / self.expected_records:.1e}"
            )
            return (sentence,)
        return ()


def parse_study(text: str) -> Study:
    """Read a study from TOML.

    Raises:
        RequestError: the text is not TOML, a key is unknown or missing, or a value is refused.
    """
    try:
        data = tomllib.loads(text)
    except ValueError as problem:  # also raised for an integer of thousands of digits
        raise _refuse(f"the study is not valid TOML: {problem}") from problem
    return study_from_dict(data)


SECTIONS: dict[str, tuple[str, ...]] = {
    "": ("name", "purpose", "algorithm", "components"),
    "privacy": ("epsilon", "delta", "neighbours", "max_sites_per_person", "radius"),
    "records": (
        "missing", "person_column", "centring", "scaling", "max_records", "expected_records",
    ),
}  # fmt: skip
REQUIRED = ("name", "components", "epsilon", "delta")
ENUMS: dict[str, type[Enum]] = {
    "algorithm": Algorithm,
    "neighbours": Neighbours,
    "missing": Missing,
    "scaling": Scaling,
}
TYPES: dict[str, tuple[type, ...]] = {
    "name": (str,), "purpose": (str,), "components": (int,),
    "epsilon": (float, int), "delta": (float, int), "max_sites_per_person": (int,),
    "person_column": (str, type(None)), "centring": (bool,), "max_records": (int,),
    "expected_records": (int,), "unit": (str,), "lower": (float, int), "upper": (float, int),
    "fill": (float, int, type(None)), "sites": (tuple,), "required": (tuple,),
    "quorum": (int, type(None)), "deadline_seconds": (float, int), "minimum_cohort": (int,),
}  # fmt: skip


def study_from_dict(data: dict[str, Any]) -> Study:
    """Build a study from the nested mapping that a TOML file or a plan holds.

    Raises:
        RequestError: an unknown or missing key, a wrong type, or a refused value.
    """
    _unknown(data, (*SECTIONS[""], "privacy", "records", "federation", "columns"), "the study")
    flat: dict[str, Any] = {}
    for section, keys in SECTIONS.items():
        part = data if section == "" else _table(data, section)
        if section:
            _unknown(part, keys, f"[{section}]")
        flat.update({key: _value(key, part[key]) for key in keys if key in part})
    missing = [key for key in REQUIRED if key not in flat]
    _need(not missing, f"the study misses: {', '.join(missing)}")
    return Study(**flat, columns=_columns(data), federation=_federation(data))


def study_to_dict(study: Study) -> dict[str, Any]:
    """The inverse of `study_from_dict`: nested plain values with every key present."""
    flat = {f.name: _plain(f.name, getattr(study, f.name)) for f in fields(Study)}
    out: dict[str, Any] = {key: flat[key] for key in SECTIONS[""]}
    for section in ("privacy", "records"):
        out[section] = {key: flat[key] for key in SECTIONS[section]}
    out["federation"] = {
        f.name: _plain(f.name, getattr(study.federation, f.name)) for f in fields(Federation)
    }
    out["columns"] = [
        {f.name: _plain(f.name, getattr(column, f.name)) for f in fields(Column)} for column in study.columns
    ]
    return out


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if key == "radius":
        return "balance" if value is None else value
    return list(value) if isinstance(value, tuple) else value


def _unknown(data: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    strange = sorted(set(data) - set(known))
    _need(
        not strange,
        f"unknown key in {where}: {', '.join(strange)} (known: {', '.join(known)})",
    )


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    part = data.get(name, {})
    if not isinstance(part, dict):
        raise _refuse(f"[{name}] must be a table")
    return part


def _value(key: str, value: Any) -> Any:
    if key in ENUMS:
        try:
            return ENUMS[key](value)
        except ValueError as problem:
            known = ", ".join(str(member.value) for member in ENUMS[key])
            raise _refuse(f"{key} = {value!r} is unknown; choose one of: {known}") from problem
    if key == "radius":
        return _radius(value)
    if isinstance(value, list):
        value = tuple(value)
    wanted = TYPES[key]
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise _refuse(f"{key} = {value!r} has the wrong type")
    return _float(key, value) if float in wanted and isinstance(value, int) else value


def _float(key: str, value: int | float) -> float:
    try:
        return float(value)
    except OverflowError as problem:
        raise _refuse(f"{key} is beyond the range of 64-bit numbers") from problem


def _radius(value: Any) -> float | None:
    if value == "balance":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(f'radius must be "balance" or a quantile between 0 and 1, got {value!r}')
    return _float("radius", value)


def _columns(data: dict[str, Any]) -> tuple[Column, ...]:
    rows = data.get("columns", [])
    _need(
        isinstance(rows, list) and all(isinstance(row, dict) for row in rows),
        "columns must be an array of tables: [[columns]]",
    )
    out = []
    for position, row in enumerate(rows, 1):
        where = f"column {row.get('name', position)!r}"
        _unknown(row, ("name", "unit", "lower", "upper", "fill"), where)
        missing = [key for key in ("name", "unit", "lower", "upper") if key not in row]
        _need(
            not missing,
            f"{where} misses: {', '.join(missing)} (bounds are public and never read off the data)",
        )
        out.append(Column(**{key: _value(key, value) for key, value in row.items()}))
    return tuple(out)


def _federation(data: dict[str, Any]) -> Federation:
    part = _table(data, "federation")
    known = tuple(f.name for f in fields(Federation))
    _unknown(part, known, "[federation]")
    _need("sites" in part, "[federation] misses: sites")
    values = {key: _value(key, value) for key, value in part.items()}
    for key in ("sites", "required"):
        _need(
            all(isinstance(name, str) for name in values.get(key, ())),
            f"[federation] {key} must be a list of names",
        )
    return Federation(**values)
