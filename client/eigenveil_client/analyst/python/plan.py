"""What a study would give and cost, before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eigenveil.accounting.digits import shown
from eigenveil.accounting.zcdp import Cost
from eigenveil.planning.predict import Prediction, predict
from eigenveil.planning.resolve import make_plan
from eigenveil.reporting.explain import explain
from eigenveil.reporting.notebook import card, lines, printable
from eigenveil.reporting.result import EVERY
from eigenveil.reporting.trust import colluding
from eigenveil.study.study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """What public numbers say of a `study`, without asking anybody: a `prediction` of its error and size, and
    an `explanation` (plain values, see `eigenveil.explain`) of what it asks, reveals and costs."""

    study: Study
    prediction: Prediction
    explanation: Mapping[str, Any]

    @property
    def price(self) -> Cost:
        """What it takes of a budget."""
        return price_of(self.explanation)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.explanation["warnings"])

    def rows(self) -> list[tuple[str, str]]:
        """What is shown of it."""
        study, found = self.study, self.prediction
        named = ", ".join(study.federation.sites)
        seen = f"nobody, nor the coordinator with {colluding(study)}," if study.masked else "the coordinator"
        return [
            ("asked", f"{_components(study)} of {study.dimension} columns at {named}"),
            ("epsilon", _promise(study)),
            ("algorithm", found.algorithm.value),
            ("predicted error", EVERY if study.components == study.dimension else _error(found)),
            ("assumed", f"{study.expected_records:,} records at all sites together (expected_records)"),
            ("trust", f"{study.trust.value}: {seen} sees a site's totals"),
            ("size", f"{found.rounds} rounds, {found.bytes_per_site:,} bytes from each site"),
            ("time", f"about {found.seconds or 0:.1f} s once all sites have agreed"),
        ]

    def __repr__(self) -> str:
        return lines(f"plan of {self.study.name}", self.rows(), note=" ".join(self.warnings))

    def _repr_html_(self) -> str:
        return card(f"Plan of {self.study.name}", self.rows(), note=" ".join(self.warnings))


def price_of(explanation: Mapping[str, Any]) -> Cost:
    """What an explained study takes of a budget."""
    told = explanation["guarantee"]
    return Cost(micro_rho=told["micro_rho"], atto_delta=int(told["atto_delta"]))


def _promise(study: Study) -> str:
    """For which neighbours, too."""
    named = study.neighbours.value
    return f"{shown(study.epsilon)} ({named}), except with probability {shown(study.delta)}"


def _components(study: Study) -> str:
    return "1 component" if study.components == 1 else f"{study.components} components"


def _error(found: Prediction) -> str:
    error = found.error
    if error is None:
        return "not known for this algorithm"
    return (
        f"{error.median:.2g} (8 in 10 runs: {error.low:.2g} to {error.high:.2g}) on a scale from 0, exact, "
        "to 1, noise"
    )


def plan_of(study: Study) -> StudyPlan:
    """What public numbers say of a study.

    Raises:
        RequestError: its algorithm cannot run it, or its epsilon is too small.
    """
    plan = make_plan(study)
    return StudyPlan(study=study, prediction=predict(study), explanation=explain(plan))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the coordinator says that a study would ask, reveal and cost: `value` (see `eigenveil.explain`),
    `text` (the same in sentences), and how many like it fit into what is `left` of the federation's budget
    (None: it costs nothing)."""

    value: dict[str, Any]
    text: str
    left: int | None

    def __repr__(self) -> str:
        return printable(f"{self.text}\n{self._left()}")

    def _repr_html_(self) -> str:
        questions: dict[str, int] = {}
        for entry in self.value["rounds"]:
            questions[entry["meaning"]] = questions.get(entry["meaning"], 0) + 1
        asked = [("once" if n == 1 else f"{n} times", meaning) for meaning, n in questions.items()]
        note = " ".join([self.value["guarantee"]["words"], *self.value["warnings"], self._left()])
        return card(f"What {self.value['name']} asks of each site", asked, note=note)

    def _left(self) -> str:
        many = "any number of" if self.left is None else str(self.left)
        return f"Studies like this one that the federation's budget still allows: {many}."
