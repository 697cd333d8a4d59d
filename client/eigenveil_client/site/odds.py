"""What a study lets somebody guess about one patient, with all on which that number rests.

The one home of these sentences: the card, the sheet to sign, the page with *Agree* and the command line show
them all, so none can promise more than another. Their derivation is `eigenveil.reporting.one_person`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.protocol.plan import Plan
from eigenveil.reporting.one_person import most_guessed
from eigenveil_common.web.messages import mark

WHETHER_IN = mark(
    "Imagine somebody who wants the answer to one yes-or-no question about one certain patient: is this "
    "patient among the records? Is a certain value of this patient high?"
)
WHAT_IT_SAYS = mark(
    "Imagine somebody who wants the answer to one yes-or-no question about what the record of one certain "
    "patient says: is a certain value of this patient high?"
)
KNOWS = mark(
    "Somebody who already knows everything about all other patients, thinks yes and no equally likely, sees "
    "every result of the study, and may use any computer."
)
WITHOUT = mark("of 100 such yes-or-no guesses are right without the study, as with a tossed coin.")
WITH = mark("of 100 such guesses, at most, are right with all results of the study.")
ADDS = mark(
    "That is the most that this patient's record being among the others can add. What the results teach "
    "about patients in general also says something about this one, and would without this record."
)
PUBLIC_NUMBER = mark(
    "In this study the number of patients is public, so this limit does not cover whether a patient is among "
    "them."
)
SITES = mark(
    "This number is for a patient with records at no more than %(sites)s of the sites that are asked."
)
ROWS = mark(
    "Every row counts as another patient. If a patient has several rows, the protection covers each row for "
    "itself, not all of them together."
)
MASKED = mark(
    "This limit holds for the operator of the coordinator, too, together with at most %(number)s of the "
    "other sites. If more of them help, there is less noise than is promised, and the limit does not hold."
)
CENTRAL = mark(
    "This limit is no protection from the operator of the coordinator, who gets this site's exact figures."
)
EVEN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A message of the catalogue, the values of its places, and the number that stands before it."""

    text: str
    values: Mapping[str, object] = field(default_factory=dict)
    number: int | None = None

    @property
    def english(self) -> str:
        before = "" if self.number is None else f"{self.number} "
        return before + (self.text % self.values if self.values else self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """Of 100 yes-or-no guesses about one person at most `right` are right, by somebody who knows all other
    records and holds both answers for equally likely.

    `membership`: questions about who is among the records are covered. `sites`: at how many the person may
    be. `persons`: a person's rows count as one. `colluders`: how many other sites may help the coordinator;
    None where the coordinator itself is not covered.
    """

    right: int
    membership: bool
    sites: int
    persons: bool
    colluders: int | None

    @property
    def guesser(self) -> tuple[Sentence, ...]:
        """Who guesses what."""
        return Sentence(text=WHETHER_IN if self.membership else WHAT_IT_SAYS), Sentence(text=KNOWS)

    @property
    def guesses(self) -> tuple[Sentence, ...]:
        """How often that is right, without the study and with it."""
        return Sentence(text=WITHOUT, number=EVEN), Sentence(text=WITH, number=self.right)

    @property
    def limits(self) -> tuple[Sentence, ...]:
        """What the number leaves out, and what it rests on."""
        operator = (
            Sentence(text=CENTRAL)
            if self.colluders is None
            else Sentence(text=MASKED, values={"number": self.colluders})
        )
        return (
            Sentence(text=ADDS),
            *(() if self.membership else (Sentence(text=PUBLIC_NUMBER),)),
            Sentence(text=SITES, values={"sites": self.sites}),
            *(() if self.persons else (Sentence(text=ROWS),)),
            operator,
        )

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """All of it, in order."""
        return *self.guesser, *self.guesses, *self.limits

    def to_dict(self) -> dict[str, Any]:
        """Plain values, and the sentences in English."""
        return {
            "right_of_100": self.right,
            "before_of_100": EVEN,
            "knows_all_others": True,
            "membership": self.membership,
            "max_sites_per_person": self.sites,
            "rows_are_grouped": self.persons,
            "colluders": self.colluders,
            "words": " ".join(one.english for one in self.sentences),
        }


def odds_of(plan: Plan) -> Odds:
    """What a plan lets somebody guess who sees all its results."""
    study = plan.study
    return Odds(
        right=of_hundred(most_guessed(plan)),
        membership=study.neighbours is Neighbours.ADD_REMOVE,
        sites=study.max_sites_per_person,
        persons=study.person_column is not None,
        colluders=study.colluders if study.masked else None,
    )


def of_hundred(probability: Fraction) -> int:
    """Never less than it is."""
    return math.ceil(100 * probability)
