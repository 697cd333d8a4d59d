"""Privacy amplification by shuffling, in closed form.

Source: Feldman, McMillan, Talwar, Hiding Among the Clones (FOCS 2021), Theorems 3.1 and 3.8. Take n
(epsilon0, delta0) randomisers on records in a secret random order, each chosen on the answers before it.
Together they are (epsilon, delta + (e^epsilon + 1)(1 + e^-epsilon0 / 2) n delta0)-DP under replace-one, where
epsilon0 <= log(n / (16 log(2 / delta))) and

    epsilon = log(1 + (g - 1) / (g + 1) (8 sqrt(g log(4 / delta) / n) + 8 g / n)),  g = e^epsilon0."""

from __future__ import annotations

import math
from functools import lru_cache

from eigenveil.accounting.formatting import shown
from eigenveil.accounting.gaussian import micro_rho_for
from eigenveil.errors import Code, RequestError

SEARCHED = 2**31  # largest number of records for a hint, as many as a study may have
ORDER_SHARE = 0.5  # share of delta for the order; the rest is for the randomisers
TIGHT = 1 - 2.0**-40  # margin for rounding errors of floats


def max_local_epsilon(delta: float, n: int) -> float:
    """Return the largest epsilon0 that the theorem covers; negative if there is none."""
    return math.log(n / (16 * math.log(2 / delta)))


def amplified_epsilon(local: float, delta: float, n: int) -> float:
    """Return epsilon of n shuffled randomisers with epsilon0 = `local`, at `delta`. Raises RequestError: the
    theorem does not apply; the message has the required n."""
    if not 0 <= local <= max_local_epsilon(delta, n):
        least = math.ceil(16 * math.log(2 / delta) * math.exp(min(max(local, 0.0), 100.0)))
        raise RequestError(
            Code.BAD_STUDY,
            f"amplification by shuffling with a local epsilon of {local:g} needs at least {least} records, "
            f"got {n}",
        )
    exp_epsilon = math.exp(local)
    spread = 8 * math.sqrt(exp_epsilon * math.log(4 / delta) / n) + 8 * exp_epsilon / n
    return math.log1p((exp_epsilon - 1) / (exp_epsilon + 1) * spread)


@lru_cache(maxsize=64)
def local_micro_rho(epsilon: float, delta: float, n: int) -> int:
    """Return the micro-rho per record at which n shuffled, noised records are (epsilon, delta)-DP.

    Each record with Gaussian noise is exactly the (epsilon0, delta0) randomiser of the theorem.

    Cost: (epsilon, delta) under replace-one, for the whole pass [P24].
    Raises RequestError: n is too small for the theorem, or for a gain by shuffling."""
    order_delta = ORDER_SHARE * delta
    low, high = 0.0, max_local_epsilon(order_delta, n)
    if high > 0 and amplified_epsilon(high, order_delta, n) <= epsilon * TIGHT:
        low = high
    while high > 0 and high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if amplified_epsilon(middle, order_delta, n) <= epsilon * TIGHT else (low, middle)
        )
    if low <= epsilon:
        raise RequestError(
            Code.BAD_STUDY,
            f"shuffling n = {n} records gains nothing at epsilon = {shown(epsilon)}, delta = {shown(delta)}: "
            f"it needs {_records_needed(epsilon, order_delta)}. Choose private-oja, which does not shuffle",
        )
    randomiser_delta = (
        (delta - order_delta) * TIGHT / ((math.exp(epsilon) + 1) * (1 + math.exp(-low) / 2) * n)
    )
    return micro_rho_for(low, randomiser_delta)


def _records_needed(epsilon: float, delta: float) -> str:
    """Return a text with the least power of two n for which epsilon0 = 1.1 epsilon gives epsilon."""
    local, n = 1.1 * epsilon, 2
    while max_local_epsilon(delta, n) < local or amplified_epsilon(local, delta, n) > epsilon:
        n *= 2
        if n > SEARCHED:
            return "more records than a study may have"
    return f"about {n} records"
