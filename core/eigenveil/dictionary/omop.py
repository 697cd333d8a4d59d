"""From the concept list of an OMOP vocabulary (Athena's CONCEPT.csv) to the draft of a dictionary.

A concept has a name and a code, no unit and no bounds: these come from `known` where it has the same LOINC
code, and are left to be filled in elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from eigenveil.dictionary.dictionary import LOINC, Dictionary, DictionaryColumn, check_digit
from eigenveil.dictionary.drafts import TAB, Draft, Row, a_name, readable, rows, to_draft
from eigenveil.dictionary.toml import TO_FILL, column_to_dict

NEEDED = ("concept_name", "vocabulary_id", "concept_code")
MEASURED = ("", "Measurement")  # the domain, where the list states one


def from_omop(lines: Iterable[str], name: str, known: Dictionary) -> Draft:
    """The draft of a dictionary of the valid LOINC measurements in a concept list, tab-separated as it comes.

    Raises:
        RequestError: code `bad-study`, it is no such list, or names no measurement.
    """
    by_code = {column.loinc: column for column in known.columns if column.loinc is not None}
    about = "Measurements of an OMOP concept list"
    return to_draft(name, about, (_column(row, by_code) for row in rows(lines, TAB, NEEDED)))


def _column(row: Row, known: Mapping[str, DictionaryColumn]) -> dict[str, Any] | None:
    code = row["concept_code"].strip()
    valid = not row.get("invalid_reason", "").strip() and row.get("domain_id", "") in MEASURED
    if row["vocabulary_id"] != "LOINC" or not valid or not LOINC.fullmatch(code) or not check_digit(code):
        return None
    name, meaning = a_name(row["concept_name"]), readable(row["concept_name"])
    same = known.get(code)
    if same is not None:
        return column_to_dict(replace(same, name=name, meaning=meaning))
    left = dict.fromkeys(("unit", "lower", "upper", "source"), TO_FILL)
    return {"name": name, "meaning": meaning, "loinc": code, **left}
