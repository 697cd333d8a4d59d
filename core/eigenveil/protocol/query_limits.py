"""Limits of the next query, in integers and before it is sent: the study's budget [P4], the noise scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import assert_never

from eigenveil.accounting.zcdp import NO_COST, PICO, Cost, pico_epsilon, scale_squared
from eigenveil.errors import Code, RequestError, round_label
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, PricedQuery, RoundQuery
from eigenveil.queries import (
    NAMES,
    AdditiveQuery,
    Batch,
    CoordinateHistograms,
    MechanismNoiseQuery,
    Spectrum,
    batch_of,
)
from eigenveil.queries.limits import require
from eigenveil.study.composition import Composition
from eigenveil.study.study import Study

MAX_NOISE_SCALE = 2.0**56  # the scale of one draw
# Smallest scale of a share: a sum of rounded Gaussians then equals one rounded Gaussian up to far less than
# an atto-delta [P32].
MIN_SHARE_SCALE = 4.0


def check_noise_scale(priced: PricedQuery, study: Study) -> None:
    """Check that the noise of a query, sensitivity over cost, stays within 64-bit integers. Larger noise
    could exceed 64-bit integers. Sums stay below 2^62 and the sampler ends at 2^63. At a scale of 2^56
    Laplace noise exceeds 2^62 with probability e^-64 and reaches 2^63 with e^-128, Gaussian noise far less
    [P2]. Masked sums are modulo 2^64. The scale of all their noise shares together also ends at 2^56, so a
    sum exceeds 63 bits with a probability below 2^-1000 [P32]. The check is made when a query is planned.
    Raises RequestError: code `plan-overflow`."""
    require(
        noise_fits(priced, study),
        f"the noise of the {NAMES[type(priced.query)]} query would exceed 64-bit integers, with a scale "
        f"above {MAX_NOISE_SCALE:.3g}; raise epsilon, or lower max_sites_per_person or the number of columns",
    )


def noise_fits(priced: PricedQuery, study: Study) -> bool:
    """Return True if 64-bit integers hold the query's noise."""
    query, sites = priced.query, study.max_sites_per_person
    if isinstance(query, MechanismNoiseQuery):
        return True  # its values are counts of votes and records, or limited to their own width
    if isinstance(query, Spectrum):
        sensitivity_squared = spectrum_sensitivity(query, sites) ** 2
    elif isinstance(query, AdditiveQuery):
        gaussian = priced.distribution is NoiseDistribution.GAUSSIAN
        norm_squared = query.l2_squared(study.neighbours) if gaussian else query.l1(study.neighbours) ** 2
        sensitivity_squared = norm_squared * sites**2
    else:
        assert_never(query)
    square = scale_squared(sensitivity_squared, priced.micro_rho)
    return square * share_variance_factor(study, study.federation.least) <= Fraction(MAX_NOISE_SCALE) ** 2


def share_variance_factor(study: Study, sites: int) -> Fraction:
    """Return the variance of all noise drawn, relative to the variance that the cost requires. It exceeds 1
    where `sites` draw shares, because only the shares of honest sites count [P32]."""
    return Fraction(sites, sites - study.colluders) if study.masked else Fraction(1)


def least_drawn_sigma(study: Study, sites: int) -> float:
    """Return the least standard deviation of the noise of all `sites`; 0 in a study that is not masked."""
    return MIN_SHARE_SCALE * math.sqrt(sites) if study.masked else 0.0


def spectrum_sensitivity(query: Spectrum, sites: int) -> int:
    """Return an upper bound of the eigenvalues' sensitivity in L1 and L2, under either neighbouring relation.
    One person's records at `sites` sites; rounding included."""
    d, square = query.released_length, query.radius**2
    rounding = 2 * d * query.records * square // 2**48 + 3
    return 2 * sites * square + d * rounding + 2


def check_affordable(
    plan: Plan, round_query: RoundQuery, before: Sequence[RoundQuery], spent: Cost, spent_pico: int
) -> None:
    """Check that the study can pay for a query, and that its noise stays within 64-bit integers [P2]. The
    queries `before` cost `spent`; their epsilons add up to `spent_pico`, in 1e-12. Raises RequestError:
    `budget-exhausted`, `plan-overflow`, or `bad-study` for what the plan does not allow."""
    if not (spent + round_query.cost).fits(plan.single_attempt_cost):
        raise _exhausted(round_query, "would exceed the budget of the study")
    check_composition(plan, round_query, round_query.cost, spent_pico)
    check_noise_scale(round_query.priced, plan.study)
    batch = batch_of(round_query.query)
    if batch is not None:
        paid = round_query.cost if batch.index == 0 else _pass_cost(before, batch)
        check_batch(plan, round_query.priced.cost, batch, paid)


def check_composition(plan: Plan, round_query: RoundQuery, cost: Cost, spent_pico: int) -> None:
    """Check that the query's noise composes as the plan states, and that epsilon suffices. `spent_pico` is
    the sum of the earlier epsilons, in 1e-12. The session and every site check it [P4]. Raises RequestError:
    code `budget-exhausted`."""
    match plan.composition:
        case Composition.GAUSSIAN:
            _check_gaussian(plan, round_query)
        case Composition.BASIC:
            _check_epsilon(plan, round_query, cost, spent_pico)
        case Composition.ZCDP:  # every mechanism has a rho
            pass


def _check_gaussian(plan: Plan, round_query: RoundQuery) -> None:
    """Check that the noise is Gaussian, because a guarantee in mu covers no other. Excluded are other noise
    distributions and mechanisms with their own delta. Masked answers are sums only."""
    kinds = AdditiveQuery if plan.masked else AdditiveQuery | Spectrum
    added = (
        isinstance(round_query.query, kinds) and round_query.priced.distribution is NoiseDistribution.GAUSSIAN
    )
    if not added or round_query.priced.atto_delta != plan.masked_delta:
        raise _exhausted(round_query, "needs noise that is not Gaussian, and the study's guarantee is in mu")


def _check_epsilon(plan: Plan, round_query: RoundQuery, cost: Cost, spent_pico: int) -> None:
    query, distribution = round_query.query, round_query.priced.distribution
    if isinstance(query, AdditiveQuery | Spectrum):
        # Gaussian noise has no pure epsilon; several histograms in one query are charged as zCDP.
        has_no_epsilon = distribution is NoiseDistribution.GAUSSIAN or isinstance(query, CoordinateHistograms)
    elif isinstance(query, MechanismNoiseQuery):
        has_no_epsilon = False
    else:
        assert_never(query)
    if has_no_epsilon or (plan.study.delta == 0 and distribution is not NoiseDistribution.LAPLACE):
        raise _exhausted(round_query, "needs noise that has no epsilon to add up")
    if spent_pico + pico_epsilon(cost.micro_rho) > math.floor(Fraction(plan.study.epsilon) * PICO):
        raise _exhausted(round_query, "would exceed the study's epsilon")


def _exhausted(round_query: RoundQuery, why: str) -> RequestError:
    return RequestError(Code.BUDGET, f"{round_label(round_query.round)} {why}")


def attempt_cost(cost: Cost, attempt_number: int, paid: int = 0, first: Cost | None = None) -> Cost:
    """Return the charge of attempt `attempt_number` (from 1) at a query of this `cost` [P33]. A round that is
    not masked has one attempt. In a pass over disjoint batches, the first batch to reach an attempt number is
    charged for all batches. The charge is the cost of the `first` answer in the pass [P9]. `paid` is the
    number of attempts charged so. `first` is None outside a pass, and before its first answer.
    Raises RequestError: code `budget-exhausted`, the query costs more than `first`."""
    if first is None:
        return cost
    if not cost.fits(first):
        raise RequestError(Code.BUDGET, "a batch costs more than the first batch of its pass")
    return NO_COST if attempt_number <= paid else first


def _pass_cost(before: Sequence[RoundQuery], batch: Batch) -> Cost:
    """Return the charge of the first batch of the pass; nothing if that round had another query."""
    first_batch = batch_of(before[batch.first_round].query)
    same = first_batch is not None and (first_batch.first_round, first_batch.index, first_batch.batches) == (
        batch.first_round,
        0,
        batch.batches,
    )
    return before[batch.first_round].cost if same else NO_COST


def check_batch(plan: Plan, cost: Cost, batch: Batch, paid: Cost) -> None:
    """Check that a batch costs no more than the first batch of its pass was charged [P9]. Raises
    RequestError: code `bad-study` or `budget-exhausted`."""
    if batch.batches != plan.batches:
        raise RequestError(Code.BAD_STUDY, f"the plan divides the records into {plan.batches} batches")
    attempt_cost(cost, 1, 1, paid)
