"""Column that names the person of a row, from its name and its content, in English and German."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from eigenveil_client.records.discovery.columns import SeenColumn

# Names of an identifier of a person, without blanks and marks, in small letters; the surest first.
OF_PERSONS = (
    *("patientid", "patid", "patnr", "patientnr", "patientennr", "patientennummer", "patientennr", "patno"),
    *("patientno", "patientnumber", "patientnum", "patientenid", "personid", "persnr", "personnr", "mrn"),
    *("personennummer", "personenid", "subjectid", "subjid", "usubjid", "probandenid", "probandennr"),
    *("probandid", "probandnr", "participantid", "teilnehmerid", "teilnehmernr", "recordid", "studyid"),
    *("studienid", "studiennr", "pseudonym", "pseudoid", "pid", "patpseudonym", "empi", "iid", "subject"),
    *("patient", "person", "proband", "participant", "pat", "seqn", "eid", "patientidentifier"),
    *("medicalrecordnumber", "hospitalnumber", "nhsnumber", "identifier", "kennung", "id"),
)
# Identifiers of a stay: one person may have several.
OF_STAYS = (
    *("fallnummer", "fallnr", "fallid", "caseid", "casenumber", "encounterid", "visitid", "aufnahmenr"),
    *("stayid", "hadmid", "admissionid", "visitoccurrenceid", "behandlungsfall"),
)
# Words before the name: of a form, or of a table.
PREFIX = re.compile(r"^(?:demographics?|demo|baseline|patients?|enrol?ment|stammdaten|basis|form)_")
LETTERS = re.compile(r"[^0-9a-zäöüß]+")
MOST_ROWS = 200.0  # of one person, on average
FILLED = 0.95  # least share of rows that name a person


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPerson:
    """Column that names the person; `rows_each`: the rows of a person, on average. `evidence`: one sentence.
    `doubt` is why a person should confirm it, empty if nothing speaks against it."""

    header: str
    rows_each: float
    evidence: str
    doubt: str = ""

    @property
    def several(self) -> bool:
        """True if some persons have several rows."""
        return self.rows_each > 1.0


def find_person(columns: Sequence[SeenColumn]) -> FoundPerson | None:
    """Return the column that names the person; None if there is none by its name."""
    for names, doubt in (
        (OF_PERSONS, ""),
        (OF_STAYS, "it names a stay, and a person with several stays would count as several persons"),
    ):
        found = [
            (names.index(name), column)
            for column in columns
            if (name := _plain(column.header)) in names and _identifies(column)
        ]
        if found:
            column = min(found, key=lambda one: one[0])[1]
            return _person(column, doubt)
    return None


def _plain(header: str) -> str:
    return LETTERS.sub("", PREFIX.sub("", header.strip().lower()))


def _identifies(column: SeenColumn) -> bool:
    """Return True if nearly all rows have an identifier: no date, and no number with decimals."""
    exact = column.whole or not column.numbers or column.words > 0
    enough = column.filled >= FILLED * column.rows and column.distinct > 1
    return enough and exact and not column.is_date and column.filled <= MOST_ROWS * column.distinct


def _person(column: SeenColumn, doubt: str) -> FoundPerson:
    each = max(1.0, column.filled / max(1, column.distinct))
    rows = "several rows of some persons" if each > 1 else "one row a person"
    return FoundPerson(
        header=column.header, rows_each=each, doubt=doubt,
        evidence=f"its name, an identifier in nearly every row, and {rows}",
    )  # fmt: skip
