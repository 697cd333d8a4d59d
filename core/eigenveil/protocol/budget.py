"""Whether the next query still fits what a study may spend: checked in integers before it is asked [P4]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import assert_never

from eigenveil.accounting.zcdp import NOTHING, PICO, Cost, pico_epsilon
from eigenveil.errors import Code, RequestError, spoken
from eigenveil.protocol.noise_ratio import check_noise_ratio
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries import Additive, Batch, Coordinates, OwnNoise, Spectrum, batch_of
from eigenveil.study.price import Composition


def check_affordable(
    plan: Plan, asked: RoundQuery, before: Sequence[RoundQuery], spent: Cost, pico: int
) -> None:
    """Insist that `asked` fits after those `before`, which cost `spent` and, added up as epsilons, `pico`,
    and that what it pays makes its noise no louder than integers hold [P2].

    Raises:
        RequestError: `budget-exhausted`, `plan-overflow`, or `bad-study` for what the plan does not allow.
    """
    if not (spent + asked.cost).fits(plan.once):
        raise RequestError(Code.BUDGET, f"{spoken(asked.round)} would exceed what the study may spend")
    check_composition(plan, asked, asked.cost, pico)
    check_noise_ratio(asked, plan.study)
    batch = batch_of(asked.query)
    if batch is not None:
        check_batch(plan, asked.price, batch, asked.cost if batch.index == 0 else _paid(before, batch))


def check_composition(plan: Plan, asked: RoundQuery, cost: Cost, pico: int) -> None:
    """Insist that the noise of `asked` is of a kind that adds up as the plan says, and that epsilons suffice.

    `pico` is what was spent before, added up as epsilons in 1e-12. The session and every site check it [P4].

    Raises:
        RequestError: code `budget-exhausted`.
    """
    match plan.composition:
        case Composition.GAUSSIAN:
            _check_gaussian(plan, asked)
        case Composition.BASIC:
            _check_epsilon(plan, asked, cost, pico)
        case Composition.ZCDP:  # whatever has a rho may be asked
            pass


def _check_gaussian(plan: Plan, asked: RoundQuery) -> None:
    """A guarantee in mu covers Gaussian noise alone: no other law, no mechanism with noise or a delta of its
    own. Masked answers are sums, and nothing else."""
    kinds = Additive if plan.masked else Additive | Spectrum
    added = isinstance(asked.query, kinds) and asked.law is NoiseLaw.GAUSSIAN
    if not added or asked.atto_delta != plan.aliasing:
        raise RequestError(
            Code.BUDGET,
            f"{spoken(asked.round)} asks for noise that is not Gaussian, and the study's guarantee is in mu",
        )


def _check_epsilon(plan: Plan, asked: RoundQuery, cost: Cost, pico: int) -> None:
    query = asked.query
    if isinstance(query, Additive | Spectrum):
        # Gaussian noise has no epsilon of its own to add up; several histograms at once are priced as zCDP.
        none = asked.law is NoiseLaw.GAUSSIAN or isinstance(query, Coordinates)
    elif isinstance(query, OwnNoise):
        none = False
    else:
        assert_never(query)
    if none or (plan.study.delta == 0 and asked.law is not NoiseLaw.LAPLACE):
        raise RequestError(Code.BUDGET, f"{spoken(asked.round)} asks for noise that has no epsilon to add up")
    if pico + pico_epsilon(cost.micro_rho) > math.floor(Fraction(plan.study.epsilon) * PICO):
        raise RequestError(Code.BUDGET, f"{spoken(asked.round)} would exceed the study's epsilon")


def attempt_cost(price: Cost, time: int, paid: int = 0, first: Cost | None = None) -> Cost:
    """What it costs to answer a question of this `price` for the `time`-th time, from 1 [P33]; a round that
    is not masked is answered once.

    Of a pass over disjoint batches a time is `paid` with whichever batch is first answered so often, and at
    what the `first` answer to any of them cost: no later one costs more [P9]. `first` is None for what is no
    batch, and where none was answered yet.

    Raises:
        RequestError: code `budget-exhausted`, the question costs more than `first`.
    """
    if first is None:
        return price
    if not price.fits(first):
        raise RequestError(Code.BUDGET, "a batch costs more than its pass has paid")
    return NOTHING if time <= paid else first


def _paid(before: Sequence[RoundQuery], batch: Batch) -> Cost:
    """What the pass of `batch` paid with its first batch; nothing if that round asked anything else."""
    began = batch_of(before[batch.first].query)
    same = began is not None and (began.first, began.index, began.batches) == (batch.first, 0, batch.batches)
    return before[batch.first].cost if same else NOTHING


def check_batch(plan: Plan, price: Cost, batch: Batch, paid: Cost) -> None:
    """A batch is free only if the first batch of its pass paid for at least as much [P9].

    Raises:
        RequestError: code `bad-study` or `budget-exhausted`.
    """
    if batch.batches != plan.batches:
        raise RequestError(Code.BAD_STUDY, f"this plan deals records into {plan.batches} batches")
    attempt_cost(price, 1, 1, paid)
