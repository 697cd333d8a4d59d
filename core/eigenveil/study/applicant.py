"""Applicant of a study: the responsible people, as its analyst states them. No program checks any of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from eigenveil.study.checks import check_readable, coerce_fields, need

LABELS = {
    "full_name": "name",
    "institution": "institution",
    "contact": "contact",
    "ethics_reference": "ethics approval",
    "legal_basis": "legal basis",
}
MOST_CHARACTERS = 400  # of each
FILLERS = "\u115f\u1160\u3164\uffa0"  # printable letters of Hangul that show as blanks
BLANKS = re.compile(f"[ \u2800{FILLERS}]{{3}}")  # no other blank is printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """The `full_name` of the responsible person, the `institution` and the `contact` of a study, the
    reference of its ethics approval, and its legal basis: texts for the people who consent. All are part of
    the signed plan.

    Raises:
        RequestError: code `bad-study`: a text is too long, or not printable.

    >>> Applicant(institution="University of Ulm", ethics_reference="2026-118").text
    'institution: University of Ulm; ethics approval: 2026-118'"""

    full_name: str = ""
    institution: str = ""
    contact: str = ""
    ethics_reference: str = ""
    legal_basis: str = ""

    def __post_init__(self) -> None:
        coerce_fields(self)
        for name, label in LABELS.items():
            check_readable(f"the {label}", getattr(self, name), MOST_CHARACTERS)

    @property
    def stated(self) -> dict[str, str]:
        """The texts that are stated, by their labels."""
        return {label: text for name, label in LABELS.items() if (text := getattr(self, name))}

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of the fields `names` that are not stated, or without a letter and a digit."""
        return tuple(name for name in names if not _has_content(getattr(self, name)))

    def check_blanks(self) -> None:
        """Check a text that is new: a run of blanks could move what follows it to a line of its own, where it
        could pass for a program's. Raises RequestError: code `bad-study`."""
        for label, text in self.stated.items():
            need(BLANKS.search(text) is None, f"the {label} must not have more than two blanks in a row")

    @property
    def text(self) -> str:
        """All that is stated, in one line; empty if nothing is."""
        return "; ".join(f"{label}: {text}" for label, text in self.stated.items())


def _has_content(text: str) -> bool:
    """Return True if a text has a letter or a digit; a filler is a letter that shows as a blank."""
    return any(one.isalnum() and one not in FILLERS for one in text)


NOT_STATED = Applicant()
