"""Privacy budget of all studies of a ledger, and the epsilons and attack success that follow from it [P4].

Squares of mu and rhos add up in the same integers. The guarantee of the sum depends on the noise: exact in mu
if only Gaussian noise can ever be charged, zCDP otherwise. The rule is fixed before the first charge. If an
analyst could choose by earlier results between Gaussian noise up to one limit and other noise up to another,
neither limit would hold.

The attacker on one patient knows all other records, considers two values of that record equally likely and
sees all releases. With distributions P and Q of the releases, the best guess is right with probability (1 +
TV(P, Q)) / 2, with TV the total variation: the hockey-stick divergence at epsilon 0. Another prior p gains
less: the risk R is concave in p and 0 at its ends, so R(p) >= 2 min(p, 1-p) R(1/2), and the gain, min(p, 1-p)
- R(p), is at most that at 1/2. Mixtures of values are no farther apart than the farthest two values in them.
Results are rounded up by ball arithmetic, which encloses the true value, never by floats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.formatting import shown_down, shown_up
from eigenveil.accounting.zcdp import ATTO, MICRO, Cost, Neighbours, check_delta, check_epsilon

if TYPE_CHECKING:
    from flint import arb

ABOVE = 1 + 1e-12  # covers the rounding error of an exponential
LARGEST_EXPONENT = 700.0  # of a float's exponential; even times 10^-18 it exceeds any probability
BELOW = 1 - 2e-9  # a conversion is at most a relative 1e-9 above the least epsilon


class NoiseRule(Enum):
    """Noise that a ledger admits: Gaussian only, or any."""

    GAUSSIAN = "gaussian"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyBudget:
    """Limits of a ledger. `mixed` is valid for any noise. `gaussian`, which is larger, exists if the ledger
    admits Gaussian noise only, and is valid as long as no other noise was ever admitted."""

    mixed: Cost
    gaussian: Cost | None = None

    def limit(self, *, gaussian: bool) -> Cost:
        """Return the limit for studies with Gaussian noise only, or with any noise."""
        return self.gaussian if gaussian and self.gaussian is not None else self.mixed


def budget_for(epsilon: float, delta: float, own_delta: float, rule: NoiseRule) -> PrivacyBudget:
    """Return the budget for (epsilon, delta), with `own_delta` for mechanisms that have their own delta.
    Raises RequestError: the budget is below one micro-rho."""
    mechanism_delta = int(own_delta * ATTO)
    exact = gaussian.micro_rho_for(epsilon, delta) if rule is NoiseRule.GAUSSIAN else None
    return PrivacyBudget(
        mixed=Cost(micro_rho=zcdp.micro_rho_for(epsilon, delta), atto_delta=mechanism_delta),
        gaussian=None if exact is None else Cost(micro_rho=exact, atto_delta=mechanism_delta),
    )


def epsilons(micro_rho: int, delta: float, *, gaussian_only: bool) -> tuple[float, float | None]:
    """Return the epsilon of an amount at `delta`: by zCDP, and the exact one if all noise is Gaussian."""
    by_zcdp = zcdp.epsilon_at(micro_rho / MICRO, delta)
    return by_zcdp, gaussian.epsilon_at(micro_rho, delta) if gaussian_only else None


def reported_epsilon(micro_rho: int, delta: float, *, gaussian_only: bool) -> float:
    """Return the epsilon of an amount for people: the exact one if known, never below the true value."""
    if micro_rho <= 0:
        return 0.0
    by_zcdp, gaussian_epsilon = epsilons(micro_rho, delta, gaussian_only=gaussian_only)
    return by_zcdp if gaussian_epsilon is None else gaussian_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Conversion of amounts of a budget to epsilons at `delta`; `exact` if the budget is counted in mu.

    Neighbours: a budget covers one record added or removed, for add-remove studies. For all studies it covers
    one record replaced, which is one removed and one added: 2 mu, or 4 rho [P4]."""

    delta: float
    exact: bool

    def epsilon(self, micro_rho: int) -> float:
        """Return the epsilon of one record added or removed."""
        return reported_epsilon(micro_rho, self.delta, gaussian_only=self.exact)

    def replaced(self, micro_rho: int) -> float:
        """Return the epsilon of one record replaced."""
        return self.epsilon(Neighbours.REPLACE_ONE.records**2 * micro_rho)

    def spent(self, micro_rho: int, digits: int = 4) -> str:
        """Return an amount spent, reserved or guaranteed as text, with epsilons rounded up."""
        return _both_relations(*(shown_up(one, digits) for one in self._amounts(micro_rho)))

    def left(self, micro_rho: int, whole: int, digits: int = 4) -> str:
        """Return the remainder of `whole` as text, rounded down; an untouched budget is shown as stated."""
        if micro_rho == whole:
            return self.spent(micro_rho, digits)
        return self.free(micro_rho, digits)

    def free(self, micro_rho: int, digits: int = 4) -> str:
        """Return an amount that is free again as text, with epsilons rounded down."""
        return _both_relations(*(shown_down(one * BELOW, digits) for one in self._amounts(micro_rho)))

    def failure_probability(self, whole: Cost) -> str:
        """Return the failure probability of the epsilons as text, rounded up; `whole` is the total [P4].
        Mechanisms with their own delta add it; Gaussian noise has none. An (epsilon_0, delta_0) mechanism
        adds (1 + e^epsilon_0) delta_0 for a record replaced, and costs epsilon_0^2 / 2."""
        stated, mechanism_delta = Fraction(repr(self.delta)), Fraction(whole.atto_delta, ATTO)
        if self.exact or not mechanism_delta:
            return shown_up(stated)
        largest_epsilon_0 = min(math.sqrt(2 * whole.micro_rho / MICRO), LARGEST_EXPONENT)
        chain = 1 + Fraction(math.exp(largest_epsilon_0) * ABOVE)
        added, replaced = (
            shown_up(min(Fraction(1), stated + one)) for one in (mechanism_delta, mechanism_delta * chain)
        )
        return f"{added} ({Neighbours.ADD_REMOVE.value}; as {Neighbours.REPLACE_ONE.value}: {replaced})"

    def _amounts(self, micro_rho: int) -> tuple[float, float]:
        return self.epsilon(micro_rho), self.replaced(micro_rho)


def _both_relations(added: str, replaced: str) -> str:
    return f"epsilon {added} ({Neighbours.ADD_REMOVE.value}; as {Neighbours.REPLACE_ONE.value}: {replaced})"


def studies_left(left: Cost, study_cost: Cost) -> int | None:
    """Return the number of studies of one cost that the remaining budget covers; None if the cost is zero."""
    counts = [
        available // required
        for available, required in (
            (left.micro_rho, study_cost.micro_rho),
            (left.atto_delta, study_cost.atto_delta),
        )
        if required
    ]
    return max(0, min(counts)) if counts else None


MILLIONTHS = 10**6  # results are rounded up to a millionth
PRECISION = 128


def attack_success_gaussian(mu_squared: Fraction) -> Fraction:
    """Return the success probability under mu-Gaussian DP. Phi(mu/2), which is exact: the trade-off is that
    of N(0, 1) against N(mu, 1), of which TV = 2 Phi(mu/2) - 1 (Dong, Roth & Su 2022, "Gaussian differential
    privacy", Corollary 2.13 at epsilon 0)."""
    from flint import arb, ctx, fmpq

    with ctx.workprec(PRECISION):
        mu = arb(fmpq(mu_squared.numerator, mu_squared.denominator)).sqrt()
        return _up((-mu / arb(8).sqrt()).erfc() / 2)


def attack_success_zcdp(rho: Fraction, own_delta: Fraction = Fraction(0)) -> Fraction:
    """Return the success probability under rho-zCDP, with `own_delta` of mechanisms with their own delta.
    KL(P, Q) <= rho (its order 1), hence TV <= sqrt(rho/2) (Pinsker) and TV <= sqrt(1 - e^-rho) (Bretagnolle &
    Huber 1979); a mechanism's own delta adds at most itself to TV."""
    from flint import arb, ctx, fmpq

    with ctx.workprec(PRECISION):
        exact_rho = arb(fmpq(rho.numerator, rho.denominator))
        extra_delta = arb(fmpq(own_delta.numerator, own_delta.denominator))
        bounds = ((exact_rho / 2).sqrt(), (1 - (-exact_rho).exp()).sqrt())
        return min(_up((1 + bound + extra_delta) / 2) for bound in bounds)


def attack_success(epsilon: float, delta: float) -> Fraction:
    """Return the success probability under (epsilon, delta)-DP; `delta` may be 0. P(S) - Q(S) <= (e^epsilon -
    1) Q(S) + delta for S and for its complement with P and Q exchanged, hence TV <= (e^epsilon - 1 + 2 delta)
    / (e^epsilon + 1) (Kairouz, Oh & Viswanath 2015)."""
    from flint import arb, ctx

    check_epsilon(epsilon)
    if delta:
        check_delta(delta)
    with ctx.workprec(PRECISION):
        exp_epsilon = arb(epsilon).exp()
        return _up((1 + (exp_epsilon - 1 + 2 * arb(delta)) / (exp_epsilon + 1)) / 2)


def _up(probability: arb) -> Fraction:
    """Return a probability in millionths, rounded up without floats."""
    mantissa, exponent = (probability * MILLIONTHS).upper().man_exp()
    return min(Fraction(1), Fraction(math.ceil(int(mantissa) * Fraction(2) ** int(exponent)), MILLIONTHS))
