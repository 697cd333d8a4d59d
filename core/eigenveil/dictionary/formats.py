"""Forms of a dictionary: TOML, plain values, JSON Schema (docs/dictionary.schema.json), signed bytes [R22].
The schema has keys, types and lengths; parsing also checks the order of bounds, names and check digits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin

from eigenveil.dictionary.dictionary import (
    LOINC,
    MAX_COLUMNS,
    MAX_LEVELS,
    MAX_TEXT_LENGTH,
    MAX_VERSION,
    Dictionary,
    DictionaryColumn,
    listed,
)
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.numerics.encoding import digest
from eigenveil.signatures import Extensible, Keys, Sign, SignedStatement
from eigenveil.study.checks import (
    check_keys,
    coerce_values,
    field_types,
    need,
    plain_fields,
    read_toml,
    required,
    study_error,
    toml_text,
)
from eigenveil.study.study import MAX_NAME_LENGTH, NAME

TO_FILL = "fill in"  # placeholder of an import for a value that its source does not have
TO_FILL_IN = ("unit", "lower", "upper", "source")


def parse_dictionary(text: str) -> Dictionary:
    """Return the dictionary in the text of a TOML file; deploy/config/dictionary.example.toml is an example.
    Raises: RequestError, code `bad-study`, also for a value that is still to be filled in."""
    return dictionary_from_dict(read_toml(text, "the dictionary"))


def dictionary_from_dict(data: Mapping[str, Any]) -> Dictionary:
    """Return the dictionary in a nested mapping, as in a file. Raises as `parse_dictionary`."""
    check_keys(data, field_types(Dictionary), required(Dictionary), "the dictionary", study_error)
    rows = data["columns"]
    tables = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    need(tables, "the columns of a dictionary are an array of tables: [[columns]]")
    need(len(rows) <= MAX_COLUMNS, f"a dictionary can have at most {MAX_COLUMNS} columns, got {len(rows)}")
    open_ones = [repr(row.get("name")) for row in rows if is_open(row)]
    where = f"for {listed(open_ones)}: unit, lower, upper or source, from what is known of the measurement"
    need(not open_ones, f"still to be filled in, {where} and never from records")
    columns = tuple(_column(row, position) for position, row in enumerate(rows, 1))
    about = {key: data[key] for key in data if key != "columns"}
    return Dictionary(**coerce_values(Dictionary, about, study_error, {}), columns=columns)


def is_open(row: Mapping[str, Any]) -> bool:
    """Return True if a person must still fill in a value of a column."""
    return any(row.get(key) == TO_FILL for key in TO_FILL_IN)


def _column(row: dict[str, Any], position: int) -> DictionaryColumn:
    where = f"column {row.get('name', position)!r}"

    def column_error(message: str) -> RequestError:
        return study_error(message if message.startswith(where) else f"{where}: {message}")

    check_keys(row, field_types(DictionaryColumn), required(DictionaryColumn), where, column_error)
    return DictionaryColumn(**coerce_values(DictionaryColumn, row, column_error, {}))


def dictionary_to_dict(dictionary: Dictionary) -> dict[str, Any]:
    """Return the inverse of `dictionary_from_dict`, without keys that have their default."""
    return stated_fields(dictionary) | {"columns": [stated_fields(column) for column in dictionary.columns]}


def stated_fields(value: Dictionary | DictionaryColumn) -> dict[str, Any]:
    """Return the fields as in a file, without those that have their default."""
    defaults = [one.name for one in fields(value) if getattr(value, one.name) == one.default]
    return {name: one for name, one in plain_fields(value).items() if name not in defaults}


def dictionary_to_toml(dictionary: Dictionary) -> str:
    """Return a dictionary as TOML, the inverse of `parse_dictionary`."""
    return toml_text(dictionary_to_dict(dictionary))


def dictionary_digest(dictionary: Dictionary) -> str:
    """Return the SHA-256 (hex) of all fields of a dictionary."""
    return digest("dictionary", dictionary_to_dict(dictionary))


DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAMED = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH}
# Limits of fields beyond their types.
LIMITS: Mapping[type, Mapping[str, Mapping[str, Any]]] = {
    Dictionary: {
        "name": {"pattern": f"^{NAME.pattern}$"},
        "version": {"minimum": 1, "maximum": MAX_VERSION},
        "about": {"maxLength": MAX_TEXT_LENGTH},
        "columns": {"minItems": 1, "maxItems": MAX_COLUMNS, "items": {"$ref": "#/$defs/column"}},
    },
    DictionaryColumn: {
        "name": NAMED,
        "meaning": {"maxLength": MAX_TEXT_LENGTH},
        "source": {"minLength": 1, "maxLength": MAX_TEXT_LENGTH},
        "unit": {"maxLength": MAX_NAME_LENGTH, "description": "UCUM"},
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
    """Return the schema as plain values."""
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
    hint = field_types(kind)[name]
    if isinstance(hint, UnionType):  # or left out
        hint = get_args(hint)[0]
    if issubclass(get_origin(hint) or hint, Enum):
        field_schema: dict[str, Any] = {"enum": [one.value for one in hint]}
    else:
        field_schema = dict(TYPES[get_origin(hint) or hint])
    return field_schema | dict(LIMITS[kind].get(name, {}))


DICTIONARY_SIGNED = b"eigenveil/dictionary-signature/v1\n"
MOST_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class DictionaryStatement(Extensible):
    """Statement that a federation publishes this dictionary. `written` has it as it was read, also with keys
    of tables that are unknown here and without meaning; None: exactly as `dictionary`."""

    format, noun = "eigenveil-dictionary/1", "the dictionary"

    federation: str
    dictionary: Dictionary
    written: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def known(cls) -> tuple[str, ...]:
        return ("federation", "dictionary")

    def to_dict(self) -> dict[str, Any]:
        written = dictionary_to_dict(self.dictionary) if self.written is None else self.written
        return {"federation": self.federation, "dictionary": written}

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any], unknown: Mapping[str, Any]) -> DictionaryStatement:
        """Return the inverse of `to_dict`. Raises ValueError: the dictionary is invalid."""
        written = stated["dictionary"]
        known = _known(Dictionary, written) | {
            "columns": [_known(DictionaryColumn, column) for column in written["columns"]]
        }
        try:
            dictionary = dictionary_from_dict(known)
        except RequestError as problem:
            raise ValueError(str(problem)) from problem
        federation = str(stated["federation"])
        return cls(federation=federation, dictionary=dictionary, written=written, unknown=unknown)


def _known(kind: type, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a table whose keys are fields of `kind`."""
    return {one.name: table[one.name] for one in fields(kind) if one.name in table}


class SignedDictionary(SignedStatement[DictionaryStatement]):
    """Signed statement of a federation's dictionary."""

    __slots__ = ()
    kind, prefix, most_bytes = DictionaryStatement, DICTIONARY_SIGNED, MOST_BYTES

    def check_federation(self, release_keys: Keys, federation: str) -> Dictionary:
        """Return the dictionary, if a release key of `federation` signed its exact bytes.
        Raises PeerError: code `identity`, signed by another key, changed, or another federation's;
        `protocol`, not a dictionary."""
        stated = self.check(release_keys)
        if stated.federation != federation:
            raise PeerError(
                Code.IDENTITY, f"the dictionary is of federation {stated.federation}; it was rejected"
            )
        return stated.dictionary


def sign_dictionary(dictionary: Dictionary, federation: str, sign: Sign) -> SignedDictionary:
    """Return a dictionary with the signature of the release key of `federation`.
    Raises: RequestError, code `bad-study`, too long for a message."""
    dictionary_json = DictionaryStatement(federation=federation, dictionary=dictionary).signed_json
    need(
        len(dictionary_json) <= MOST_BYTES,
        f"the dictionary has {len(dictionary_json)} bytes, and at most {MOST_BYTES} can be published; "
        "shorten its texts",
    )
    return SignedDictionary(signed_json=dictionary_json, signature=sign(DICTIONARY_SIGNED + dictionary_json))
