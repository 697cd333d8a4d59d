"""Names of columns: their units, and how alike they are spelled."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

SIMILAR = 0.8  # of difflib: one letter of five differs
NUMBERING = ("identifier", "number", "nummer", "code", "uuid", "num", "key", "id", "nr", "no")


def name_and_unit(header: str) -> tuple[str, str | None]:
    """Split a header: `glucose [mmol/L]` is the column glucose in mmol/L; the unit may be absent."""
    name, bracket, unit = header.strip().rpartition("[")
    if not bracket or not unit.endswith("]") or not name.strip():
        return header.strip(), None
    return name.strip(), unit[:-1].strip()


def folded(name: str) -> str:
    """Return a name without case, blanks and the marks between words, in which spellings differ."""
    return re.sub(r"[\s_.\-]+", "", name).casefold()


def similar_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is spelled most like `name`; None if none is similar."""
    spelled = {folded(one): one for one in known}
    found = difflib.get_close_matches(folded(name), spelled, n=1, cutoff=SIMILAR)
    return spelled[found[0]] if found else None


def is_record_number(name: str, persons: Iterable[str]) -> bool:
    """Return True if a column is named as the person column is, but for the words that name numbers: as
    `Patient_ID` and `PatientNr` beside `patient`. By names alone: the records are not asked."""
    return _stem(name) in {_stem(one) for one in persons if one}


def _stem(name: str) -> str:
    word = folded(name_and_unit(name)[0])
    ending = next((one for one in NUMBERING if word.endswith(one) and word != one), "")
    return word.removesuffix(ending)
