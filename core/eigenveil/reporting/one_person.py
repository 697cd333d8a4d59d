"""What a study's guarantee means to one person, as odds: for those who must consent to it."""

from __future__ import annotations

from fractions import Fraction

from eigenveil.accounting.guess import most_right, most_right_gaussian, most_right_zcdp
from eigenveil.accounting.zcdp import ATTO, MICRO
from eigenveil.protocol.plan import Plan
from eigenveil.study.price import Composition


def most_guessed(plan: Plan) -> float:
    """How often, at most, somebody who sees all that a study releases is right about whether one person's
    record is in it, with even odds before.

    Neighbours: the study's own; a person who may be at several sites counts with all of them.
    Privacy: what the whole plan may spend, by the composition in which it was priced [P4, P5].
    """
    rho, own = Fraction(plan.micro_rho, MICRO), Fraction(plan.atto_delta, ATTO)
    match plan.composition:
        case Composition.GAUSSIAN:
            return most_right_gaussian(2 * rho)
        case Composition.ZCDP:
            return most_right_zcdp(rho, own)
        case Composition.BASIC:
            return most_right(plan.study.epsilon, float(own))
