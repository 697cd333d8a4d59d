"""What a secret order buys: privacy amplification by shuffling, in closed form.

Source: Feldman, McMillan, Talwar, Hiding Among the Clones (FOCS 2021), Theorems 3.1 and 3.8. Randomisers of
n records in a secret random order, each (epsilon0, delta0) and chosen on the answers before it, are together
(epsilon, delta + (e^epsilon + 1)(1 + e^-epsilon0 / 2) n delta0)-DP under replace-one, where
epsilon0 <= log(n / (16 log(2 / delta))) and

    epsilon = log(1 + (g - 1) / (g + 1) (8 sqrt(g log(4 / delta) / n) + 8 g / n)),  g = e^epsilon0.
"""

from __future__ import annotations

import math
from functools import lru_cache

from eigenveil.accounting.digits import shown
from eigenveil.accounting.gaussian import micro_rho_for
from eigenveil.errors import Code, RequestError

SEARCHED = 2**31  # records up to which a hint is looked for, as many as a study may have
CLONES = 0.5  # the share of delta for the order; the rest is for the randomisers' own
TIGHT = 1 - 2.0**-40  # what floats may be off


def most_local(delta: float, n: int) -> float:
    """The largest epsilon0 that the theorem covers; negative if it covers none."""
    return math.log(n / (16 * math.log(2 / delta)))


def amplified(local: float, delta: float, n: int) -> float:
    """epsilon of n shuffled epsilon0 = `local` randomisers, at `delta`.

    Raises:
        RequestError: outside the range of the theorem; the message says which n would do.
    """
    if not 0 <= local <= most_local(delta, n):
        least = math.ceil(16 * math.log(2 / delta) * math.exp(min(max(local, 0.0), 100.0)))
        raise RequestError(
            Code.BAD_STUDY,
            f"amplification by shuffling covers a local epsilon of {local:g} from n = {least} records on, "
            f"not at n = {n}",
        )
    grown = math.exp(local)
    spread = 8 * math.sqrt(grown * math.log(4 / delta) / n) + 8 * grown / n
    return math.log1p((grown - 1) / (grown + 1) * spread)


@lru_cache(maxsize=64)
def local_micro_rho(epsilon: float, delta: float, n: int) -> int:
    """The micro-rho of Gaussian noise for each of n shuffled records, so that all are together
    (epsilon, delta)-DP: one alone is exactly the (epsilon0, delta0) randomiser that the theorem is about.

    Cost: (epsilon, delta) under replace-one, for the whole pass [P24].

    Raises:
        RequestError: the theorem covers no n so small, or shuffling so few records gains nothing.
    """
    order = CLONES * delta
    low, high = 0.0, most_local(order, n)
    if high > 0 and amplified(high, order, n) <= epsilon * TIGHT:
        low = high
    while high > 0 and high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if amplified(middle, order, n) <= epsilon * TIGHT else (low, middle)
    if low <= epsilon:
        raise RequestError(
            Code.BAD_STUDY,
            f"a secret order of n = {n} records gains nothing at epsilon = {shown(epsilon)}, "
            f"delta = {shown(delta)}: {_enough(epsilon, order)} would; choose private-oja, which "
            "needs no order",
        )
    own = (delta - order) * TIGHT / ((math.exp(epsilon) + 1) * (1 + math.exp(-low) / 2) * n)
    return micro_rho_for(low, own)


def _enough(epsilon: float, delta: float) -> str:
    """The least power of two with which randomisers of epsilon0 = 1.1 epsilon give epsilon, in words."""
    local, n = 1.1 * epsilon, 2
    while most_local(delta, n) < local or amplified(local, delta, n) > epsilon:
        n *= 2
        if n > SEARCHED:
            return "no number of records"
    return f"about {n} records"
