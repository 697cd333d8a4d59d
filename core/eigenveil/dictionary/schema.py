"""The JSON Schema of a dictionary, made from the dataclasses that read one: docs/dictionary.schema.json.

It says what a form can say: keys, types, lengths. That bounds rise, that names differ and that a code's last
digit is right is for `eigenveil dictionary check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin

from eigenveil.dictionary.dictionary import (
    LOINC,
    LONGEST_TEXT,
    MAX_COLUMNS,
    MAX_LEVELS,
    MAX_VERSION,
    Dictionary,
    DictionaryColumn,
)
from eigenveil.study.plain_values import hints, required
from eigenveil.study.study import LONGEST_NAME, NAME

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAMED = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}
# What a form can say of a field beyond its type.
LIMITS: Mapping[type, Mapping[str, Mapping[str, Any]]] = {
    Dictionary: {
        "name": {"pattern": f"^{NAME.pattern}$"},
        "version": {"minimum": 1, "maximum": MAX_VERSION},
        "about": {"maxLength": LONGEST_TEXT},
        "columns": {"minItems": 1, "maxItems": MAX_COLUMNS, "items": {"$ref": "#/$defs/column"}},
    },
    DictionaryColumn: {
        "name": NAMED,
        "meaning": {"maxLength": LONGEST_TEXT},
        "source": {"minLength": 1, "maxLength": LONGEST_TEXT},
        "unit": {"maxLength": LONGEST_NAME, "description": "UCUM"},
        "levels": {"minItems": 1, "maxItems": MAX_LEVELS, "uniqueItems": True, "items": NAMED},
        "loinc": {"pattern": f"^{LOINC.pattern}$"},
    },
}
TYPES: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    tuple: {"type": "array"},
}
CATEGORY = {
    "if": {"properties": {"type": {"const": "category"}}, "required": ["type"]},
    "then": {"required": ["levels"]},
    "else": {"not": {"required": ["levels"]}},
}
RANGE = {
    "dependentRequired": {"plausible_lower": ["plausible_upper"], "plausible_upper": ["plausible_lower"]}
}


def dictionary_schema() -> dict[str, Any]:
    """The schema as plain values."""
    return {
        "$schema": DIALECT,
        "title": "An eigenveil data dictionary",
        **_table(Dictionary),
        "$defs": {"column": {**_table(DictionaryColumn), **CATEGORY, **RANGE}},
    }


def _table(kind: type) -> dict[str, Any]:
    properties = {one.name: _field(kind, one.name) for one in fields(kind)}
    return {
        "type": "object",
        "properties": properties,
        "required": list(required(kind)),
        "additionalProperties": False,
    }


def _field(kind: type, name: str) -> dict[str, Any]:
    hint = hints(kind)[name]
    if isinstance(hint, UnionType):  # or left out
        hint = get_args(hint)[0]
    if issubclass(get_origin(hint) or hint, Enum):
        said: dict[str, Any] = {"enum": [one.value for one in hint]}
    else:
        said = dict(TYPES[get_origin(hint) or hint])
    return said | dict(LIMITS[kind].get(name, {}))
