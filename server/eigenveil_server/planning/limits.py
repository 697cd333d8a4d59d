"""What the operator allows one study to reserve."""

from __future__ import annotations

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.digits import shown, shown_up
from eigenveil.accounting.zcdp import ATTO, MICRO
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil.study.price import Composition
from eigenveil_server.config import Config
from eigenveil_server.storage.states import StudyState


def check_price(plan: Plan, config: Config) -> None:
    """One study must not reserve what all of them share, whatever delta it trades for epsilon.

    Raises:
        RequestError: it would.
    """
    own, most = plan.cost.atto_delta / ATTO, config.max_delta_per_study
    if own > most:
        raise RequestError(
            Code.BUDGET,
            f"this study may fail with probability {shown_up(own, 3)} of its own, and the operator allows "
            f"one study {shown(most)} (max_delta_per_study); nothing was reserved: ask for a smaller delta",
        )
    allowed, delta = config.max_epsilon_per_study, config.budget_delta
    if not _within(plan, allowed, delta):
        raise RequestError(
            Code.BUDGET,
            f"this study costs epsilon {shown_up(_epsilon(plan, delta))} ({plan.study.neighbours.value}) at "
            f"delta {shown(delta)}, and the operator allows one study {shown(allowed)} "
            "(max_epsilon_per_study); nothing was reserved: ask for a smaller epsilon",
        )


def first_state(plan: Plan, config: Config) -> StudyState:
    """Whether it runs at once, or waits for the operator's word."""
    epsilon = _epsilon(plan, config.budget_delta)
    return StudyState.AWAITING if epsilon > config.approve_above_epsilon else StudyState.RUNNING


def _within(plan: Plan, epsilon: float, delta: float) -> bool:
    """Whether a study's price is within what `epsilon` at `delta` buys, added up as its prices are."""
    match plan.composition:
        case Composition.GAUSSIAN:
            return plan.cost.micro_rho <= gaussian.micro_rho_for(epsilon, delta)
        case Composition.ZCDP:
            return plan.cost.micro_rho <= zcdp.micro_rho_for(epsilon, delta)
        case Composition.BASIC:
            return plan.study.epsilon <= epsilon


def _epsilon(plan: Plan, delta: float) -> float:
    """What a study costs at `delta`; its own epsilon where that is what adds up."""
    match plan.composition:
        case Composition.GAUSSIAN:
            return gaussian.epsilon_at(plan.cost.micro_rho, delta)
        case Composition.ZCDP:
            return zcdp.epsilon_at(plan.cost.micro_rho / MICRO, delta)
        case Composition.BASIC:
            return plan.study.epsilon
