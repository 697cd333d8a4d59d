"""Budget of a study in integers, and the composition of its costs."""

from __future__ import annotations

import math
from enum import Enum
from fractions import Fraction

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.formatting import shown, shown_up
from eigenveil.accounting.zcdp import ATTO, MICRO, Cost
from eigenveil.numerics.encoding import EXACT
from eigenveil.study.algorithm import Algorithm, CustomAlgorithm
from eigenveil.study.checks import need
from eigenveil.study.study import Study

MAX_ROUNDS = 2**12  # of a study
# Atto-delta of an attempt under secure aggregation: bounds the distance of the sum of rounded shares from one
# rounded Gaussian, up to this epsilon [P32].
MASKED_ATTEMPT_DELTA = 1
MAX_MASKED_EPSILON = 50.0


class Composition(Enum):
    """Rule by which the costs of a study add up. `gaussian`: all noise is Gaussian; rho = mu^2 / 2 adds up
    and is converted to (epsilon, delta) once, exactly. `zcdp`: rho adds up for any noise and is converted
    once. `basic`: epsilons and deltas add up."""

    GAUSSIAN = "gaussian"
    ZCDP = "zcdp"
    BASIC = "basic"


def composition(study: Study, algorithm: Algorithm | CustomAlgorithm) -> Composition:
    """Return the composition rule of a study; at delta = 0 epsilons add up."""
    if algorithm.properties.basic or study.delta == 0:
        return Composition.BASIC
    return Composition.GAUSSIAN if algorithm.properties.gaussian else Composition.ZCDP


def affordable(study: Study, algorithm: Algorithm | CustomAlgorithm, deltas: int | None = None) -> Cost:
    """Return the whole budget of a study: that of its rounds and that of its spare attempts. The study is
    (epsilon, delta)-DP if all its attempts together spend at most this [P4] [P5] [P35]. Gaussian noise of mu
    is mu^2 / 2-zCDP and an epsilon-DP mechanism epsilon^2 / 2-zCDP, so ledgers add up all costs in one unit.
    Under zCDP a mechanism with its own delta may use half of the study's. A masked study reserves delta for
    its rounds `deltas` times: once, and once for each spare attempt (None).
    Raises RequestError: the algorithm cannot run at this delta, or the budget is below one micro-rho."""
    traits = algorithm.properties
    runs = study.delta > 0 or traits.pure
    need(runs, f"{algorithm.value} cannot run at delta = 0; state a delta such as 1e-6")
    mechanism_delta = 0
    if traits.delta:
        mechanism_delta = math.floor(Fraction(study.delta) * ATTO * (1 if traits.basic else Fraction(1, 2)))
    match composition(study, algorithm):
        case Composition.GAUSSIAN if study.masked:
            mechanism_delta = MASKED_ATTEMPT_DELTA * MAX_ROUNDS * (deltas or 1 + study.spare_attempts)
            rho = gaussian.micro_rho_for(study.epsilon, remaining_delta(study, mechanism_delta))
        case Composition.GAUSSIAN:
            rho = gaussian.micro_rho_for(study.epsilon, study.delta)
        case Composition.ZCDP:
            rho = zcdp.micro_rho_for(study.epsilon, study.delta - mechanism_delta / ATTO)
        case Composition.BASIC:
            rho = min(micro_rho_of(study.epsilon), EXACT - 1)  # the largest integer of canonical JSON
            need(rho >= 1, f"epsilon = {shown(study.epsilon)} is below one micro-rho; raise epsilon")
    return Cost(micro_rho=rho, atto_delta=mechanism_delta)


def remaining_delta(study: Study, mechanism_delta: int) -> float:
    """Return the study's delta minus `mechanism_delta` atto-delta, rounded down."""
    remaining = Fraction(study.delta) - Fraction(mechanism_delta, ATTO)
    need(
        remaining > 0,
        f"under secure aggregation delta must be above {shown_up(mechanism_delta / ATTO, 1)}, not "
        f"{shown(study.delta)}",
    )
    rounded = float(remaining)
    return rounded if Fraction(rounded) <= remaining else math.nextafter(rounded, 0.0)


def largest_epsilon(study: Study) -> float:
    """Return the largest epsilon that a study with this trust model may state."""
    return MAX_MASKED_EPSILON if study.masked else zcdp.MAX_EPSILON


def micro_rho_of(epsilon: float) -> int:
    """Return the cost of a pure epsilon-DP mechanism in micro-rho, rounded down."""
    return math.floor(Fraction(epsilon) ** 2 * MICRO / 2)
