"""What the operator allows one study to reserve."""

from __future__ import annotations

from eigenveil.accounting.zcdp import ATTO, MICRO, epsilon_at
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
    own, most = plan.atto_delta / ATTO, config.max_delta_per_study
    if own > most:
        raise RequestError(
            Code.BUDGET,
            f"this study may fail with probability {own:.3g} of its own, and the operator allows one study "
            f"{most:.3g} (max_delta_per_study); nothing was reserved: ask for a smaller delta",
        )
    epsilon, basic = _cost(plan, config)
    allowed, delta = config.max_epsilon_per_study, config.budget_delta
    if epsilon > allowed if basic else plan.micro_rho > config.largest_study:
        raise RequestError(
            Code.BUDGET,
            f"this study costs epsilon {epsilon:.4g} at delta {delta:g}, "
            f"and the operator allows one study {allowed:g} "
            "(max_epsilon_per_study); nothing was reserved: ask for a smaller epsilon",
        )


def first_state(plan: Plan, config: Config) -> StudyState:
    """Whether it runs at once, or waits for the operator's word."""
    epsilon, _ = _cost(plan, config)
    return StudyState.AWAITING if epsilon > config.approve_above_epsilon else StudyState.RUNNING


def _cost(plan: Plan, config: Config) -> tuple[float, bool]:
    """Epsilon, and whether it is pure rather than at the budget's delta."""
    if plan.composition is Composition.BASIC:
        return plan.study.epsilon, True
    return epsilon_at(plan.micro_rho / MICRO, config.budget_delta), False
