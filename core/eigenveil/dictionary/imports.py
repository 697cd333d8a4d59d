"""Imports of an OMOP vocabulary or a REDCap data dictionary, as drafts that a person completes."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from eigenveil.dictionary.dictionary import (
    LOINC,
    MAX_COLUMNS,
    MAX_LEVELS,
    MAX_TEXT_LENGTH,
    Dictionary,
    DictionaryColumn,
    check_digit,
)
from eigenveil.dictionary.formats import TO_FILL, TO_FILL_IN, is_open, stated_fields
from eigenveil.study.checks import BOM, need, study_error, toml_text
from eigenveil.study.study import MAX_NAME_LENGTH

TAB = "\t"
Row = Mapping[str, str]
HEADING = """\
# Imported. Replace every {to_fill!r} by public knowledge of the measurement, never by values from records:
# public bounds (lower, upper) in the column's unit (UCUM, "" for none), and their origin (source). Commands
# accept the file after that: `eigenveil dictionary check` lists the remaining columns.
"""


class DictionaryDraft(NamedTuple):
    """Text of a draft dictionary, its `columns`, those that are incomplete, and rows without a column."""

    text: str
    columns: int
    to_fill: int
    left_out: int


def delimited_rows(lines: Iterable[str], separator: str, needed: Iterable[str]) -> Iterator[Row]:
    """Yield the rows of delimited text, as maps by the names in its first line. Quoted cells may have breaks.
    Raises: RequestError, code `bad-study`, a column is missing, or it is not delimited text."""
    reader = csv.DictReader(
        _without_mark(lines),
        delimiter=separator,
        quoting=csv.QUOTE_NONE if separator == TAB else csv.QUOTE_MINIMAL,  # there a name may have a quote
        restval="",
    )
    try:
        missing = [repr(name) for name in needed if name not in (reader.fieldnames or ())]
        need(not missing, f"the first line has no column {', '.join(missing)}; is this the right file?")
        for row in reader:
            yield {name: value for name, value in row.items() if name is not None}
    except csv.Error as problem:
        raise study_error(f"line {reader.line_num} cannot be read: {problem}") from problem


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    for place, line in enumerate(lines):
        yield line.removeprefix(BOM) if place == 0 else line


def make_draft(name: str, about: str, columns: Iterable[Mapping[str, Any] | None]) -> DictionaryDraft:
    """Return the draft of a dictionary with these columns; None is a row without a column.
    Raises: RequestError, code `bad-study`, no column, too many, or two with one name."""
    found: dict[str, Mapping[str, Any]] = {}
    left_out = 0
    for column in columns:
        if column is None:
            left_out += 1
            continue
        need(column["name"] not in found, f"two rows define the column {column['name']!r}; remove one")
        found[column["name"]] = column
        many = len(found) > MAX_COLUMNS
        need(not many, f"the file has more than {MAX_COLUMNS} columns; remove those that no study will use")
    need(bool(found), "the file has no measurement that a study can use")
    to_fill = sum(map(is_open, found.values()))
    heading = HEADING.format(to_fill=TO_FILL) + "\n" if to_fill else ""
    document = {"name": name, "version": 1, "about": about, "columns": list(found.values())}
    return DictionaryDraft(heading + toml_text(document), len(found), to_fill, left_out)


def printable_line(text: str) -> str:
    """Return an external text on one line, truncated, without control characters."""
    words = "".join(one if one.isprintable() else " " for one in text)
    return " ".join(words.split())[:MAX_TEXT_LENGTH]


def column_name(text: str) -> str:
    """Return a column name made from a title."""
    letters = "".join(one if one.isalnum() else " " for one in text.casefold())
    return "_".join(letters.split())[:MAX_NAME_LENGTH]


OMOP_COLUMNS = ("concept_name", "vocabulary_id", "concept_code")
MEASURED = ("", "Measurement")  # values of the optional column domain_id


def from_omop(lines: Iterable[str], name: str, known: Dictionary) -> DictionaryDraft:
    """Return the draft dictionary of the valid LOINC measurements in a tab-separated concept list. The list
    is Athena's CONCEPT.csv. A concept has a name and a code, but no unit or bounds. They come from the column
    of `known` with the same LOINC code, if any, or a person fills them in.
    Raises RequestError: code `bad-study`, not such a list, or without a measurement."""
    by_code = {column.loinc: column for column in known.columns if column.loinc is not None}
    found = (_column(row, by_code) for row in delimited_rows(lines, TAB, OMOP_COLUMNS))
    return make_draft(name, "Measurements of an OMOP concept list", found)


def _column(row: Row, known: Mapping[str, DictionaryColumn]) -> dict[str, Any] | None:
    code = row["concept_code"].strip()
    valid = not row.get("invalid_reason", "").strip() and row.get("domain_id", "") in MEASURED
    if row["vocabulary_id"] != "LOINC" or not valid or not LOINC.fullmatch(code) or not check_digit(code):
        return None
    name, meaning = column_name(row["concept_name"]), printable_line(row["concept_name"])
    same = known.get(code)
    if same is not None:
        return stated_fields(replace(same, name=name, meaning=meaning))
    return {"name": name, "meaning": meaning, "loinc": code, **dict.fromkeys(TO_FILL_IN, TO_FILL)}


FIELD, TYPE, LABEL = "Variable / Field Name", "Field Type", "Field Label"
CHOICES = "Choices, Calculations, OR Slider Labels"
VALIDATION = "Text Validation Type OR Show Slider Number"
MINIMUM, MAXIMUM = "Text Validation Min", "Text Validation Max"
IDENTIFIER = "Identifier?"
REDCAP_COLUMNS = (FIELD, TYPE, LABEL, CHOICES, VALIDATION, MINIMUM, MAXIMUM)
RANGE = "validation range in the REDCap data dictionary"
CODED = "coded so in the REDCap data dictionary"
SLID = "the ends of a slider in the REDCap data dictionary"
SLIDER = (0.0, 100.0)  # REDCap's default range


def from_redcap(lines: Iterable[str], name: str) -> DictionaryDraft:
    """Return the draft dictionary of the numbers and choices in a REDCap data dictionary. The file is a
    project's data dictionary (CSV). The bounds of a field are its validation range, which the form's designer
    stated before any record existed. Texts, dates, files and identifiers are left out.
    Raises RequestError: code `bad-study`, not such a file, or without such a field."""
    found = (column for row in delimited_rows(lines, ",", REDCAP_COLUMNS) for column in _columns(row))
    return make_draft(name, "Fields of a REDCap data dictionary", found)


def _columns(row: Row) -> Iterator[dict[str, Any] | None]:
    """Yield the columns of a field in an export of raw values: one, or one for each checkbox."""
    field = {"name": row[FIELD].strip(), "meaning": printable_line(row[LABEL])}
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
    low, high = _number(row[MINIMUM]), _number(row[MAXIMUM])
    bounds = (lower if low is None else low, upper if high is None else high)
    return {"lower": bounds[0], "upper": bounds[1], "source": TO_FILL if TO_FILL in bounds else RANGE}


def _number(text: str) -> float | None:
    """Return a stated bound, or None for an empty text, a date or a reference to another field."""
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _zero_or_one(kind: str) -> dict[str, Any]:
    return {"type": kind, "lower": 0.0, "upper": 1.0, "source": CODED}


def _choices(row: Row) -> list[tuple[str, str]]:
    """Return the codes of a field, which its column has as values, with their labels."""
    pairs = (choice.partition(",") for choice in row[CHOICES].split("|"))
    return [(printable_line(code), printable_line(label)) for code, _, label in pairs if code.strip()]


def _category(field: dict[str, str], choices: list[tuple[str, str]]) -> dict[str, Any] | None:
    if not 1 <= len(choices) <= MAX_LEVELS:
        return None
    legend = ", ".join(f"{code}: {label}" for code, label in choices)
    meaning = printable_line(f"{field['meaning']} ({legend})")
    return field | {"meaning": meaning, "levels": list(dict(choices))} | _zero_or_one("category")
