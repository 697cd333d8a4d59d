"""Explanation and guarantee of a plan, for those who must consent to it. Guarantee of a study for one person
as inference odds, for those who must consent to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.budget import attack_success, attack_success_gaussian, attack_success_zcdp
from eigenveil.accounting.formatting import fixed_up, shown_up
from eigenveil.accounting.zcdp import ATTO, MICRO, Neighbours
from eigenveil.algorithms.shared.column_scales import SPREADS
from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import canonical
from eigenveil.planning.choose import answer_bytes, noise_warnings, possible_rehearsals
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import NAMES, batch_of
from eigenveil.reporting.trust import EXACT, MASKED, colluding, trust_text
from eigenveil.study.algorithm import Algorithm, CustomAlgorithm
from eigenveil.study.composition import Composition, remaining_delta
from eigenveil.study.radius import PublicNorm
from eigenveil.study.scaling import NO_SPREADS, Spreads
from eigenveil.study.study import FINEST_STEPS, Missing, Scaling, Study
from eigenveil.study.toml import study_to_dict

STANDARD_SCALING_NOTE = (
    "every column is then divided by its standard deviation, which the noised answers to the first two "
    f"queries give, and clipped at {SPREADS} standard deviations on either side"
)

# Algorithms whose directions or rotations come from a continuous distribution, sampled in floating point.
FLOATING_POINT_ALGORITHMS = {
    Algorithm.EM_COV,
    Algorithm.SMOOTH_GAUSSIAN,
    Algorithm.SMOOTH_CAUCHY,
    Algorithm.PROPOSE_TEST_RELEASE,
}
FLOATING_POINT_NOTE = (
    " Directions are drawn in floating point: this holds up to rounding, about 1e-15 of probability "
    "(P14 and P20 in PRIVACY.md)."
)

GUARANTEE_TEXT_DIFFERS = "This follows from the plan; THE RELEASE STATES IT DIFFERENTLY: trust the plan"
CUSTOM_ALGORITHM_CONDITION = (
    "this holds for what it computes from releases, and not if it sees the records in any other way"
)


def explain(
    plan: Plan,
    query_sequences: Sequence[Sequence[RoundQuery]] | None = None,
    spreads: Spreads = NO_SPREADS,
) -> dict[str, Any]:
    """Return the queries, disclosures and costs of a plan as plain values, ready for JSON or a table.

    Costs are in micro-rho and atto-delta. The queries are those of a dry run on public numbers, or
    `query_sequences` if known. If the first releases choose among several sequences, `rounds` is the longest
    one and `depends` says so. `micro_rho` is the cost of the rounds with one attempt each, `spare_micro_rho`
    the pool of repeated ones; `guarantee` covers both. `message` describes what an answer reveals to an
    observer. `calls_per_site` is the number of answers that a site sends if no attempt fails. `colluders` is
    the number of sites that may collude with the coordinator; None if the coordinator sees totals itself.
    `spreads` are plausible spreads of columns, for a warning.

    Raises:
        RequestError: the budget is too small for a query, or there are too many queries.

    >>> from eigenveil import Column, Federation, Study, explain, make_plan
    >>> columns = tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "abc")
    >>> study = Study(name="pilot", columns=columns, epsilon=2.0, delta=1e-6, components=1,
    ...               federation=Federation(sites=("north", "south")))
    >>> found = explain(make_plan(study))
    >>> found["guarantee"]["text"][:10], len(found["rounds"]), found["rounds"][0]["kind"]
    ('(2, 1e-06)', 15, 'count')"""
    query_sequences = possible_rehearsals(plan) if query_sequences is None else query_sequences
    study, longest = plan.study, max(map(len, query_sequences))
    return {
        "plan_digest": plan.digest,
        "name": study.name,
        "purpose": study.purpose,
        "applicant": study.applicant.stated,
        "decide_by": study.federation.decide_by,
        "analyst": plan.analyst,
        "algorithm": plan.algorithm.value,
        "components": study.components,
        "guarantee": guarantee(plan),
        "study": study_to_dict(study),
        "rows": _rows(study),
        "clip": _clip(study),
        "deadline_seconds": study.federation.deadline_seconds,
        "rounds": [_round(round_query) for round_query in max(query_sequences, key=len)],
        "message": MASKED if plan.masked else EXACT,
        # The first masked set is fixed when all sites are ready, each later one with the release before it.
        "calls_per_site": longest + 1 if plan.masked and longest else longest,
        "bytes_per_site": max(map(answer_bytes, query_sequences)),
        "dependence": _dependence_note(query_sequences),
        "micro_rho": plan.micro_rho,
        "spare_attempts": study.spare_attempts,
        "spare_micro_rho": plan.spare_micro_rho,
        "colluders": study.colluders if study.masked else None,
        "trust": trust_text(plan),
        "warnings": [
            *study.warnings(spreads),
            *noise_warnings(study),
            *_unknown_warnings(plan),
        ],
    }


def _unknown_warnings(plan: Plan) -> list[str]:
    keys = ", ".join(plan.unknown_keys)
    return [f"unknown to this version of eigenveil, and without effect: {keys}"] if keys else []


def _dependence_note(query_sequences: Sequence[Sequence[RoundQuery]]) -> str | None:
    """Return a note on what the first releases decide; None if they decide nothing."""
    if len(query_sequences) == 1:
        return None
    alike = zip(*([NAMES[type(one.query)] for one in sequence] for sequence in query_sequences), strict=False)
    same = next((i for i, kinds in enumerate(alike) if len(set(kinds)) > 1), min(map(len, query_sequences)))
    return (
        f"the queries after the first {same} depend on what these release: at most "
        f"{max(map(len, query_sequences))} rounds and {max(map(answer_bytes, query_sequences))} bytes from "
        "each site, at the same total cost; the longest sequence of rounds is listed"
    )


def _rows(study: Study) -> str:
    """Return a sentence on which rows of a site's records count."""
    person = study.person_column
    unit = "every row is a person" if person is None else f"the rows of each {person!r} are a person"
    missing_rule = "is left out" if study.missing is Missing.DROP else "gets the public fill value instead"
    text = (
        f"{unit}; a person with a missing value {missing_rule}; values beyond the public bounds count "
        "as the bound"
    )
    if study.grid_steps < FINEST_STEPS:
        text += f"; values are rounded to {study.grid_steps} steps on either side of the middle of the bounds"
    return f"{text}; {STANDARD_SCALING_NOTE}" if study.scaling is Scaling.STANDARD else text


def _clip(study: Study) -> str:
    """Return a sentence on how records are clipped before they are added up."""
    if study.radius == 1:
        return "no record is clipped: the public bounds alone limit what one record adds"
    if isinstance(study.radius, PublicNorm):
        return _stated_norm(study, study.radius.norm)
    choice = (
        "that balances noise against clipping"
        if study.radius is None
        else f"that leaves about {study.radius:.0%} of the records unclipped"
    )
    return (
        f"every record is clipped to a radius {choice}, chosen from a noised histogram of the records' norms"
    )


def _stated_norm(study: Study, norm: float) -> str:
    stated = "stated by the analyst, not from data; variances and errors assume that no norm is larger"
    if study.centring:
        return (
            "records are clipped to a radius, chosen from a noised histogram of their norms, of at most "
            f"{norm:g} in scaled units plus the private mean's distance from the bounds' middle ({stated})"
        )
    text = f"records of norm above {norm:g} in scaled units are clipped to it"
    return f"{text}, gradients of records to what that norm allows ({stated})"


def _round(round_query: RoundQuery) -> dict[str, Any]:
    batch = batch_of(round_query.query)
    return {
        "round": round_query.round,
        "kind": NAMES[type(round_query.query)],
        "meaning": round_query.query.meaning,
        "numbers": round_query.query.length,
        "bytes": 8 * round_query.query.length,
        "micro_rho": round_query.cost.micro_rho,
        "atto_delta": str(round_query.cost.atto_delta),
        "charged_with_round": round_query.round if batch is None else batch.first_round,
    }


def guarantee(plan: Plan) -> dict[str, Any]:
    """Return a release's guarantee for the stated neighbours; under add-remove for replace-one as well. Under
    replace-one the number of records is public (the estimators write it into the plan). A data set with one
    record more is then certainly distinguishable, so there is no second statement. The guarantee covers what
    the study may spend, with the whole pool of repeated attempts, used or not [P35]. The actual spending
    follows from releases, and no bound covers that [P4]."""
    study, cost = plan.study, plan.cost
    adds = study.neighbours is Neighbours.ADD_REMOVE
    epsilon, delta = _epsilon_delta(plan, 1)
    chain = Neighbours.REPLACE_ONE.records
    other_epsilon, other_delta = _epsilon_delta(plan, chain) if adds else (None, None)
    return {
        "unit": "person",
        "neighbours": study.neighbours.value,
        "max_sites_per_person": study.max_sites_per_person,
        "composition": plan.composition.value,
        "mu": gaussian.micro_mu(cost.micro_rho) / MICRO if plan.gaussian else None,  # rounded up
        "rho": cost.micro_rho / MICRO,
        "micro_rho": cost.micro_rho,
        "atto_delta": str(cost.atto_delta),
        "epsilon": epsilon,
        "delta": delta,
        "other_neighbours": Neighbours.REPLACE_ONE.value if adds else None,
        "other_epsilon": other_epsilon,
        "other_delta": other_delta,
        "technical": _technical_text(plan),
        "text": _guarantee_text(plan, epsilon, delta),
    }


def document_guarantee(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `guarantee` that follows from a document's plan, noting if the document's text differs. The
    coordinator wrote the document's text, so only the plan is trusted. The stated guarantee is returned if
    the document is not private, or if its plan needs another version of eigenveil; then the text says so.
    Raises EigenveilError: as `plan_from_json`, but for its version."""
    stated = dict(document["guarantee"])
    if not document["private"]:
        return stated
    try:
        found = guarantee(plan_from_json(canonical(document["plan"])))
    except PeerError as problem:
        if problem.code is not Code.VERSION:
            raise
        return stated | {"text": f"{stated['text']} The release states this, unchecked: {problem}"}
    if found["text"] == stated["text"]:
        return found
    return found | {"text": f"{found['text']} {GUARANTEE_TEXT_DIFFERS}"}


def _epsilon_delta(plan: Plan, changes: int) -> tuple[float, float]:
    """Return (epsilon, delta) for a chain of `changes` neighbours. Gaussian: mu grows with the chain; the
    delta that a masked study reserves covers the shares of its noise [P32]. zCDP: rho grows with the square
    of the chain. Basic: epsilon grows with the chain, and delta by the factor 1 + e^epsilon for a chain of
    two; so do deltas of single mechanisms."""
    study, cost = plan.study, plan.cost
    mechanism_delta, micro_rho = cost.atto_delta / ATTO, changes**2 * cost.micro_rho
    match plan.composition:
        case Composition.GAUSSIAN:
            return gaussian.epsilon_at(micro_rho, remaining_delta(study, cost.atto_delta)), study.delta
        case Composition.BASIC:
            return changes * study.epsilon, mechanism_delta if changes == 1 else _twice(
                mechanism_delta, study.epsilon
            )
        case Composition.ZCDP if changes == 1 or mechanism_delta == 0:
            return zcdp.epsilon_at(micro_rho / MICRO, study.delta - mechanism_delta), study.delta
        case Composition.ZCDP:
            once = zcdp.epsilon_at(cost.micro_rho / MICRO, study.delta - mechanism_delta)
            return changes * once, _twice(study.delta, once)


def _twice(delta: float, epsilon: float) -> float:
    """Return delta over a chain of two neighbours."""
    return min(1.0, delta * (1 + math.exp(min(epsilon, 700.0))))


def _technical_text(plan: Plan) -> str:
    """Return the guarantee before its conversion to (epsilon, delta)."""
    cost = plan.cost
    mechanism_delta = cost.atto_delta / ATTO
    match plan.composition:
        case Composition.GAUSSIAN:
            but = f", but for {shown_up(mechanism_delta, 3)} of delta" if mechanism_delta else ""
            mu = fixed_up(gaussian.micro_mu(cost.micro_rho) / MICRO, 6)
            return f"{mu}-Gaussian differential privacy{but}"
        case Composition.ZCDP:
            approximate = f"{shown_up(mechanism_delta, 3)}-approximate " if mechanism_delta else ""
            return f"{approximate}{fixed_up(cost.micro_rho / MICRO, 6)}-zCDP"
        case Composition.BASIC:
            return "the sum of its queries' privacy losses"


def _guarantee_text(plan: Plan, epsilon: float, delta: float) -> str:
    study = plan.study
    change = (
        "adding or removing one person's record anywhere in the federation"
        if study.neighbours is Neighbours.ADD_REMOVE
        else "replacing one person's record by any other, the number of records being public"
    )
    sites = study.max_sites_per_person
    where = "" if sites == 1 else f" (who may be at up to {sites} sites)"
    epsilon_text, delta_text = shown_up(epsilon), shown_up(delta, 3)
    except_for = f", except with probability {delta_text}" if delta > 0 else ""
    return (
        f"({epsilon_text}, {delta_text})-differential privacy: {change}{where} changes the "
        f"probability of any set of released results by a factor of at most e^{epsilon_text}{except_for}."
        f"{_collusion_note(plan)}{_sampler_note(plan)}"
    )


def _collusion_note(plan: Plan) -> str:
    """Return a sentence on collusion with the coordinator; empty if the study is not masked."""
    if not plan.masked:
        return ""
    return (
        " It holds as well for all numbers that reach the coordinator, even if it works together with "
        f"{colluding(plan.study)} (P31 to P33 in PRIVACY.md)."
    )


def _sampler_note(plan: Plan) -> str:
    """Return a sentence on floating-point samplers or a custom algorithm; empty if neither applies."""
    if isinstance(plan.algorithm, CustomAlgorithm):
        floats = FLOATING_POINT_NOTE if plan.algorithm.properties.trusted else ""
        return f" {plan.algorithm.name} is a custom algorithm: {CUSTOM_ALGORITHM_CONDITION}.{floats}"
    return FLOATING_POINT_NOTE if plan.algorithm in FLOATING_POINT_ALGORITHMS else ""


EVEN = Fraction(1, 2)


def largest_inference_odds(plan: Plan) -> Fraction:
    """Return the largest success probability of a yes-or-no inference about one person from all releases. The
    prior odds are even. The question is membership among the records, or a property of the record.
    Neighbours: one record taken out and another put in. That is a chain of two where the study's neighbours
    differ by one record, and one step where they differ in one. A person who may be at several sites counts
    with all of them.
    Privacy: the most that the plan may spend, with the pool of repeated attempts, by the composition of its
    cost [P4, P5, P35]."""
    rho, mechanism_delta = Fraction(plan.cost.micro_rho, MICRO), Fraction(plan.cost.atto_delta, ATTO)
    steps = 2 if plan.study.neighbours is Neighbours.ADD_REMOVE else 1
    match plan.composition:
        case Composition.GAUSSIAN:
            return budget_inference_odds(rho, mechanism_delta, gaussian=True, steps=steps)
        case Composition.ZCDP:
            odds = budget_inference_odds(rho, mechanism_delta, gaussian=False, steps=steps)
            return min(_guarantee_odds(plan), odds)
        case Composition.BASIC:
            return _guarantee_odds(plan)


def _guarantee_odds(plan: Plan) -> Fraction:
    """Return the odds that the stated (epsilon, delta) of that chain allow."""
    statement = guarantee(plan)
    other = "other_" if plan.study.neighbours is Neighbours.ADD_REMOVE else ""
    epsilon, delta = statement[f"{other}epsilon"], statement[f"{other}delta"]
    return Fraction(1) if delta >= 1 else attack_success(epsilon, delta)


def budget_inference_odds(
    rho: Fraction, mechanism_delta: Fraction, *, gaussian: bool, steps: int = 2
) -> Fraction:
    """Return the largest inference odds from all releases that a budget allows, over a chain of `steps`.
    Without Gaussian noise only, they follow by the triangle inequality of total variation."""
    if gaussian:  # masked studies reserve a little delta besides their mu, for the whole chain [P32]
        return min(Fraction(1), attack_success_gaussian(2 * rho * steps**2) + mechanism_delta)
    once = attack_success_zcdp(rho, mechanism_delta)
    return min(Fraction(1), EVEN + steps * (once - EVEN))
