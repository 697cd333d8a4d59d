"""Column that names the person of a row, from its name and its content, in English and German."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eigenveil_client.records.discovery.columns import SeenColumn
from eigenveil_client.records.tables.source import Headers

# Names of a patient's number, without blanks and marks, in small letters.
OF_PERSONS = frozenset(
    {
        *("patientid", "patid", "patnr", "patientnr", "patientennr", "patientennummer", "patno", "patientno"),
        *("patientnumber", "patientnum", "patientenid", "personid", "persnr", "personnr", "personennummer"),
        *("personenid", "subjectid", "subjid", "usubjid", "probandenid", "probandennr", "probandid"),
        *("probandnr", "participantid", "teilnehmerid", "teilnehmernr", "patpseudonym", "empi", "mrn", "iid"),
        *("patient", "person", "proband", "participant", "pat", "seqn", "patientidentifier"),
        *("medicalrecordnumber", "hospitalnumber", "nhsnumber"),
    }
)
# Names of an identifier of a stay, of which one person may have several, or of anything.
UNCLEAR = frozenset(
    {
        *("fallnummer", "fallnr", "fallid", "fall", "fallkey", "caseid", "casenumber", "case"),
        *("encounterid", "encounter", "visitid", "aufnahmenr", "aufnahmeid", "stayid", "stay", "hadmid"),
        *("admissionid", "visitoccurrenceid", "behandlungsfall", "id", "identifier", "kennung", "recordid"),
        *("studyid", "studienid", "studiennr", "pid", "eid", "subject", "pseudonym", "pseudoid"),
    }
)
# Words before the name: of a form, or of a table.
PREFIX = re.compile(r"^(?:demographics?|demo|baseline|patients?|enrol?ment|stammdaten|basis|form)_")
LETTERS = re.compile(r"[^0-9a-zäöüß]+")
MOST_ROWS = 200.0  # of one person, on average
FILLED = 0.95  # least share of rows that name a person


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPerson:
    """Column that names the person, and if some persons have `several` rows. `evidence`: one sentence."""

    header: str
    several: bool
    evidence: str


def find_person(columns: Sequence[SeenColumn]) -> FoundPerson | None:
    """Return the column that names the person: the only one that is called like a patient's number and has
    one in nearly every row. None if there is none, or several: then a person must say what a row is."""
    found = [one for one in columns if _names(one.header) & OF_PERSONS and _identifies(one)]
    return _person(found[0], "its name, an identifier in nearly every row") if len(found) == 1 else None


def stated_person(columns: Sequence[SeenColumn], name: str) -> FoundPerson:
    """Return the column `name` as the one that names the person. Raises BadRecords: it is not there."""
    header = Headers(tuple(one.header for one in columns)).find(name)
    return _person(next(one for one in columns if one.header == header), "as stated")


def possible_persons(headers: Iterable[str]) -> list[str]:
    """Return the headers that are called like an identifier of a person, of a stay, or of anything."""
    return [one for one in headers if _names(one) & (OF_PERSONS | UNCLEAR)]


def _names(header: str) -> set[str]:
    """Return a header without blanks and marks, as it is and without the words before the name."""
    name = header.strip().lower()
    return {LETTERS.sub("", one) for one in (name, PREFIX.sub("", name))}


def _identifies(column: SeenColumn) -> bool:
    """Return True if nearly all rows have an identifier: no date, and no number with decimals."""
    exact = column.whole or not column.numbers or column.words > 0
    enough = column.filled >= FILLED * column.rows and column.distinct > 1
    return enough and exact and not column.is_date and column.filled <= MOST_ROWS * column.distinct


def _person(column: SeenColumn, why: str) -> FoundPerson:
    several = column.filled > column.distinct
    rows = "several rows of some persons" if several else "one row a person"
    return FoundPerson(header=column.header, several=several, evidence=f"{why}, and {rows}")
