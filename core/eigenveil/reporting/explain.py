"""A plan in words and numbers, for those who must consent to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.digits import fixed_up, shown_up
from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import ATTO, MICRO
from eigenveil.algorithms.shared.column_scales import SPREADS
from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import canonical
from eigenveil.planning.choose import doubts
from eigenveil.planning.dry_run import courses
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import NAMES, batch_of
from eigenveil.reporting.trust import colluding, message_words, trips, trust_words
from eigenveil.study.algorithm import Algorithm, OwnAlgorithm
from eigenveil.study.price import Composition, delta_without
from eigenveil.study.radius import PublicNorm
from eigenveil.study.study import FINEST_STEPS, Missing, Scaling, Study
from eigenveil.study.toml import study_to_dict

STANDARD = (
    "every column is then counted in parts of its standard deviation, which noised answers to the first two "
    f"questions give, up to {SPREADS} of them on either side"
)

# Whose directions or turns come from a continuous law, sampled in floating point.
IN_FLOATS = {
    Algorithm.EM_COV,
    Algorithm.SMOOTH_GAUSSIAN,
    Algorithm.SMOOTH_CAUCHY,
    Algorithm.PROPOSE_TEST_RELEASE,
}
FLOATS = (
    " Directions are drawn in floating point: this holds up to rounding, about 1e-15 of probability "
    "(P14 and P20 in PRIVACY.md)."
)

OTHER_WORDS = "That is by the plan; THE RELEASE SAYS IT IN OTHER WORDS: believe the plan"
OWN = "this holds for what it computes from releases, and not if it sees the records in any other way"


def explain(plan: Plan, ways: Sequence[Sequence[RoundQuery]] | None = None) -> dict[str, Any]:
    """What the plan asks, reveals and costs: plain values, ready for JSON or a table. Prices are in micro-rho
    and atto-delta; the queries are those of a dry run on public numbers: `ways`, if they are known. Where the
    first releases choose among several, `rounds` are the longest, and `depends` says so. `micro_rho` is what
    the rounds may cost, each tried once; what `attempts` of each may cost is in `guarantee`. `message` is
    what an answer is to whoever sees it, and `trips` how often a site sends one, if no attempt fails.
    `colluders` is with how many sites the coordinator may work together; None where it sees totals itself.

    Raises:
        RequestError: the budget is too small for a query, or they are too many.

    >>> from eigenveil import Column, Federation, Study, explain, make_plan
    >>> columns = tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "abc")
    >>> study = Study(name="pilot", columns=columns, epsilon=2.0, delta=1e-6, components=1,
    ...               federation=Federation(sites=("north", "south")))
    >>> said = explain(make_plan(study))
    >>> said["guarantee"]["words"][:10], len(said["rounds"]), said["rounds"][0]["kind"]
    ('(2, 1e-06)', 15, 'count')
    """
    ways = courses(plan) if ways is None else ways
    study = plan.study
    return {
        "plan_digest": plan.digest,
        "name": study.name,
        "purpose": study.purpose,
        "analyst": plan.analyst,
        "algorithm": plan.algorithm.value,
        "components": study.components,
        "guarantee": guarantee(plan),
        "study": study_to_dict(study),
        "rows": _rows(study),
        "clip": _clip(study),
        "deadline_seconds": study.federation.deadline_seconds,
        "rounds": [_round(asked) for asked in max(ways, key=len)],
        "message": message_words(plan),
        "trips": trips(plan, max(map(len, ways))),
        "bytes_per_site": max(map(_bytes, ways)),
        "depends": _depends(ways),
        "micro_rho": plan.micro_rho,
        "attempts": study.attempts,
        "colluders": study.colluders if study.masked else None,
        "trust": trust_words(plan),
        "warnings": [*study.warnings(), *doubts(study)],
    }


def _bytes(asked: Sequence[RoundQuery]) -> int:
    return sum(8 * one.query.length for one in asked)


def _depends(ways: Sequence[Sequence[RoundQuery]]) -> str | None:
    """What is not known before the first releases; None where nothing is."""
    if len(ways) == 1:
        return None
    alike = zip(*([NAMES[type(one.query)] for one in way] for way in ways), strict=False)
    same = next((i for i, kinds in enumerate(alike) if len(set(kinds)) > 1), min(map(len, ways)))
    return (
        f"which questions follow the first {same} depends on what these release: at most "
        f"{max(map(len, ways))} rounds and {max(map(_bytes, ways))} bytes from each site, at the same price "
        "in all; the rounds listed are those of the longest way"
    )


def _rows(study: Study) -> str:
    """Which rows of a site's records count, and as what."""
    person = study.person_column
    who = "every row is a person" if person is None else f"the rows of each {person!r} are a person"
    gap = "is left out" if study.missing is Missing.DROP else "gets the public fill value instead"
    said = f"{who}; a person with a missing value {gap}; values beyond the public bounds count as the bound"
    if study.grid_steps < FINEST_STEPS:
        said += f"; values are rounded to {study.grid_steps} steps on either side of the middle of the bounds"
    return f"{said}; {STANDARD}" if study.scaling is Scaling.STANDARD else said


def _clip(study: Study) -> str:
    """How a long record is shortened before it is added to anything."""
    if study.radius == 1:
        return "no record is shortened: the public bounds alone limit what one adds"
    if isinstance(study.radius, PublicNorm):
        return _stated_norm(study, study.radius.norm)
    how = (
        "that balances noise against what is cut off"
        if study.radius is None
        else f"that leaves about {study.radius:.0%} of the records whole"
    )
    return f"every record is shortened to a radius {how}, chosen from a noised histogram of their lengths"


def _stated_norm(study: Study, norm: float) -> str:
    stated = "stated by the analyst, read off no data; variances and errors rest on no record being longer"
    if study.centring:
        return (
            "records are shortened to a radius, chosen from a noised histogram of their lengths, of at most "
            f"{norm:g} in scaled units and what the private mean is off the middle of the bounds ({stated})"
        )
    what = f"records longer than {norm:g} in scaled units are shortened to it"
    return f"{what}, gradients of records to what that length allows ({stated})"


def _round(asked: RoundQuery) -> dict[str, Any]:
    batch = batch_of(asked.query)
    return {
        "round": asked.round,
        "kind": NAMES[type(asked.query)],
        "meaning": asked.query.meaning,
        "numbers": asked.query.length,
        "bytes": 8 * asked.query.length,
        "micro_rho": asked.cost.micro_rho,
        "atto_delta": str(asked.cost.atto_delta),
        "paid_with_round": asked.round if batch is None else batch.first,
    }


def guarantee(plan: Plan) -> dict[str, Any]:
    """The statement that a release makes, for the stated neighbours; under add-remove for the others as well.

    Under replace-one the number of records is public (the estimators write it into the plan), so a data set
    with one record more is told apart for certain, and there is no other reading to state.
    About what the study may spend, with every attempt [P33]: what it did spend follows from releases, and no
    bound covers that [P4].
    """
    study, cost = plan.study, plan.cost
    adds = study.neighbours is Neighbours.ADD_REMOVE
    epsilon, delta = _promise(plan, 1)
    other_epsilon, other_delta = _promise(plan, Neighbours.REPLACE_ONE.records) if adds else (None, None)
    return {
        "unit": "person",
        "neighbours": study.neighbours.value,
        "max_sites_per_person": study.max_sites_per_person,
        "composition": plan.composition.value,
        "mu": _mu(plan),
        "rho": cost.micro_rho / MICRO,
        "micro_rho": cost.micro_rho,
        "atto_delta": str(cost.atto_delta),
        "epsilon": epsilon,
        "delta": delta,
        "other_neighbours": Neighbours.REPLACE_ONE.value if adds else None,
        "other_epsilon": other_epsilon,
        "other_delta": other_delta,
        "technical": _measure(plan),
        "words": _words(plan, epsilon, delta),
    }


def promised(document: Mapping[str, Any]) -> dict[str, Any]:
    """The `guarantee` that the plan of a document gives; its words tell if the document's own are others, as
    those are whatever the coordinator wrote. A document that is not private, or whose plan only another
    version of eigenveil can read, is taken at its word, and the second is told.

    Raises:
        EigenveilError: as `plan_from_json`, but for its version.
    """
    stated = dict(document["guarantee"])
    if not document["private"]:
        return stated
    try:
        found = guarantee(plan_from_json(canonical(document["plan"])))
    except PeerError as problem:
        if problem.code is not Code.VERSION:
            raise
        return stated | {"words": f"{stated['words']} That is the release's own word, not checked: {problem}"}
    if found["words"] == stated["words"]:
        return found
    return found | {"words": f"{found['words']} {OTHER_WORDS}"}


def _promise(plan: Plan, changes: int) -> tuple[float, float]:
    """(epsilon, delta) for a chain of `changes` neighbours.

    Gaussian: mu grows with the chain; what a masked study has set aside of delta pays for the shares of its
    noise [P32]. zCDP: rho grows with its square. Basic: epsilon grows with it, and delta by the factor
    1 + e^epsilon for a chain of two; so do deltas of single mechanisms.
    """
    study, cost = plan.study, plan.cost
    own, micro_rho = cost.atto_delta / ATTO, changes**2 * cost.micro_rho
    match plan.composition:
        case Composition.GAUSSIAN:
            return gaussian.epsilon_at(micro_rho, delta_without(study, cost.atto_delta)), study.delta
        case Composition.BASIC:
            return changes * study.epsilon, own if changes == 1 else _twice(own, study.epsilon)
        case Composition.ZCDP if changes == 1 or own == 0:
            return zcdp.epsilon_at(micro_rho / MICRO, study.delta - own), study.delta
        case Composition.ZCDP:
            once = zcdp.epsilon_at(cost.micro_rho / MICRO, study.delta - own)
            return changes * once, _twice(study.delta, once)


def _twice(delta: float, epsilon: float) -> float:
    """What delta grows to over a chain of two."""
    return min(1.0, delta * (1 + math.exp(min(epsilon, 700.0))))


def _mu(plan: Plan) -> float | None:
    """mu, rounded up to 1e-6, where all noise is Gaussian."""
    return gaussian.micro_mu(plan.cost.micro_rho) / MICRO if plan.gaussian else None


def _measure(plan: Plan) -> str:
    """What holds before it is read as (epsilon, delta)."""
    cost = plan.cost
    own = cost.atto_delta / ATTO
    match plan.composition:
        case Composition.GAUSSIAN:
            but = f", but for {shown_up(own, 3)} of delta" if own else ""
            mu = fixed_up(gaussian.micro_mu(cost.micro_rho) / MICRO, 6)
            return f"{mu}-Gaussian differential privacy{but}"
        case Composition.ZCDP:
            approximate = f"{shown_up(own, 3)}-approximate " if own else ""
            return f"{approximate}{fixed_up(cost.micro_rho / MICRO, 6)}-zCDP"
        case Composition.BASIC:
            return "the privacy losses of its questions, added up as they are"


def _words(plan: Plan, epsilon: float, delta: float) -> str:
    study = plan.study
    change = (
        "adding or removing one person's record anywhere in the federation"
        if study.neighbours is Neighbours.ADD_REMOVE
        else "replacing one person's record by any other, the number of records being public"
    )
    sites = study.max_sites_per_person
    where = "" if sites == 1 else f" (who may be at up to {sites} sites)"
    epsilon_said, delta_said = shown_up(epsilon), shown_up(delta, 3)
    except_for = f", except with probability {delta_said}" if delta > 0 else ""
    return (
        f"({epsilon_said}, {delta_said})-differential privacy: {change}{where} changes the "
        f"probability of any set of released results by a factor of at most e^{epsilon_said}{except_for}."
        f"{_against(plan)}{_kept(plan)}"
    )


def _against(plan: Plan) -> str:
    """Whose eyes besides a reader's this holds for."""
    if not plan.masked:
        return ""
    return (
        " It holds as well for all numbers that reach the coordinator, even if it works together with "
        f"{colluding(plan.study)} (P31 to P33 in PRIVACY.md)."
    )


def _kept(plan: Plan) -> str:
    """What else this rests on: samplers in floats, or that nobody but its user knows the algorithm."""
    if isinstance(plan.algorithm, OwnAlgorithm):
        floats = FLOATS if plan.algorithm.properties.trusted else ""
        return f" {plan.algorithm.name} is the user's own algorithm: {OWN}.{floats}"
    return FLOATS if plan.algorithm in IN_FLOATS else ""
