"""[P2] Noise beyond 64 bits is refused at planning and at the draw, and never wraps around."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.mechanisms import apply_mechanism, data_independent_noise
from eigenveil.noise.source import Block, NoiseSpec, OsNoise
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
from eigenveil.protocol.query_limits import MAX_NOISE_SCALE, check_noise_scale
from eigenveil.queries import AdditiveQuery, ClippedSum, Gram, Query, RowNorms, Spectrum, SquaredNormSum
from eigenveil.queries.limits import SUM_LIMIT, row_norm_limit
from eigenveil.study.study import MAX_MULTIPLICITY, Study
from tests.core.queries.kinds import every_query
from tests.support import a_plan, a_query, a_study, refused

WIDE = frozen(np.zeros(256, dtype=np.int64))
LARGEST: dict[str, Query] = {
    **every_query(),
    "wide gram": Gram(centre=WIDE, radius=row_norm_limit(256)),
    "wide sum": ClippedSum(centre=WIDE, radius=row_norm_limit(256)),
    "wide energy": SquaredNormSum(centre=WIDE, radius=row_norm_limit(256)),
    "spectrum": Spectrum(centre=WIDE, radius=row_norm_limit(256), records=2**24),
}


def allowed(round_query: RoundQuery, study: Study) -> bool:
    try:
        check_noise_scale(round_query.priced, study)
    except RequestError:
        return False
    return True


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("distribution", [NoiseDistribution.GAUSSIAN, NoiseDistribution.LAPLACE])
@pytest.mark.parametrize("name", LARGEST)
def test_noise_that_may_be_planned_can_be_drawn(
    name: str, distribution: NoiseDistribution, neighbours: Neighbours
) -> None:
    """And what cannot be drawn is never planned, at any price and number of sites a person."""
    for micro_rho, sites in product((1, 300, 10**6, 10**9), (1, 30, MAX_MULTIPLICITY)):
        one = a_query(LARGEST[name], micro_rho=micro_rho, atto_delta=10**9, distribution=distribution)
        study = a_study(max_sites_per_person=sites, neighbours=neighbours)
        if allowed(one, study):
            spec = data_independent_noise(one.priced, study)
            assert spec is not None
            assert max(block.scale for block in spec.blocks) <= MAX_NOISE_SCALE
        elif not isinstance(one.query, Spectrum):  # whose plan predicts a little more
            with refused(Code.OVERFLOW):
                data_independent_noise(one.priced, study)


def test_a_study_with_noise_beyond_64_bits_is_refused_at_planning() -> None:
    """A thousand sites a person, Laplace noise on half a million products: no query was asked yet."""
    noisy = a_plan(
        d=1024, delta=0.0, epsilon=0.1, max_sites_per_person=MAX_MULTIPLICITY, radius=1.0, centring=False
    )
    with refused(Code.OVERFLOW, "would exceed 64-bit integers"):
        rehearse(noisy)


@pytest.mark.parametrize("distribution", NoiseDistribution)
@pytest.mark.parametrize(
    "scale", [math.nextafter(MAX_NOISE_SCALE, math.inf), 2.0**62, math.inf, math.nan, 0.0, -1.0]
)
def test_a_scale_beyond_the_edge_is_refused_at_the_draw(
    distribution: NoiseDistribution, scale: float
) -> None:
    with refused(Code.OVERFLOW, "noise scales are limited to"):
        Block(count=1, scale=scale, distribution=distribution)


@pytest.mark.parametrize("distribution", NoiseDistribution)
def test_at_the_edge_the_sampler_is_far_from_where_it_saturates(distribution: NoiseDistribution) -> None:
    """False alarms: at most 4,000 e^-64. At a scale of 2^62 Laplace noise saturates in 14 % of the draws."""
    drawn = OsNoise().draw(
        NoiseSpec(blocks=(Block(count=4000, scale=MAX_NOISE_SCALE, distribution=distribution),))
    )
    assert np.abs(drawn).max() < 2**62
    assert np.abs(drawn).mean() > MAX_NOISE_SCALE / 2


class Extreme(OsNoise):
    def __init__(self, value: int) -> None:
        self.value = value

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        return np.full(spec.length, self.value, dtype=np.int64)


@pytest.mark.parametrize("distribution", NoiseDistribution)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_leaves_64_bits_is_refused_and_never_wraps(
    distribution: NoiseDistribution, sign: int
) -> None:
    query: AdditiveQuery = RowNorms(centre=frozen([0, 0, 0]), edges=frozen([5]))
    total = frozen([sign * (SUM_LIMIT - 1), 3])
    round_query, study = a_query(query, atto_delta=10**9, distribution=distribution), a_study()
    space = 2**63 - SUM_LIMIT
    inside = apply_mechanism(round_query.priced, total, study, Extreme(sign * space))
    if sign > 0 or distribution is not NoiseDistribution.STABILITY:  # it keeps silent about what is negative
        assert int(inside.values[0]) == sign * (SUM_LIMIT - 1 + space)
    with pytest.raises(InternalError, match="does not fit 64 bits"):
        apply_mechanism(round_query.priced, total, study, Extreme(sign * (space + 2)))
