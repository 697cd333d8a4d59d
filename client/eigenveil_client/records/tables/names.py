"""Names of columns: their units, and those that number records."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from eigenveil.dictionary.dictionary import folded

NUMBERING = ("identifier", "number", "nummer", "code", "uuid", "num", "key", "id", "nr", "no")


def name_and_unit(header: str) -> tuple[str, str | None]:
    """Split a header: `glucose [mmol/L]` is the column glucose in mmol/L; the unit may be absent.
    This is the grammar of studies; `units.split_unit` finds other spellings."""
    name, bracket, unit = header.strip().rpartition("[")
    if not bracket or not unit.endswith("]") or not name.strip():
        return header.strip(), None
    return name.strip(), unit[:-1].strip()


def is_record_number(name: str, persons: Iterable[str]) -> bool:
    """Return True if a column is named as the person column is, but for the words that name numbers: as
    `Patient_ID` and `PatientNr` beside `patient`. By names alone: the records are not asked."""
    return _stem(name) in {_stem(one) for one in persons if one}


@lru_cache(maxsize=2**14)  # a site decides every second about a study that it answers
def _stem(name: str) -> str:
    word = folded(name_and_unit(name)[0])
    ending = next((one for one in NUMBERING if word.endswith(one) and word != one), "")
    return word.removesuffix(ending)
