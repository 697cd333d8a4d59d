"""What a study may spend, in integers, and how its prices add up."""

from __future__ import annotations

import math
from enum import Enum
from fractions import Fraction

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.digits import shown, shown_up
from eigenveil.accounting.zcdp import ATTO, MICRO, Cost
from eigenveil.numerics.encoding import EXACT
from eigenveil.study.algorithm import Algorithm, OwnAlgorithm
from eigenveil.study.checks import need
from eigenveil.study.study import Study

MAX_ROUNDS = 2**12  # of a study
# Atto-delta of an attempt under secure aggregation: more than what the sum of rounded shares is off the
# rounding of one Gaussian, up to this epsilon [P32].
ALIASING = 1
MAX_MASKED_EPSILON = 50.0


class Composition(Enum):
    """`gaussian`: all noise is; rho = mu^2 / 2 adds up, and is converted to (epsilon, delta) once, exactly.
    `zcdp`: rho adds up, whatever the noise, and is converted once. `basic`: epsilons and deltas add up."""

    GAUSSIAN = "gaussian"
    ZCDP = "zcdp"
    BASIC = "basic"


def composition(study: Study, algorithm: Algorithm | OwnAlgorithm) -> Composition:
    """How the prices of a study add up to its guarantee; at delta = 0 only epsilons can."""
    if algorithm.properties.basic or study.delta == 0:
        return Composition.BASIC
    return Composition.GAUSSIAN if algorithm.properties.gaussian else Composition.ZCDP


def affordable(study: Study, algorithm: Algorithm | OwnAlgorithm) -> Cost:
    """All that a study may spend on its rounds, each tried once: with it, and as much for each further
    attempt, (epsilon, delta) of the study holds [P4] [P5] [P33].

    Gaussian noise of mu is mu^2 / 2-zCDP and an epsilon-DP mechanism epsilon^2 / 2-zCDP, so ledgers hold all
    kinds in one currency. Under zCDP a mechanism with a delta of its own may use half of the study's.

    Raises:
        RequestError: the algorithm cannot run at this delta, or nothing is left to spend.
    """
    traits = algorithm.properties
    able = study.delta > 0 or traits.pure
    need(able, f"{algorithm.value} cannot promise delta = 0; state a delta such as 1e-6")
    own = 0
    if traits.delta:
        own = math.floor(Fraction(study.delta) * ATTO * (1 if traits.basic else Fraction(1, 2)))
    match composition(study, algorithm):
        case Composition.GAUSSIAN if study.masked:
            own = ALIASING * MAX_ROUNDS
            rho = (
                gaussian.micro_rho_for(study.epsilon, delta_without(study, own * study.attempts))
                // study.attempts
            )
            need(rho >= 1, f"epsilon = {shown(study.epsilon)} is too small for {study.attempts} attempts")
        case Composition.GAUSSIAN:
            rho = gaussian.micro_rho_for(study.epsilon, study.delta)
        case Composition.ZCDP:
            rho = zcdp.micro_rho_for(study.epsilon, study.delta - own / ATTO)
        case Composition.BASIC:
            rho = min(micro_rho_of(study.epsilon), EXACT - 1)  # what canonical JSON cannot write is not spent
            need(rho >= 1, f"epsilon = {shown(study.epsilon)} is too small to be counted; raise epsilon")
    return Cost(micro_rho=rho, atto_delta=own)


def delta_without(study: Study, own: int) -> float:
    """The study's delta without so many atto-delta, rounded down."""
    left = Fraction(study.delta) - Fraction(own, ATTO)
    need(
        left > 0,
        f"under secure aggregation delta must be above {shown_up(own / ATTO, 1)}, not {shown(study.delta)}",
    )
    near = float(left)
    return near if Fraction(near) <= left else math.nextafter(near, 0.0)


def most_epsilon(study: Study) -> float:
    """The largest that a study of its kind may state."""
    return MAX_MASKED_EPSILON if study.masked else zcdp.MAX_EPSILON


def micro_rho_of(epsilon: float) -> int:
    """The price of a pure mechanism, rounded down: what `epsilon` pays for."""
    return math.floor(Fraction(epsilon) ** 2 * MICRO / 2)
