"""Risk that the results of a study let an adversary infer a fact about one patient, with its assumptions: the
same sentences on every page, sheet and command."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.protocol.plan import Plan
from eigenveil.reporting.explain import largest_inference_odds
from eigenveil_common.web.pages import mark

MEMBERSHIP_QUESTION = mark(
    "Imagine somebody who wants the answer to one yes-or-no question about one certain patient: is this "
    "patient among the records? Is a certain value of this patient high?"
)
ATTRIBUTE_QUESTION = mark(
    "Imagine somebody who wants the answer to one yes-or-no question about what the record of one certain "
    "patient says: is a certain value of this patient high?"
)
ADVERSARY_KNOWLEDGE = mark(
    "Somebody who already knows everything about all other patients, thinks yes and no equally likely, sees "
    "every result of the study, and may use any computer."
)
WITHOUT = mark("of 100 such yes-or-no guesses are right without the study, as with a tossed coin.")
RATE_WITH_RESULTS = mark("of 100 such guesses, at most, are right with all results of the study.")
INDIVIDUAL_EFFECT = mark(
    "That is the most that this patient's record being among the others can add. What the results teach "
    "about patients in general also says something about this one, and would without this record."
)
PUBLIC_NUMBER = mark(
    "In this study the number of patients is public, so this limit does not cover whether a patient is among "
    "them."
)
SITES_CAVEAT = mark(
    "This number is for a patient with records at no more than %(sites)s of the sites that are asked."
)
ROWS_CAVEAT = mark(
    "Every row counts as another patient. If a patient has several rows, the protection covers each row for "
    "itself, not all of them together."
)
MASKED_CAVEAT = mark(
    "This limit holds for the operator of the coordinator, too, together with at most %(number)s of the "
    "other sites. If more of them help, there is less noise than is promised, and the limit does not hold."
)
CENTRAL_CAVEAT = mark(
    "This limit is no protection from the operator of the coordinator, who gets this site's exact figures."
)
BASELINE_RATE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A message of the catalogue, the values of its placeholders, and the number before it."""

    text: str
    values: Mapping[str, object] = field(default_factory=dict)
    number: int | None = None

    @property
    def english(self) -> str:
        before = "" if self.number is None else f"{self.number} "
        return before + (self.text % self.values if self.values else self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRisk:
    """Of 100 yes-or-no guesses about one person at most `right` are right.

    `membership`: questions about who is among the records are covered. `sites`: number of sites with records
    of the person at most. `persons`: a person's rows count as one. `colluders`: number of other sites that
    may help the coordinator; None if the coordinator is not covered."""

    right: int
    membership: bool
    sites: int
    persons: bool
    colluders: int | None

    @property
    def adversary(self) -> tuple[Sentence, ...]:
        """Sentences about the adversary and the question."""
        question = MEMBERSHIP_QUESTION if self.membership else ATTRIBUTE_QUESTION
        return Sentence(text=question), Sentence(text=ADVERSARY_KNOWLEDGE)

    @property
    def success_rates(self) -> tuple[Sentence, ...]:
        """Sentences about the share of right guesses, without the study and with it."""
        without = Sentence(text=WITHOUT, number=BASELINE_RATE)
        return without, Sentence(text=RATE_WITH_RESULTS, number=self.right)

    @property
    def limits(self) -> tuple[Sentence, ...]:
        """Sentences about the limits and assumptions of the number."""
        operator = (
            Sentence(text=CENTRAL_CAVEAT)
            if self.colluders is None
            else Sentence(text=MASKED_CAVEAT, values={"number": self.colluders})
        )
        return (
            Sentence(text=INDIVIDUAL_EFFECT),
            *(() if self.membership else (Sentence(text=PUBLIC_NUMBER),)),
            Sentence(text=SITES_CAVEAT, values={"sites": self.sites}),
            *(() if self.persons else (Sentence(text=ROWS_CAVEAT),)),
            operator,
        )

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        return *self.adversary, *self.success_rates, *self.limits

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, and the sentences in English."""
        return {
            "right_of_100": self.right,
            "before_of_100": BASELINE_RATE,
            "knows_all_others": True,
            "membership": self.membership,
            "max_sites_per_person": self.sites,
            "rows_are_grouped": self.persons,
            "colluders": self.colluders,
            "text": " ".join(one.english for one in self.sentences),
        }


def inference_risk_of(plan: Plan) -> InferenceRisk:
    """Return the inference risk of all results of a plan."""
    study = plan.study
    return InferenceRisk(
        right=percent_rounded_up(largest_inference_odds(plan)),
        membership=study.neighbours is Neighbours.ADD_REMOVE,
        sites=study.max_sites_per_person,
        persons=study.person_column is not None,
        colluders=study.colluders if study.masked else None,
    )


def percent_rounded_up(probability: Fraction) -> int:
    """Return the probability as a percentage, rounded up."""
    return math.ceil(100 * probability)
