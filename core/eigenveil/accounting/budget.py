"""What all studies of one ledger may spend together, and what that means [P4].

Squares of mu and rhos add up in the same integers. Which promise their sum keeps depends on the noise: in mu,
exactly, if nothing but Gaussian noise can ever be charged; as zCDP otherwise. That has to be settled before
anything is charged and not by what happened to be asked: whoever may choose, by the results so far, between
Gaussian noise up to one limit and other noise up to another is held by neither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.digits import shown_down, shown_up
from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import ATTO, MICRO, Cost

ABOVE = 1 + 1e-12  # beyond the last digits of an exponential
LARGEST_EXPONENT = 700.0  # of a float's exponential; times one part in 10^18 it is far beyond a probability
BELOW = 1 - 2e-9  # what a conversion gives is at most a relative 1e-9 above the least epsilon


class NoiseRule(Enum):
    """What a ledger admits: studies whose noise is all Gaussian, or any."""

    GAUSSIAN = "gaussian"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`mixed` holds whatever the noise is. `gaussian`, which is larger, is there if no study of other noise
    is admitted, and holds as long as none ever was."""

    mixed: Cost
    gaussian: Cost | None = None

    def limit(self, *, gaussian: bool) -> Cost:
        """What holds for studies that are all Gaussian, or are not."""
        return self.gaussian if gaussian and self.gaussian is not None else self.mixed


def budget_for(epsilon: float, delta: float, own_delta: float, rule: NoiseRule) -> Budget:
    """The budget that gives (epsilon, delta), and `own_delta` to mechanisms with a delta of their own.

    Raises:
        RequestError: not one micro-rho is left.
    """
    own = int(own_delta * ATTO)
    exact = gaussian.micro_rho_for(epsilon, delta) if rule is NoiseRule.GAUSSIAN else None
    return Budget(
        mixed=Cost(micro_rho=zcdp.micro_rho_for(epsilon, delta), atto_delta=own),
        gaussian=None if exact is None else Cost(micro_rho=exact, atto_delta=own),
    )


def epsilons(micro_rho: int, delta: float, *, gaussian_only: bool) -> tuple[float, float | None]:
    """What an amount is at `delta`: by zCDP, and exactly if all of it is Gaussian noise."""
    by_zcdp = zcdp.epsilon_at(micro_rho / MICRO, delta)
    return by_zcdp, gaussian.epsilon_at(micro_rho, delta) if gaussian_only else None


def epsilon_of(micro_rho: int, delta: float, *, gaussian_only: bool) -> float:
    """An amount as people are told it: exactly where that is known, and never as less than it is."""
    if micro_rho <= 0:
        return 0.0
    by_zcdp, exactly = epsilons(micro_rho, delta, gaussian_only=gaussian_only)
    return by_zcdp if exactly is None else exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """How amounts of one budget are told: as epsilons at `delta`, exactly if the budget is counted in mu.

    Neighbours: a budget is about one record added to or removed from what add-remove studies release, and
    about one record replaced in what all studies release, which is a chain of two: 2 mu, or 4 rho [P4].
    """

    delta: float
    exact: bool

    def epsilon(self, micro_rho: int) -> float:
        """Of one record added or removed."""
        return epsilon_of(micro_rho, self.delta, gaussian_only=self.exact)

    def replaced(self, micro_rho: int) -> float:
        """Of one record replaced."""
        return self.epsilon(Neighbours.REPLACE_ONE.records**2 * micro_rho)

    def spent(self, micro_rho: int, digits: int = 4) -> str:
        """What is spent, set aside or promised: each epsilon is rounded up."""
        return _both(*(shown_up(one, digits) for one in self._amounts(micro_rho)))

    def left(self, micro_rho: int, whole: int, digits: int = 4) -> str:
        """What is left of `whole`: rounded down, but all that was promised where nothing was taken."""
        if micro_rho == whole:
            return self.spent(micro_rho, digits)
        return self.free(micro_rho, digits)

    def free(self, micro_rho: int, digits: int = 4) -> str:
        """What is free again, rounded down."""
        return _both(*(shown_down(one * BELOW, digits) for one in self._amounts(micro_rho)))

    def but_for(self, whole: Cost) -> str:
        """The probability with which the epsilons do not hold, rounded up, where `whole` is the total [P4].

        Mechanisms with a delta of their own add theirs; where all noise is Gaussian there are none. One with
        (epsilon_0, delta_0) has (1 + e^epsilon_0) delta_0 for a record replaced, and pays epsilon_0^2 / 2.
        """
        stated, own = Fraction(repr(self.delta)), Fraction(whole.atto_delta, ATTO)
        if self.exact or not own:
            return shown_up(stated)
        most = min(math.sqrt(2 * whole.micro_rho / MICRO), LARGEST_EXPONENT)
        chain = 1 + Fraction(math.exp(most) * ABOVE)
        added, replaced = (shown_up(min(Fraction(1), stated + one)) for one in (own, own * chain))
        return f"{added} ({Neighbours.ADD_REMOVE.value}; as {Neighbours.REPLACE_ONE.value}: {replaced})"

    def _amounts(self, micro_rho: int) -> tuple[float, float]:
        return self.epsilon(micro_rho), self.replaced(micro_rho)


def _both(added: str, replaced: str) -> str:
    return f"epsilon {added} ({Neighbours.ADD_REMOVE.value}; as {Neighbours.REPLACE_ONE.value}: {replaced})"


def studies_left(left: Cost, price: Cost) -> int | None:
    """How many more studies of one price fit into what is left; None if it costs nothing."""
    counts = [
        have // need
        for have, need in ((left.micro_rho, price.micro_rho), (left.atto_delta, price.atto_delta))
        if need
    ]
    return max(0, min(counts)) if counts else None
