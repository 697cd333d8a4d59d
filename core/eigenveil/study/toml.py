"""Conversion of studies from and to TOML and plain mappings; unknown or missing keys are errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

from eigenveil.numerics.encoding import digest
from eigenveil.study.checks import (
    check_keys,
    coerce_values,
    field_types,
    parse_toml,
    required,
    study_error,
    to_plain,
    toml_text,
)
from eigenveil.study.radius import radius_from, radius_value
from eigenveil.study.study import Column, Federation, Study

NAME, NAMES = "name", "names"
MANY = 16  # least number of consecutive equal columns that share a table


def column_tables(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Return the tables of columns in their order; `columns_from` is the inverse.

    Many columns that differ in their names only share one table with `names`. So 20,000 genetic variants take
    20,000 names and one description, in a file and in a plan.

    Every key is present, and a study has one form only, because its digest is computed from it.
    """
    tables: list[dict[str, Any]] = []
    for _, run in groupby(columns, key=lambda one: (one.unit, one.lower, one.upper, one.fill)):
        alike = list(run)
        if len(alike) < MANY:
            tables += map(_column_table, alike)
        else:
            same = _column_table(alike[0])
            del same[NAME]
            tables.append({NAMES: [one.name for one in alike], **same})
    return tables


def _column_table(column: Column) -> dict[str, Any]:
    return {one.name: to_plain(getattr(column, one.name)) for one in fields(column)}


def single_tables(tables: Sequence[Any]) -> Iterator[Any]:
    """Yield one table for each column; anything but a table with `names` is unchanged.

    Raises:
        RequestError: code `bad-study`, `names` is not a list of names.
    """
    for table in tables:
        if isinstance(table, Mapping) and NAMES in table:
            rest = {key: value for key, value in table.items() if key != NAMES}
            yield from ({NAME: name, **rest} for name in _names(table))
        else:
            yield table


def _names(table: Mapping[str, Any]) -> list[str]:
    names = table[NAMES]
    if NAME in table:
        raise study_error("a table of columns has both name and names; remove one of them")
    if not (isinstance(names, list) and names and all(type(name) is str for name in names)):
        raise study_error("names must be a list of at least one column name")
    return names


def columns_from(tables: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return the columns in tables.

    Raises:
        RequestError: code `bad-study`, a key is unknown or missing, or a value is invalid.
    """
    return tuple(
        column for position, table in enumerate(tables, 1) for column in _table_columns(table, position)
    )


def _table_columns(table: Mapping[str, Any], position: int) -> Iterator[Column]:
    names_of_table = _names(table) if NAMES in table else None
    first = {key: value for key, value in table.items() if key != NAMES}
    if names_of_table is not None:
        first[NAME] = names_of_table[0]
    hint = "" if {"lower", "upper"} <= table.keys() else " (bounds are public and never taken from the data)"
    where = f"column {first.get(NAME, position)!r}"
    check_keys(
        first, field_types(Column), required(Column), where, lambda message: study_error(f"{message}{hint}")
    )
    values = coerce_values(Column, first, study_error, {})
    return (Column(**{**values, NAME: name}) for name in names_of_table or [values[NAME]])


SECTIONS: dict[str, tuple[str, ...]] = {
    "": ("name", "purpose", "algorithm", "choose", "components", "rank", "batches"),
    "privacy": (
        "epsilon", "delta", "neighbours", "max_sites_per_person", "radius", "trust", "colluding", "attempts",
    ),
    "records": (
        "missing", "person_column", "centring", "scaling", "grid_steps", "max_records",
        "expected_records",
    ),
}  # fmt: skip
TABLES = ("federation", "columns")
RESOLVE_HINT = (
    "if the file names columns of a dictionary, run `eigenveil study resolve` to fill in their units and "
    "bounds"
)


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
    120.0
    """
    try:
        data = parse_toml(text)
    except ValueError as problem:
        raise study_error(f"the study is not valid TOML: {problem}") from problem
    return study_from_dict(data)


def study_to_toml(study: Study) -> str:
    """Return a study as TOML, the inverse of `parse_study`."""
    return toml_text(study_to_dict(study))


def study_from_dict(data: dict[str, Any]) -> Study:
    """Return the study in a nested mapping, as in a TOML file or a plan.

    Raises:
        RequestError: an unknown or missing key, a wrong type, or an invalid value.
    """
    if "dictionary" in data:
        raise study_error(f"a submitted study cannot refer to a dictionary; {RESOLVE_HINT}")
    check_keys(data, (*SECTIONS[""], "privacy", "records", *TABLES), (), "the study", study_error)
    flat = {key: data[key] for key in SECTIONS[""] if key in data}
    for section in ("privacy", "records"):
        section_data = _table(data, section)
        check_keys(section_data, SECTIONS[section], (), f"[{section}]", study_error)
        flat |= section_data
    check_keys(flat, flat, [key for key in required(Study) if key not in TABLES], "the study", study_error)
    radius = radius_from(flat.pop("radius", "balance"))
    return Study(
        **coerce_values(Study, flat, study_error, {}),
        radius=radius,
        columns=_columns(data),
        federation=_federation(data),
    )


def study_to_dict(study: Study) -> dict[str, Any]:
    """Return the inverse of `study_from_dict`: nested plain values with every key present."""
    flat = _fields(study) | {"radius": radius_value(study.radius)}
    out: dict[str, Any] = {key: flat[key] for key in SECTIONS[""]}
    for section in ("privacy", "records"):
        out[section] = {key: flat[key] for key in SECTIONS[section]}
    out["federation"] = _fields(study.federation)
    out["columns"] = column_tables(study.columns)
    return out


def _fields(value: Study | Federation) -> dict[str, Any]:
    return {one.name: to_plain(getattr(value, one.name)) for one in fields(value)}


def study_digest(study: Study) -> str:
    """Return the SHA-256 (hex) of all fields of a study; it does not depend on the submission."""
    return digest("study", study_to_dict(study))


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    section_data = data.get(name, {})
    if not isinstance(section_data, dict):
        raise study_error(f"[{name}] must be a table")
    return section_data


def _columns(data: dict[str, Any]) -> tuple[Column, ...]:
    rows = data.get("columns", [])
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise study_error(f"columns must be an array of tables, [[columns]]; {RESOLVE_HINT}")
    return columns_from(rows)


def _federation(data: dict[str, Any]) -> Federation:
    section_data = _table(data, "federation")
    check_keys(section_data, field_types(Federation), required(Federation), "[federation]", study_error)
    return Federation(**coerce_values(Federation, section_data, study_error, {}))
