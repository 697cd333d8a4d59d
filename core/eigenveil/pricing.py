"""What a study may spend, and whether the next question still fits: checked in integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING

from eigenveil.accounting import ATTO, MICRO, NOTHING, PICO, Cost, micro_rho_for, pico_epsilon
from eigenveil.asks import Additive, Coordinates, Part, Spectrum, part_of
from eigenveil.errors import Code, RequestError
from eigenveil.ints import EXACT
from eigenveil.loudness import check_loudness
from eigenveil.query import Law, Query
from eigenveil.round import spoken
from eigenveil.study import Algorithm, Study
from eigenveil.traits import TRAITS

if TYPE_CHECKING:
    from eigenveil.plan import Plan


class Composition(Enum):
    """`zcdp`: rho adds up, and is converted to (epsilon, delta) once. `basic`: epsilons and deltas add up."""

    ZCDP = "zcdp"
    BASIC = "basic"


def composition(study: Study, algorithm: Algorithm) -> Composition:
    """How the prices of a study add up to its guarantee; at delta = 0 only epsilons can."""
    basic = TRAITS[algorithm].basic or study.delta == 0
    return Composition.BASIC if basic else Composition.ZCDP


def affordable(study: Study, algorithm: Algorithm) -> Cost:
    """All that a study may spend: with it, (epsilon, delta) of the study holds [P4] [P5].

    An epsilon-DP mechanism is epsilon^2 / 2-zCDP, so ledgers hold both kinds in one currency. Under zCDP a
    mechanism with a delta of its own may use half of the study's.

    Raises:
        RequestError: the algorithm cannot run at this delta, or nothing is left to spend.
    """
    traits = TRAITS[algorithm]
    if study.delta == 0 and not traits.pure:
        raise RequestError(
            Code.BAD_STUDY, f"{algorithm.value} cannot promise delta = 0; state a delta such as 1e-6"
        )
    own = 0
    if traits.delta:
        own = math.floor(Fraction(study.delta) * ATTO * (1 if traits.basic else Fraction(1, 2)))
    if composition(study, algorithm) is Composition.ZCDP:
        return Cost(micro_rho=micro_rho_for(study.epsilon, study.delta - own / ATTO), atto_delta=own)
    # More than canonical JSON can write is not spent.
    rho = min(math.floor(Fraction(study.epsilon) ** 2 * MICRO / 2), EXACT - 1)
    if rho < 1:
        raise RequestError(
            Code.BAD_STUDY, f"epsilon = {study.epsilon:g} leaves less than one micro-rho; raise epsilon"
        )
    return Cost(micro_rho=rho, atto_delta=own)


def micro_rho_of(epsilon: float) -> int:
    """The price of a pure mechanism, rounded down: what `epsilon` pays for."""
    return math.floor(Fraction(epsilon) ** 2 * MICRO / 2)


def check_affordable(plan: Plan, query: Query, asked: Sequence[Query], spent: Cost, pico: int) -> None:
    """Insist that `query` fits after those `asked`, which cost `spent` and, added up as epsilons, `pico`, and
    that what it pays makes its noise no louder than integers hold [P2].

    Raises:
        RequestError: `budget-exhausted`, `plan-overflow`, or `bad-study` for what the plan does not allow.
    """
    if not (spent + query.cost).fits(plan.cost):
        raise RequestError(
            Code.BUDGET, f"{spoken(query.round)} would exceed the study's {plan.micro_rho} micro-rho"
        )
    check_epsilon(plan, query, query.cost, pico)
    check_loudness(query, plan.study)
    part = part_of(query.ask)
    if part is not None:
        check_part(plan, query.price, part, query.cost if part.index == 0 else _paid(asked, part))


def check_epsilon(plan: Plan, query: Query, cost: Cost, pico: int) -> None:
    """Insist that a study of basic composition stays within its epsilon, with mechanisms that have one.

    `pico` is what was spent before, added up as epsilons in 1e-12. The session and every site check it [P4].

    Raises:
        RequestError: code `budget-exhausted`.
    """
    if plan.composition is not Composition.BASIC:
        return
    # Gaussian noise has no epsilon of its own to add up; several histograms at once are priced as zCDP.
    loud = isinstance(query.ask, Additive | Spectrum) and query.law is Law.GAUSSIAN
    pure = query.law is Law.LAPLACE or (plan.study.delta > 0 and not loud)
    if not pure or isinstance(query.ask, Coordinates):
        raise RequestError(Code.BUDGET, f"{spoken(query.round)} asks for noise that has no epsilon to add up")
    if pico + pico_epsilon(cost.micro_rho) > math.floor(Fraction(plan.study.epsilon) * PICO):
        raise RequestError(Code.BUDGET, f"{spoken(query.round)} would exceed the study's epsilon")


def _paid(asked: Sequence[Query], part: Part) -> Cost:
    """What the pass of `part` paid with its first part; nothing if that round asked anything else."""
    began = part_of(asked[part.first].ask)
    same = began is not None and (began.first, began.index, began.parts) == (part.first, 0, part.parts)
    return asked[part.first].cost if same else NOTHING


def check_part(plan: Plan, price: Cost, part: Part, paid: Cost) -> None:
    """A part is free only if the first part of its pass paid for at least as much [P9].

    Raises:
        RequestError: code `bad-study` or `budget-exhausted`.
    """
    if part.parts != plan.parts:
        raise RequestError(Code.BAD_STUDY, f"this plan deals records into {plan.parts} parts")
    if not price.fits(paid):
        raise RequestError(Code.BUDGET, f"part {part.index} costs more than its pass has paid")
