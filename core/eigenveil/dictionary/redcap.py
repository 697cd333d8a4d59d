"""From a REDCap project's data dictionary (CSV) to the draft of a dictionary.

A field's validation range is its bounds, which whoever designed the form stated before there was any record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from eigenveil.dictionary.dictionary import MAX_LEVELS
from eigenveil.dictionary.drafts import Draft, Row, readable, rows, to_draft
from eigenveil.dictionary.toml import TO_FILL

FIELD, TYPE, LABEL = "Variable / Field Name", "Field Type", "Field Label"
CHOICES = "Choices, Calculations, OR Slider Labels"
VALIDATION = "Text Validation Type OR Show Slider Number"
MINIMUM, MAXIMUM = "Text Validation Min", "Text Validation Max"
IDENTIFIER = "Identifier?"
NEEDED = (FIELD, TYPE, LABEL, CHOICES, VALIDATION, MINIMUM, MAXIMUM)
RANGE = "validation range in the REDCap data dictionary"
CODED = "coded so in the REDCap data dictionary"
SLID = "the ends of a slider in the REDCap data dictionary"
SLIDER = (0.0, 100.0)  # REDCap's own, where the field states none


def from_redcap(lines: Iterable[str], name: str) -> Draft:
    """The draft of a dictionary of the numbers and choices in a REDCap data dictionary; texts, dates, files
    and what is marked as an identifier are left out.

    Raises:
        RequestError: code `bad-study`, it is no such file, or has no such field.
    """
    found = (column for row in rows(lines, ",", NEEDED) for column in _columns(row))
    return to_draft(name, "Fields of a REDCap data dictionary", found)


def _columns(row: Row) -> Iterator[dict[str, Any] | None]:
    """What one field is in an export of raw values: a column, or one for each box."""
    field = {"name": row[FIELD].strip(), "meaning": readable(row[LABEL])}
    validation = row[VALIDATION].strip()
    if row.get(IDENTIFIER, "").strip().casefold() == "y" or not field["name"]:
        yield None
        return
    match row[TYPE].strip().casefold():
        case "text" if validation.startswith(("number", "integer")):
            whole = {"type": "integer"} if validation == "integer" else {"unit": TO_FILL}
            yield field | whole | _range(row, TO_FILL, TO_FILL)
        case "calc":
            yield field | {"unit": TO_FILL} | _range(row, TO_FILL, TO_FILL)
        case "slider":
            yield field | _range(row, *SLIDER) | {"source": SLID}
        case "yesno" | "truefalse":
            yield field | _zero_or_one("integer")
        case "checkbox":
            for code, label in _choices(row):
                box = {"name": f"{field['name']}___{code.lower()}", "meaning": f"{field['meaning']}: {label}"}
                yield field | box | _zero_or_one("integer")
        case "radio" | "dropdown":
            yield _category(field, _choices(row))
        case _:
            yield None


def _range(row: Row, lower: float | str, upper: float | str) -> dict[str, Any]:
    stated = [_number(row[MINIMUM]), _number(row[MAXIMUM])]
    bounds = [own if one is None else one for one, own in zip(stated, (lower, upper), strict=True)]
    return {"lower": bounds[0], "upper": bounds[1], "source": TO_FILL if TO_FILL in bounds else RANGE}


def _number(text: str) -> float | None:
    """A stated bound; None for none, a date, or another field's value."""
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _zero_or_one(kind: str) -> dict[str, Any]:
    return {"type": kind, "lower": 0.0, "upper": 1.0, "source": CODED}


def _choices(row: Row) -> list[tuple[str, str]]:
    """The codes of a field, which are what its column holds, and what they stand for."""
    pairs = (choice.partition(",") for choice in row[CHOICES].split("|"))
    return [(readable(code), readable(label)) for code, _, label in pairs if code.strip()]


def _category(field: dict[str, str], choices: list[tuple[str, str]]) -> dict[str, Any] | None:
    if not 1 <= len(choices) <= MAX_LEVELS:
        return None
    legend = ", ".join(f"{code}: {label}" for code, label in choices)
    meaning = readable(f"{field['meaning']} ({legend})")
    levels = list(dict.fromkeys(code for code, _ in choices))
    return field | {"meaning": meaning, "levels": levels} | _zero_or_one("category")
