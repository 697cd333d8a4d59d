"""What a study's guarantee means to one person, as odds: for those who must consent to it."""

from __future__ import annotations

from fractions import Fraction

from eigenveil.accounting.guess import most_right, most_right_gaussian, most_right_zcdp
from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import ATTO, MICRO
from eigenveil.protocol.plan import Plan
from eigenveil.reporting.explain import guarantee
from eigenveil.study.price import Composition

EVEN = Fraction(1, 2)


def most_guessed(plan: Plan) -> Fraction:
    """How often, at most, somebody who sees all that a study releases answers a yes-or-no question about one
    person rightly, with even odds before: whether the person is among the records, or what the record says.

    Neighbours: one record taken out and another put in, which is a chain of two where the study's neighbours
    differ by one record, and one step where they differ in one. A person who may be at several sites counts
    with all of them.
    Privacy: what the whole plan may spend, with every attempt, by the composition in which it was priced
    [P4, P5, P33].
    """
    rho, own = Fraction(plan.cost.micro_rho, MICRO), Fraction(plan.cost.atto_delta, ATTO)
    steps = 2 if plan.study.neighbours is Neighbours.ADD_REMOVE else 1
    match plan.composition:
        case Composition.GAUSSIAN:
            return min(Fraction(1), most_right_gaussian(2 * rho * steps**2) + own)
        case Composition.ZCDP:
            return min(_stated(plan), odds_of_chain(most_right_zcdp(rho, own), steps))
        case Composition.BASIC:
            return _stated(plan)


def _stated(plan: Plan) -> Fraction:
    """What the stated (epsilon, delta) of that chain allow."""
    told = guarantee(plan)
    other = "other_" if plan.study.neighbours is Neighbours.ADD_REMOVE else ""
    epsilon, delta = told[f"{other}epsilon"], told[f"{other}delta"]
    return Fraction(1) if delta >= 1 else most_right(epsilon, delta)


def ever_guessed(rho: Fraction, own: Fraction, *, gaussian: bool) -> Fraction:
    """The same of who sees all that a budget ever pays for, over a chain of two."""
    if gaussian:  # masked studies set a little of delta aside beside their mu, for all of a chain [P32]
        return min(Fraction(1), most_right_gaussian(8 * rho) + own)
    return odds_of_chain(most_right_zcdp(rho, own), 2)


def odds_of_chain(once: Fraction, steps: int) -> Fraction:
    """Over `steps` neighbours, of odds over one: total variation obeys the triangle inequality."""
    return min(Fraction(1), EVEN + steps * (once - EVEN))
