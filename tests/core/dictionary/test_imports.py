"""An imported dictionary is a draft that is refused until its open fields are filled in."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.dictionary.dictionary import ColumnType
from eigenveil.dictionary.formats import TO_FILL, parse_dictionary
from eigenveil.dictionary.imports import (
    CHOICES,
    FIELD,
    IDENTIFIER,
    LABEL,
    MAXIMUM,
    MINIMUM,
    TYPE,
    VALIDATION,
    DictionaryDraft,
    from_omop,
    from_redcap,
)
from eigenveil.errors import Code
from tests.core.dictionary.test_dictionary import SHIPPED
from tests.support import refused

KNOWN = parse_dictionary(SHIPPED)
CONCEPT = (
    "concept_id\tconcept_name\tdomain_id\tvocabulary_id\tconcept_class_id\tstandard_concept\tconcept_code"
    "\tvalid_start_date\tvalid_end_date\tinvalid_reason\n"
)
CHOLESTEROL = (
    "3027114\tCholesterol [Mass/volume] in Serum or Plasma\tMeasurement\tLOINC\tLab Test\tS\t2093-3\t\t\t\n"
)
UNKNOWN = '99\tA "new" measure\tMeasurement\tLOINC\tLab Test\tS\t1825-9\t\t\t\n'
NO_MEASUREMENTS = [
    "1\tGlucose\tMeasurement\tSNOMED\tLab Test\tS\t33747003\t\t\t\n",
    "2\tOld code\tMeasurement\tLOINC\tLab Test\t\t2085-9\t\t\tD\n",
    "3\tA note\tNote\tLOINC\tDoc\tS\t2160-0\t\t\t\n",
    "4\tAn answer\tMeasurement\tLOINC\tAnswer\tS\tLA6576-8\t\t\t\n",
    "5\tA mistyped code\tMeasurement\tLOINC\tLab Test\tS\t2160-1\t\t\t\n",
]
OPEN: list[dict[str, str]] = [
    {}, {"low": "1"}, {"high": "9"}, {"low": "today", "high": "[other]"}, {"low": "nan", "high": "inf"},
]  # fmt: skip
HEADER = [FIELD, "Form Name", TYPE, LABEL, CHOICES, VALIDATION, MINIMUM, MAXIMUM, IDENTIFIER]


def omop(*rows: str) -> DictionaryDraft:
    return from_omop(io.StringIO(CONCEPT + "".join(rows)), "imported", KNOWN)


def redcap(*fields: Mapping[str, str], bom: str = "") -> DictionaryDraft:
    """The draft of a data dictionary as REDCap writes it."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, HEADER, restval="")
    writer.writeheader()
    writer.writerows(fields)
    return from_redcap(io.StringIO(bom + out.getvalue(), newline=""), "imported")


def field(name: str, kind: str, choices: str = "", **more: str) -> dict[str, str]:
    keys = {
        "validation": VALIDATION,
        "low": MINIMUM,
        "high": MAXIMUM,
        "identifier": IDENTIFIER,
        "label": LABEL,
    }
    return {FIELD: name, TYPE: kind, CHOICES: choices, LABEL: name} | {
        keys[key]: message for key, message in more.items()
    }


def test_a_concept_with_a_known_code_has_its_unit_and_bounds() -> None:
    draft = omop(CHOLESTEROL)
    assert (draft.columns, draft.to_fill, draft.left_out) == (1, 0, 0)
    (column,) = parse_dictionary(draft.text).columns
    (own,) = (one for one in KNOWN.columns if one.loinc == "2093-3")
    assert column.name == "cholesterol_mass_volume_in_serum_or_plasma"
    assert column == replace(own, name=column.name, meaning="Cholesterol [Mass/volume] in Serum or Plasma")


def test_an_unknown_concept_is_left_to_fill_in_and_the_file_is_refused_until_then() -> None:
    draft = omop(UNKNOWN, CHOLESTEROL, *NO_MEASUREMENTS)
    assert (draft.columns, draft.to_fill, draft.left_out) == (2, 1, len(NO_MEASUREMENTS))
    with refused(Code.BAD_STUDY, "still to be filled in, for 'a_new_measure'"):
        parse_dictionary(draft.text)
    text = draft.text
    for key, message in (("unit", '"mg/dL"'), ("lower", "0"), ("upper", "9"), ("source", '"a textbook"')):
        with refused(Code.BAD_STUDY, "filled in"):
            parse_dictionary(text)
        assert f'{key} = "{TO_FILL}"' in text
        text = text.replace(f'{key} = "{TO_FILL}"', f"{key} = {message}")
    assert parse_dictionary(text).columns[0].upper == 9


def test_every_kind_of_redcap_field_becomes_its_columns() -> None:
    draft = redcap(
        field("hr", "text", validation="integer", low="20", high="300"),
        field("chol", "text", validation="number_1dp_comma_decimal", low="0,5", high="30"),
        field("sex", "radio", "1, Female | 2, Male"),
        field("smoker", "yesno"),
        field("drugs", "checkbox", "A, Aspirin | b, Other"),
        field("pain", "slider", "none | some | worst"),
        field("notes", "notes"),
        field("seen", "text", validation="date_dmy"),
        field("name", "text", identifier="y"),
        bom="\ufeff",
    )
    assert (draft.columns, draft.to_fill, draft.left_out) == (7, 1, 3)
    text = draft.text.replace(f'unit = "{TO_FILL}"', 'unit = "mmol/L"')
    found = {column.name: column for column in parse_dictionary(text).columns}
    assert list(found) == ["hr", "chol", "sex", "smoker", "drugs___a", "drugs___b", "pain"]
    assert (found["hr"].type, found["hr"].lower, found["hr"].upper) == (ColumnType.INTEGER, 20, 300)
    assert (found["chol"].lower, found["chol"].upper) == (0.5, 30)
    assert (found["sex"].levels, found["sex"].meaning) == (("1", "2"), "sex (1: Female, 2: Male)")
    assert found["drugs___a"].meaning == "drugs: Aspirin"
    assert (found["pain"].lower, found["pain"].upper) == (0, 100)


@pytest.mark.parametrize("bounds", OPEN, ids=str)
def test_a_range_that_is_no_two_numbers_is_left_open(bounds: dict[str, str]) -> None:
    draft = redcap(field("x", "text", validation="number", **bounds))
    assert draft.to_fill == 1
    assert f'source = "{TO_FILL}"' in draft.text


@given(st.text(max_size=60), st.text(max_size=60))
def test_imported_names_and_meanings_are_printable(name: str, label: str) -> None:
    one = field("x", "text", validation="integer", low="0", high="1", label=f"{label}\x1b[2J\u202e")
    (column,) = parse_dictionary(redcap(one).text).columns
    assert column.meaning.isprintable()
    cell = "".join(one for one in name if one not in "\t\n\r")
    row = f"1\t{cell}x\tMeasurement\tLOINC\t\tS\t2160-0\t\t\t\n"
    (other,) = parse_dictionary(omop(row).text).columns
    assert other.name.isprintable()


def test_an_invalid_import_is_refused() -> None:
    with refused(Code.BAD_STUDY, "has no column 'concept_name'", "the right file"):
        from_omop(io.StringIO("a,b\n1,2\n"), "d", KNOWN)
    for empty in ("", CONCEPT):
        with refused(Code.BAD_STUDY):
            from_omop(io.StringIO(empty), "d", KNOWN)
    with refused(Code.BAD_STUDY, "two rows define the column"):
        omop(CHOLESTEROL, CHOLESTEROL)
    with refused(Code.BAD_STUDY, "cannot be read"):
        redcap(field("x" * 200_000, "text", validation="integer"))
    many = [f"1\tm{i}\tMeasurement\tLOINC\t\tS\t2160-0\t\t\t\n" for i in range(2001)]
    with refused(Code.BAD_STUDY, "more than 2000 columns"):
        omop(*many)
