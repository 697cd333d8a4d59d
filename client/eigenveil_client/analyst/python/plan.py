"""Predicted error and cost of a study, and the remaining budget of a federation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from eigenveil.accounting.budget import Conversion, studies_left
from eigenveil.accounting.formatting import shown
from eigenveil.accounting.zcdp import MICRO, Cost
from eigenveil.dictionary.directory import Directory
from eigenveil.dictionary.readiness import (
    SiteReadiness,
    left_out,
    left_out_warnings,
    readiness,
    refusal,
    warnings,
)
from eigenveil.errors import Code, PeerError
from eigenveil.planning.choose import make_plan, possible_rehearsals
from eigenveil.planning.predict import Prediction, predict
from eigenveil.reporting.explain import explain
from eigenveil.reporting.presentation import printable_text, summary_html, summary_text
from eigenveil.reporting.result import EVERY_COMPONENT
from eigenveil.reporting.trust import colluding
from eigenveil.study.scaling import NO_SPREADS, SCALING_TEXTS, Scaling, Spreads
from eigenveil.study.study import Study
from eigenveil_proto.v1 import eigenveil_pb2 as pb


class Summary:
    """Base of values that Python and a notebook show as labelled rows below `title`, with a `note`. `dir`
    lists the public names alone, without those in `_inner`."""

    __slots__ = ()
    _inner: ClassVar[tuple[str, ...]] = ()

    @property
    def title(self) -> str:
        raise NotImplementedError

    @property
    def note(self) -> str:
        return ""

    @property
    def picture(self) -> str:
        """HTML between the rows and the note, in a notebook."""
        return ""

    def rows(self) -> list[tuple[str, str]]:
        """Return the labels and texts that are displayed."""
        raise NotImplementedError

    def __dir__(self) -> list[str]:
        inner = {"title", "note", "picture", "rows", *self._inner}
        return [name for name in object.__dir__(self) if not name.startswith("_") and name not in inner]

    def __repr__(self) -> str:
        return summary_text(self.title, self.rows(), note=self.note)

    def _repr_html_(self) -> str:
        title = self.title[:1].upper() + self.title[1:]
        return summary_html(title, self.rows(), note=self.note, picture=self.picture)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StudyPlan(Summary):
    """Plan of a `study`, computed from public numbers without a call.

    `prediction`: its error and size. `explanation`: its queries, what they reveal, and its cost, as plain
    values (see `eigenveil.explain`). `sites`: which sites are ready for it, by what they state; empty without
    a federation. `left_out`: the sites that it does not ask and that do not offer one of its columns."""

    study: Study
    prediction: Prediction
    explanation: Mapping[str, Any]
    sites: tuple[SiteReadiness, ...] = ()
    left_out: tuple[SiteReadiness, ...] = ()

    _inner = ("left_out",)

    @property
    def cost(self) -> Cost:
        """The cost to a budget."""
        return cost_of(self.explanation)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.explanation["warnings"])

    @property
    def title(self) -> str:
        return f"plan of {self.study.name}"

    @property
    def note(self) -> str:
        return "\n".join(self.warnings)

    def rows(self) -> list[tuple[str, str]]:
        study, found = self.study, self.prediction
        masked = f"no party, not even the coordinator with {colluding(study)},"
        seen = masked if study.masked else "the coordinator"
        components = "1 component" if study.components == 1 else f"{study.components} components"
        named = ", ".join(study.federation.sites)
        return [
            ("query", f"{components} of {study.dimension} columns at {named}"),
            ("epsilon", promise_text(study)),
            ("algorithm", found.algorithm.value),
            ("scaling", scaling_text(study)),
            ("predicted error", EVERY_COMPONENT if study.components == study.dimension else _error(found)),
            ("assumed", f"{study.expected_records:,} records at all sites together (expected_records)"),
            ("trust", f"{study.trust.value}: {seen} sees a site's totals"),
            ("size", f"at most {found.rounds} rounds, {found.bytes_per_site:,} bytes from each site"),
            ("time", f"about {found.seconds or 0:.1f} s once all sites have agreed"),
            *(("not ready", one.summary) for one in self.sites if not one.ready),
            *(("left out", f"{one.site}: {one.columns_text}") for one in self.left_out),
        ]


def cost_of(explanation: Mapping[str, Any]) -> Cost:
    """Return the cost of an explained study to a budget."""
    guarantee = explanation["guarantee"]
    return Cost(micro_rho=guarantee["micro_rho"], atto_delta=int(guarantee["atto_delta"]))


def promise_text(study: Study) -> str:
    """Return epsilon, the neighbouring relation and delta, as text."""
    epsilon, delta = shown(study.epsilon), shown(study.delta)
    return f"{epsilon} ({study.neighbours.value}), except with probability {delta}"


def scaling_text(study: Study) -> str:
    """Return the units in which a study compares its columns, as text."""
    scaling = Scaling(study.scaling)
    return f"{scaling.value}: {SCALING_TEXTS[scaling].column}"


def _error(found: Prediction) -> str:
    error = found.error
    if error is None:
        return "not known for this algorithm"
    runs = f"8 in 10 runs: {error.low:.2g} to {error.high:.2g}"
    return f"{error.median:.2g} ({runs}) on a scale from 0, exact, to 1, noise"


def plan_of(
    study: Study, spreads: Spreads = NO_SPREADS, directory: Directory | None = None, analyst: str = ""
) -> StudyPlan:
    """Return the plan of a study, from public numbers, and the readiness of its sites by their statements in
    `directory` for `analyst`; `spreads`: as `explain`. Raises RequestError: its algorithm cannot run it, or
    its epsilon is too small."""
    plan = make_plan(study, analyst=analyst)
    courses = possible_rehearsals(plan)
    queries = [one for course in courses for one in course]
    sites = () if directory is None else readiness(plan, directory, queries)
    explanation = explain(plan, courses, spreads)
    refused = refusal(plan, sites)
    explanation["warnings"] += [refused] if refused else warnings(sites)
    others = () if directory is None else left_out(plan, directory)
    explanation["warnings"] += [] if directory is None else left_out_warnings(plan, directory)
    return StudyPlan(
        study=study, explanation=explanation, prediction=predict(study), sites=sites, left_out=others
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The coordinator's explanation of a study: its queries, what they reveal, and its cost.

    `value`: plain values (see `eigenveil.explain`). `text`: the same in sentences. `left`: the number of such
    studies that the remaining budget allows (None: the cost is 0)."""

    value: dict[str, Any]
    text: str
    left: int | None

    def __repr__(self) -> str:
        return printable_text(f"{self.text}\n{self._left()}")

    def _repr_html_(self) -> str:
        meanings = Counter(entry["meaning"] for entry in self.value["rounds"])
        queries = [("once" if n == 1 else f"{n} times", meaning) for meaning, n in meanings.items()]
        note = "\n".join([self.value["guarantee"]["text"], *self.value["warnings"], self._left()])
        return summary_html(f"Queries of {self.value['name']} to each site", queries, note=note)

    def _left(self) -> str:
        many = "any number of" if self.left is None else str(self.left)
        return f"The federation's remaining budget allows {many} studies like this one."


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FederationBudget(Summary):
    """Budget of a federation.

    `total`: the budget of all studies together. `left`: the part that is neither spent nor reserved. `delta`:
    the delta at which both are converted to an epsilon. `gaussian`: both are composed in mu. `like`: the name
    and the cost of the latest study, if there is one."""

    total: Cost
    left: Cost
    delta: float
    gaussian: bool
    like: tuple[str, Cost] | None = None

    @property
    def epsilon(self) -> float:
        """The total, as an epsilon."""
        return self._conversion.epsilon(self.total.micro_rho)

    @property
    def epsilon_left(self) -> float:
        """The remaining budget, as an epsilon of one study."""
        return self._conversion.epsilon(self.left.micro_rho)

    @property
    def _conversion(self) -> Conversion:
        return Conversion(delta=self.delta, exact=self.gaussian)

    def studies_left(self, cost: Cost) -> int | None:
        """Return the number of further studies of this cost that fit; None if the cost is 0."""
        return studies_left(self.left, cost)

    @property
    def title(self) -> str:
        return "budget of the federation"

    def rows(self) -> list[tuple[str, str]]:
        left, whole, shown_as = self.left.micro_rho, self.total.micro_rho, self._conversion
        failure = shown_as.failure_probability(self.total)
        stated = [
            ("left", shown_as.left(left, whole)),
            ("of", f"{shown_as.spent(whole)}, except with probability {failure}"),
        ]
        if self.like is None:
            return stated
        name, cost = self.like
        return [*stated, (f"studies like {name} left", str(self.studies_left(cost)))]


def budget_from(listed: pb.ListStudiesResponse) -> FederationBudget:
    """Return the budget in a coordinator's list of studies. Raises PeerError: code `protocol`, the budget is
    missing or invalid."""
    stated = listed.budget
    left = max(0, stated.micro_rho - stated.committed_micro_rho)  # a budget may have been lowered
    delta_left = max(0, stated.atto_delta - stated.committed_atto_delta)
    if not (listed.HasField("budget") and 0 < stated.delta < 1 and stated.micro_rho < MICRO**2):
        raise PeerError(Code.PROTOCOL, "the coordinator sent no valid budget. Check its version")
    costs = [(row.name, Cost(micro_rho=row.micro_rho, atto_delta=row.atto_delta)) for row in listed.studies]
    return FederationBudget(
        total=Cost(micro_rho=stated.micro_rho, atto_delta=stated.atto_delta),
        left=Cost(micro_rho=left, atto_delta=delta_left),
        delta=stated.delta,
        gaussian=stated.gaussian,
        like=costs[-1] if costs else None,
    )
