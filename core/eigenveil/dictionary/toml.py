"""Dictionaries from TOML and plain values, and back; what is unknown or still to be filled in is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from eigenveil.dictionary.dictionary import MAX_COLUMNS, Dictionary, DictionaryColumn
from eigenveil.errors import RequestError
from eigenveil.numerics.encoding import digest
from eigenveil.study.checks import refuse
from eigenveil.study.plain_values import check_keys, checked, hints, parse_toml, plain, required, toml_text

MOST_NAMED = 20
TO_FILL = "fill in"  # what an import writes for a bound that its source does not have
TO_FILL_IN = ("unit", "lower", "upper", "source")


def parse_dictionary(text: str) -> Dictionary:
    """Read a dictionary from the text of a TOML file; deploy/config/dictionary.example.toml is one.

    Raises:
        RequestError: code `bad-study`: not TOML, an unknown or missing key, a bound that is still to be
            filled in, or a refused value.
    """
    try:
        data = parse_toml(text)
    except ValueError as problem:
        raise refuse(f"the dictionary is not valid TOML: {problem}") from problem
    return dictionary_from_dict(data)


def dictionary_from_dict(data: Mapping[str, Any]) -> Dictionary:
    """Build a dictionary from the nested mapping that a TOML file or a published one holds.

    Raises:
        RequestError: as `parse_dictionary`.
    """
    check_keys(data, hints(Dictionary), required(Dictionary), "the dictionary", refuse)
    rows = data["columns"]
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise refuse("the columns of a dictionary are an array of tables: [[columns]]")
    if len(rows) > MAX_COLUMNS:
        raise refuse(f"a dictionary has at most {MAX_COLUMNS} columns, got {len(rows)}")
    _check_filled(rows)
    columns = tuple(_column(row, position) for position, row in enumerate(rows, 1))
    about = {key: data[key] for key in data if key != "columns"}
    return Dictionary(**checked(Dictionary, about, refuse, {}), columns=columns)


def _check_filled(rows: list[dict[str, Any]]) -> None:
    left = [str(row.get("name")) for row in rows if any(row.get(key) == TO_FILL for key in TO_FILL_IN)]
    if left:
        shown = ", ".join(map(repr, left[:MOST_NAMED]))
        more = f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
        raise refuse(
            f"still to be filled in, for {shown}{more}: unit, lower, upper and source, from what is known of "
            "the measurement and never from records"
        )


def _column(row: dict[str, Any], position: int) -> DictionaryColumn:
    where = f"column {row.get('name', position)!r}"

    def no(said: str) -> RequestError:
        return refuse(said if said.startswith(where) else f"{where}: {said}")

    check_keys(row, hints(DictionaryColumn), required(DictionaryColumn), where, no)
    return DictionaryColumn(**checked(DictionaryColumn, row, no, {}))


def dictionary_to_dict(dictionary: Dictionary) -> dict[str, Any]:
    """The inverse of `dictionary_from_dict`, with every key that says something."""
    return _said(dictionary) | {"columns": [column_to_dict(column) for column in dictionary.columns]}


def column_to_dict(column: DictionaryColumn) -> dict[str, Any]:
    """One column as a file says it."""
    return _said(column)


def _said(value: Dictionary | DictionaryColumn) -> dict[str, Any]:
    return {
        one.name: plain(getattr(value, one.name))
        for one in fields(value)
        if one.name != "columns" and getattr(value, one.name) != one.default
    }


def dictionary_to_toml(dictionary: Dictionary) -> str:
    """A dictionary as TOML: `parse_dictionary` gives the same one."""
    return toml_text(dictionary_to_dict(dictionary))


def dictionary_digest(dictionary: Dictionary) -> str:
    """SHA-256 (hex) of all that a dictionary says."""
    return digest("dictionary", dictionary_to_dict(dictionary))
