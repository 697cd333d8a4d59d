"""Studies and drafts of them as TOML and plain mappings; unknown or missing keys are errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, TypeVar

from eigenveil.numerics.encoding import digest
from eigenveil.study.applicant import Applicant
from eigenveil.study.checks import (
    check_keys,
    coerce_values,
    field_types,
    need,
    plain_fields,
    read_toml,
    required,
    study_error,
    to_plain,
    toml_text,
)
from eigenveil.study.prior import Prior
from eigenveil.study.radius import radius_from, radius_value
from eigenveil.study.scaling import NO_SPREADS, Scaling, Spreads
from eigenveil.study.study import Column, Federation, Study

NAME, NAMES, DICTIONARY, PRIOR = "name", "names", "dictionary", "prior"
RECORDS, SCALING = "records", "scaling"
Part = TypeVar("Part")
MANY = 16  # least number of consecutive equal columns that share a table


def column_tables(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Return the tables of columns in their order, with every key, since digests are computed from them. Many
    columns that differ in their names only share one table with `names`. So 20,000 genetic variants take
    20,000 names and one description, in a file and in a plan."""
    tables: list[dict[str, Any]] = []
    for _, run in groupby(columns, key=lambda one: (one.unit, one.lower, one.upper, one.fill)):
        alike = list(run)
        if len(alike) < MANY:
            tables += map(plain_fields, alike)
        else:
            same = plain_fields(alike[0])
            del same[NAME]
            tables.append({NAMES: [one.name for one in alike], **same})
    return tables


def single_tables(tables: Sequence[Any]) -> Iterator[Any]:
    """Yield one table for each column; anything but a table with `names` is unchanged.
    Raises: RequestError, code `bad-study`, `names` is not a list of names."""
    for table in tables:
        if isinstance(table, Mapping) and NAMES in table:
            rest = {key: value for key, value in table.items() if key != NAMES}
            yield from ({NAME: name, **rest} for name in _names(table))
        else:
            yield table


def _names(table: Mapping[str, Any]) -> list[str]:
    names: Any = table[NAMES]
    need(NAME not in table, "a table of columns has both name and names; remove one of them")
    listed = isinstance(names, list) and bool(names) and all(type(name) is str for name in names)
    need(listed, "names must be a list of at least one column name")
    return list(names)


def _table_columns(table: Mapping[str, Any], position: int) -> Iterator[Column]:
    first = next(single_tables([table]))
    hint = "" if {"lower", "upper"} <= table.keys() else " (bounds are public and never taken from the data)"
    where = f"column {first.get(NAME, position)!r}"
    check_keys(
        first, field_types(Column), required(Column), where, lambda message: study_error(f"{message}{hint}")
    )
    values = coerce_values(Column, first, study_error)
    return (Column(**{**values, NAME: name}) for name in table.get(NAMES, [values[NAME]]))


SECTIONS: dict[str, tuple[str, ...]] = {
    "": ("name", "purpose", "algorithm", "choose", "components", "rank", "batches"),
    "privacy": (
        "epsilon", "delta", "neighbours", "max_sites_per_person", "radius", "trust", "colluding",
        "spare_attempts",
    ),
    "records": (
        "missing", "person_column", "centring", "scaling", "grid_steps", "max_records",
        "expected_records",
    ),
}  # fmt: skip
TABLES = ("federation", "columns", "applicant", PRIOR)
ATTEMPTS = "attempts"  # of each round, in plans before SPARE_SINCE
KEYS: dict[str, Any] = dict.fromkeys(SECTIONS[""]) | {  # of a study, with those of its tables
    "privacy": dict.fromkeys((*SECTIONS["privacy"], ATTEMPTS)),
    "records": dict.fromkeys(SECTIONS["records"]),
    "federation": dict.fromkeys(field_types(Federation)),
    "applicant": dict.fromkeys(field_types(Applicant)),
    PRIOR: dict.fromkeys(field_types(Prior)),
    "columns": None,
}
RESOLVE_HINT = (
    "if the file names columns of a dictionary, run `eigenveil study resolve` to fill in their units and "
    "bounds"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDraft:
    """Partial study: the values that were given, as in a study file, and the `text` of that file. Columns may
    be names of a dictionary. Once they were completed from it, `source` names the dictionary ("" if none was
    used), `overrides` has a sentence for each value that differs from the dictionary's, and `spreads` what it
    states of its columns. `warnings` are about its prior."""

    given: Mapping[str, Any]
    text: str
    source: str = ""
    overrides: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    spreads: Spreads = field(default_factory=lambda: NO_SPREADS)

    @property
    def dictionary(self) -> str | None:
        """Name or path of the dictionary that completes it, or None."""
        named: str | None = self.given.get(DICTIONARY)
        return named

    @property
    def is_complete(self) -> bool:
        """True if it needs no dictionary."""
        rows = self.given.get("columns", [])
        whole = isinstance(rows, list) and all(map(is_whole_column, single_tables(rows)))
        return DICTIONARY not in self.given and whole

    def study(self) -> Study:
        """Return the study. Raises as `study_from_dict`."""
        return study_from_dict(self.given)

    def with_scaling(self) -> StudyDraft:
        """Return the draft with its scaling stated, since a coordinator of another version may have another
        default. Raises as `study`."""
        records = _table(self.given, RECORDS)
        if SCALING in records:
            return self
        stated = self.study().scaling
        given = {**self.given, RECORDS: records | {SCALING: to_plain(stated)}}
        return replace(self, given=given, text=toml_text(given))


def is_whole_column(row: Any) -> bool:
    """Return True if this is a table with every required key of a column."""
    return isinstance(row, dict) and set(required(Column)) <= row.keys()


def draft_from_toml(text: str) -> StudyDraft:
    """Return the draft in the text of a study file. Raises: RequestError, code `bad-study`, not TOML."""
    given = read_toml(text, "the study")
    need(
        isinstance(given.get(DICTIONARY, ""), str),
        f"{DICTIONARY} = {given.get(DICTIONARY)!r} must be a text: the name or the path of a dictionary",
    )
    return StudyDraft(given=given, text=text)


def parse_study(text: str) -> Study:
    """Return the study in the text of a TOML file; deploy/config/study.example.toml has every key.

    Raises:
        RequestError: the text is not TOML, a key is unknown or missing, or a value is invalid.

    >>> from eigenveil import parse_study
    >>> parse_study('''
    ... name = "pilot"
    ... components = 1
    ... privacy = {epsilon = 1.0, delta = 1e-6}
    ... federation = {sites = ["north", "south"]}
    ... columns = [{name = "age", unit = "year", lower = 0, upper = 120}]
    ... ''').columns[0].upper
    120.0"""
    return draft_from_toml(text).study()


def sent_study(text: str) -> Study:
    """Return the study in the text that an analyst's program sends. Programs of version 1.0 leave out a
    scaling by bounds, so that is its meaning, whatever the default of a new study is."""
    given = read_toml(text, "the study")
    return study_from_dict({**given, RECORDS: {SCALING: Scaling.BOUNDS.value} | _table(given, RECORDS)})


def study_to_toml(study: Study) -> str:
    """Return a study as TOML, the inverse of `parse_study`."""
    return toml_text(study_to_dict(study))


def study_from_dict(data: Mapping[str, Any]) -> Study:
    """Return the study in a nested mapping, as in a TOML file or a plan.
    Raises RequestError: an unknown or missing key, a wrong type, or an invalid value."""
    need(DICTIONARY not in data, f"a submitted study cannot refer to a dictionary; {RESOLVE_HINT}")
    named = isinstance(data.get(PRIOR), str)
    need(
        not named, "a submitted study cannot refer to the file of a prior; `eigenveil study resolve` reads it"
    )
    check_keys(data, (*SECTIONS[""], "privacy", "records", *TABLES), (), "the study", study_error)
    flat = {key: data[key] for key in SECTIONS[""] if key in data}
    for section in ("privacy", "records"):
        table = _table(data, section)
        if section == "privacy":
            _drop_attempts(table)
        check_keys(table, SECTIONS[section], (), f"[{section}]", study_error)
        flat |= table
    check_keys(flat, flat, [key for key in required(Study) if key not in TABLES], "the study", study_error)
    return Study(
        **coerce_values(Study, {key: flat[key] for key in flat if key != "radius"}, study_error),
        radius=radius_from(flat.get("radius", "balance")),
        columns=_columns(data),
        federation=_values(Federation, data, "federation"),
        applicant=_values(Applicant, data, "applicant"),
        prior=_values(Prior, data, PRIOR) if PRIOR in data else None,
    )


def _drop_attempts(privacy: dict[str, Any]) -> None:
    """Remove the key that version 1.0 had for repeated attempts, and wrote into every study."""
    need(
        privacy.pop(ATTEMPTS, 1) == 1,
        "attempts was replaced: state spare_attempts, the number of attempts whose cost the study sets aside "
        "for all its rounds together",
    )


SPARE_SINCE = 8  # first version of plans with spare attempts

# Keys that came after version 7 of plans, by table: the first version of plans with them.
ADDED: Mapping[str, Mapping[str, int]] = {
    "privacy": {"spare_attempts": SPARE_SINCE},
    "federation": {"decide_by": 8, "loading_seconds": 8},
    "applicant": {"full_name": 8},
}

PRIOR_SINCE = 8  # first version of plans with a prior; such a plan requires its reader to know it


def _is_default(study: Study, name: str, key: str) -> bool:
    table = study if name in SECTIONS else getattr(study, name)
    return bool(getattr(table, key) == type(table).__dataclass_fields__[key].default)


def least_plan_version(study: Study) -> int:
    """Return the first version of plans that has every key that a study uses; 0 if each has."""
    used = (since for name, added in ADDED.items() for key, since in added.items()
            if not _is_default(study, name, key))  # fmt: skip
    return max((*used, PRIOR_SINCE if study.prior is not None else 0))


def study_to_dict(study: Study, version: int | None = None) -> dict[str, Any]:
    """Return the inverse of `study_from_dict`: nested plain values, with every key of plans of `version`.

    Without a version, a key of `ADDED` is there only if it states something. So earlier programs can read a
    study that does not use it, and its digest is the same for them."""
    flat = plain_fields(study) | {"radius": radius_value(study.radius)}
    top, *sections = ({key: flat[key] for key in keys} for keys in SECTIONS.values())
    tables = dict(zip(list(SECTIONS)[1:], sections, strict=True))
    tables |= {name: plain_fields(getattr(study, name)) for name in ("federation", "applicant")}
    for name, added in ADDED.items():
        for key, since in added.items():
            unused = version is None and _is_default(study, name, key)
            if unused or (version is not None and version < since):
                del tables[name][key]
    if study.prior is not None:
        tables[PRIOR] = plain_fields(study.prior)
    return top | tables | {"columns": column_tables(study.columns)}


def study_digest(study: Study) -> str:
    """Return the SHA-256 (hex) of all fields of a study; it does not depend on the submission. Version 1.0
    counts a key that studies no longer have."""
    values = study_to_dict(study)
    values["privacy"].setdefault(ATTEMPTS, 1)
    return digest("study", values)


def _table(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    table: Any = data.get(name, {})
    need(isinstance(table, dict), f"[{name}] must be a table")
    return dict(table)


def _values(kind: Callable[..., Part], data: Mapping[str, Any], name: str) -> Part:
    """Return the dataclass `kind` with the values of the table `name`."""
    table = _table(data, name)
    check_keys(table, field_types(kind), required(kind), f"[{name}]", study_error)
    return kind(**coerce_values(kind, table, study_error))


def _columns(data: Mapping[str, Any]) -> tuple[Column, ...]:
    rows = data.get("columns", [])
    tables = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    need(tables, f"columns must be an array of tables, [[columns]]; {RESOLVE_HINT}")
    return tuple(column for position, row in enumerate(rows, 1) for column in _table_columns(row, position))
