"""The columns of a study as tables: many that are alike but for their names are one, with `names`.

Twenty thousand variants are then twenty thousand names and one line about them, in a file as in a plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

from eigenveil.study.checks import refuse
from eigenveil.study.plain_values import check_keys, checked, hints, plain, required
from eigenveil.study.study import Column

NAME, NAMES = "name", "names"
MANY = 16  # columns one after the other from which on tables for each are harder to read than one


def column_tables(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """What a study says of its columns, in their order; `columns_from` is the inverse.

    Every key is there. One study has one form, as its digest needs.
    """
    tables: list[dict[str, Any]] = []
    for _, run in groupby(columns, key=lambda one: (one.unit, one.lower, one.upper, one.fill)):
        alike = list(run)
        if len(alike) < MANY:
            tables += map(_table, alike)
        else:
            same = _table(alike[0])
            del same[NAME]
            tables.append({NAMES: [one.name for one in alike], **same})
    return tables


def _table(column: Column) -> dict[str, Any]:
    return {one.name: plain(getattr(column, one.name)) for one in fields(column)}


def single_tables(tables: Sequence[Any]) -> Iterator[Any]:
    """One table for each column; what is no table with `names` stays as it is.

    Raises:
        RequestError: code `bad-study`, `names` are no names.
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
        raise refuse("a table of columns has either name or names; keep one")
    if not (isinstance(names, list) and names and all(type(name) is str for name in names)):
        raise refuse("names must be a list of columns' names, at least one")
    return names


def columns_from(tables: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns that tables say.

    Raises:
        RequestError: code `bad-study`, a key is unknown or missing, or a value is refused.
    """
    return tuple(column for place, table in enumerate(tables, 1) for column in _columns(table, place))


def _columns(table: Mapping[str, Any], place: int) -> Iterator[Column]:
    many = _names(table) if NAMES in table else None
    first = {key: value for key, value in table.items() if key != NAMES}
    if many is not None:
        first[NAME] = many[0]
    hint = "" if {"lower", "upper"} <= table.keys() else " (bounds are public and never read off the data)"
    where = f"column {first.get(NAME, place)!r}"
    check_keys(first, hints(Column), required(Column), where, lambda said: refuse(f"{said}{hint}"))
    values = checked(Column, first, refuse, {})
    return (Column(**{**values, NAME: name}) for name in many or [values[NAME]])
