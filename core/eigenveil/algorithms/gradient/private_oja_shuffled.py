"""private-oja-shuffled: Oja's rule on one noised gradient at a time, in a secret order.

Source: Algorithm 2 of [DPPCA] as printed. Each record is one local randomiser, and the secret order amplifies
what they cost together [P24]. It is a reference: the noise of a step is several times a gradient's length,
and there is a round for every record. A coordinator would receive the gradients of single records, which is
why none accepts it and no site does. As the steps must average that noise from the beginning, their offset is
the paper's, with the released variance in place of the spectrum.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np

from eigenveil.accounting.amplification import local_micro_rho
from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import ATTO, mu
from eigenveil.algorithms.gradient.private_oja import ordered
from eigenveil.algorithms.shared.clip_radius import Balance, choose
from eigenveil.algorithms.shared.gradient_query import Slope
from eigenveil.algorithms.shared.passes import Pass, Rounds
from eigenveil.algorithms.shared.preparation import Centred, locate, price, priced, row_radius, shares
from eigenveil.algorithms.shared.step_sizes import FLOOR, Rates
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import orthonormal, start_directions
from eigenveil.protocol.estimate import Steps
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import SquaredNormSum
from eigenveil.study.grid import S
from eigenveil.study.radius import quantile

VARIANCE_SHARE = 0.05  # of epsilon
GAIN = 2.0


def private_oja_shuffled(plan: Plan) -> Steps:
    """Count, mean, variance, and a round for each slot of the order.

    Neighbours: replace-one.
    Privacy: [P7], [P24]; the questions are priced and answered behind the barrier.
    Cost: the whole budget, d k integers a round, a round a record.

    Raises:
        RequestError: other neighbours, or too few records for a secret order to gain anything.
    """
    study, rounds, k = plan.study, Rounds(), plan.study.components
    if study.neighbours is not Neighbours.REPLACE_ONE:
        raise RequestError(
            Code.BAD_STUDY, 'private-oja-shuffled hides who changed: state neighbours = "replace-one"'
        )
    least = 1 - shares(plan).count - shares(plan).small_mean - VARIANCE_SHARE
    local_micro_rho(mu(price(plan, least)), plan.atto_delta / ATTO, plan.batches)  # refuses before it asks
    start = yield from rounds.through(locate(plan))
    rule = Balance(power=2, noise=8 * math.sqrt(plan.batches), quadratic=False)
    radius = choose(start.norms, quantile(study.radius), rule)
    total = yield from rounds.through(_variance(plan, start, radius))
    share = 1 - shares(plan).count - start.mean_share - VARIANCE_SHARE
    once = Pass(plan=plan, first=rounds.asked, micro_rho=price(plan, share), atto_delta=plan.atto_delta)
    w, lengths, noise = yield from _pass(start, once, radius**2, total, start_directions(study.dimension, k))
    found = ordered(start, w, lengths, total, noise)
    return replace(found, explained_variance=np.maximum(found.explained_variance, 0.0))


def _variance(plan: Plan, start: Centred, radius: float) -> Generator[PricedQuery, Release, float]:
    """The noised trace: what no direction's strength can exceed."""
    query = SquaredNormSum(centre=start.centre, radius=row_radius(radius, plan.study.dimension))
    release = yield priced(plan, query, VARIANCE_SHARE)
    return max(float(release.values[0]) / (S**2 * start.records), FLOOR)


def _pass(
    start: Centred, once: Pass, radius: float, total: float, w: FloatArray
) -> Generator[PricedQuery, Release, tuple[FloatArray, FloatArray, float]]:
    """All slots once: the directions, their noised Rayleigh quotients over the second half of the slots, and
    the noise on these. Shape: w (d, k) -> (d, k), (k,)."""
    local = local_micro_rho(mu(once.micro_rho), once.atto_delta / ATTO, once.size)
    sigma = 2 * radius / mu(local)  # of one entry of one noised gradient
    rates = Rates(gain=GAIN, offset=max(1.0, w.shape[0] * (GAIN * sigma / total) ** 2))
    lengths, seen = np.zeros(w.shape[1]), 0
    nothing = np.zeros_like(w)
    for t in range(once.size):
        query, unit = Slope(centre=start.centre, directions=w, offset=nothing).query(radius)
        release = yield once.about_record(query)
        gradient = release.values.reshape(w.shape) / unit
        if 2 * t >= once.size:
            lengths, seen = lengths + (w * gradient).sum(axis=0), seen + 1
        w = orthonormal(w + rates.step(t, total) * gradient)
    return w, lengths / max(seen, 1), sigma / math.sqrt(max(seen, 1))
