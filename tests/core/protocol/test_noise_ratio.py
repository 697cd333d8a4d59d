"""[P2] Noise at the edge of 64 bits: refused when it is planned, again when it is drawn, never wrapped."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.mechanisms import noise_ahead, publishable
from eigenveil.noise.source import Block, NoiseSpec, OsNoise
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.planning.dry_run import rehearse
from eigenveil.protocol.noise_ratio import LOUDEST, check_noise_ratio
from eigenveil.protocol.query import NoiseLaw, RoundQuery
from eigenveil.queries import Additive, ClippedSum, Gram, Query, RowNorms, Spectrum, SquaredNormSum
from eigenveil.queries.limits import SUM_LIMIT, row_norm_limit
from eigenveil.study.study import MAX_MULTIPLICITY
from tests.support import DIGEST, a_plan, a_study, every_query, refused

WIDE = frozen(np.zeros(256, dtype=np.int64))
LARGEST: dict[str, Query] = {
    **every_query(),
    "wide gram": Gram(centre=WIDE, radius=row_norm_limit(256)),
    "wide sum": ClippedSum(centre=WIDE, radius=row_norm_limit(256)),
    "wide energy": SquaredNormSum(centre=WIDE, radius=row_norm_limit(256)),
    "spectrum": Spectrum(centre=WIDE, radius=row_norm_limit(256), records=2**24),
}


def a_query(query: Query, micro_rho: int, law: NoiseLaw) -> RoundQuery:
    return RoundQuery(
        plan_digest=DIGEST, round=0, query=query, micro_rho=micro_rho, law=law, atto_delta=10**9
    )


def allowed(asked: RoundQuery, sites: int, neighbours: Neighbours) -> bool:
    try:
        check_noise_ratio(asked, a_study(max_sites_per_person=sites, neighbours=neighbours))
    except RequestError:
        return False
    return True


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("law", [NoiseLaw.GAUSSIAN, NoiseLaw.LAPLACE])
@pytest.mark.parametrize("name", LARGEST)
def test_what_may_be_planned_can_be_drawn(name: str, law: NoiseLaw, neighbours: Neighbours) -> None:
    """And what cannot be drawn is never planned, at any price and number of sites a person."""
    for micro_rho in (1, 300, 10**6, 10**9):
        for sites in (1, 30, MAX_MULTIPLICITY):
            asked = a_query(LARGEST[name], micro_rho, law)
            study = a_study(max_sites_per_person=sites, neighbours=neighbours)
            if allowed(asked, sites, neighbours):
                spec = noise_ahead(asked, study)
                assert spec is not None
                assert max(block.scale for block in spec.blocks) <= LOUDEST
            elif not isinstance(asked.query, Spectrum):  # of which the plan foresees a little more
                with refused(Code.OVERFLOW):
                    noise_ahead(asked, study)


def test_both_happen() -> None:
    wide = LARGEST["wide gram"]
    assert allowed(a_query(wide, 10**6, NoiseLaw.LAPLACE), 1, Neighbours.ADD_REMOVE)
    assert not allowed(a_query(wide, 1, NoiseLaw.LAPLACE), MAX_MULTIPLICITY, Neighbours.ADD_REMOVE)


def test_a_study_whose_noise_would_be_too_loud_is_refused_when_it_is_planned() -> None:
    """A thousand sites a person, Laplace noise on half a million products: no question was asked yet."""
    loud = a_plan(
        d=1024, delta=0.0, epsilon=0.1, max_sites_per_person=MAX_MULTIPLICITY, radius=1.0, centring=False
    )
    with refused(Code.OVERFLOW, "louder than integers hold"):
        rehearse(loud)


@pytest.mark.parametrize("law", NoiseLaw)
@pytest.mark.parametrize("scale", [math.nextafter(LOUDEST, math.inf), 2.0**62, math.inf, math.nan, 0.0, -1.0])
def test_a_scale_beyond_the_edge_is_refused_at_the_draw(law: NoiseLaw, scale: float) -> None:
    with refused(Code.OVERFLOW, "noise is drawn at scales up to"):
        Block(count=1, scale=scale, law=law)


@pytest.mark.parametrize("law", NoiseLaw)
def test_at_the_edge_the_sampler_is_far_from_where_it_saturates(law: NoiseLaw) -> None:
    """False alarms: at most 4,000 e^-64. At a scale of 2^62 Laplace noise saturates in 14 % of the draws."""
    drawn = OsNoise().draw(NoiseSpec(blocks=(Block(count=4000, scale=LOUDEST, law=law),)))
    assert np.abs(drawn).max() < 2**62
    assert np.abs(drawn).mean() > LOUDEST / 2


class Extreme(OsNoise):
    """The same given integer for every entry."""

    def __init__(self, value: int) -> None:
        self.value = value

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        return np.full(spec.length, self.value, dtype=np.int64)


@pytest.mark.parametrize("law", NoiseLaw)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_leaves_64_bits_is_refused_and_never_wraps(law: NoiseLaw, sign: int) -> None:
    query: Additive = RowNorms(centre=frozen([0, 0, 0]), edges=frozen([5]))
    total = frozen([sign * (SUM_LIMIT - 1), 3])
    asked, study = a_query(query, 1000, law), a_study()
    room = 2**63 - SUM_LIMIT
    inside = publishable(asked, total, study, Extreme(sign * room))
    if sign > 0 or law is not NoiseLaw.STABILITY:  # it keeps silent about what is negative
        assert int(inside.values[0]) == sign * (SUM_LIMIT - 1 + room)
    with pytest.raises(InternalError, match="does not fit 64 bits"):
        publishable(asked, total, study, Extreme(sign * (room + 2)))
