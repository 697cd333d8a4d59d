"""[P32] Without the shares of t colluders a sum has the noise of its table, in every block, for each query
that shares can be drawn for; held to `specification`, which knows nothing of shares. No false alarms."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product

import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.errors import InternalError
from eigenveil.noise.source import Block, released_sigma, share_spec
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.protocol.query_limits import MIN_SHARE_SCALE
from eigenveil.queries import NAMES
from eigenveil.study.study import Federation, Trust
from tests.core import specification as spec
from tests.core.queries.kinds import QUERIES, SUMS
from tests.core.recorder import COSTS, query_of
from tests.core.specification import Noise, Setting
from tests.support import a_plan

MEMBERS = (2, 3, 7)  # sites in a set; each of 1, 2 and 6 of them may collude


@cache
def masked_plan(neighbours: Neighbours, sites: int, members: int, t: int) -> Plan:
    federation = Federation(sites=tuple("abcdefg"[:members]))
    trust = Trust.SECURE_AGGREGATION
    return a_plan(
        federation=federation, neighbours=neighbours, max_sites_per_person=sites, trust=trust, colluding=t
    )


def enough(block: Block, wanted: Noise, honest: int) -> bool:
    """True if so many shares of this scale are the noise that is due, and no more than the least share is."""
    due, all_of_it = block.scale == MIN_SHARE_SCALE, honest * Fraction(block.scale) ** 2
    alike = (block.distribution.value, block.count) == (wanted.distribution, wanted.count)
    return alike and wanted.square <= all_of_it and (due or all_of_it <= wanted.square * (1 + wanted.room))


@pytest.mark.parametrize("name", SUMS)
def test_honest_shares_are_the_noise_of_the_table(name: str) -> None:
    kind, colluders = NAMES[type(SUMS[name])], ((n, t) for n in MEMBERS for t in {1, 2, n - 1} if t < n)
    for (members, t), neighbours, sites, cost in product(colluders, Neighbours, (1, 3), COSTS):
        plan = masked_plan(neighbours, sites, members, t)
        s = Setting(adds=neighbours is Neighbours.ADD_REMOVE, sites=sites, micro_rho=cost)
        round_query = query_of(plan, SUMS[name], s)
        drawn, wanted = (
            share_spec(round_query.priced, plan.study, members).blocks,
            spec.added(kind, round_query.query, "gaussian", s),
        )
        for block, due in zip(drawn, wanted, strict=True):
            assert enough(block, due, members - t), (kind, members, t, s)
            assert block.scale >= 4
        most = max(block.scale for block in drawn)
        assert released_sigma(round_query.priced, plan.study, members) == pytest.approx(most * members**0.5)


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in SUMS])
def test_a_query_that_is_no_sum_has_no_shares(name: str) -> None:
    plan = masked_plan(Neighbours.ADD_REMOVE, 1, 3, 1)
    round_query = query_of(
        plan, QUERIES[name], Setting(adds=True, sites=1, micro_rho=1000, atto_delta=10**12)
    )
    with pytest.raises(InternalError):
        share_spec(round_query.priced, plan.study, 3)


def test_other_noise_than_gaussian_and_sets_without_an_honest_site_have_no_shares() -> None:
    plan, s = masked_plan(Neighbours.ADD_REMOVE, 1, 3, 2), Setting(adds=True, sites=1, micro_rho=1000)
    round_query = query_of(plan, SUMS["gram"], s)
    assert share_spec(round_query.priced, plan.study, 3)
    with pytest.raises(InternalError):
        share_spec(round_query.priced, plan.study, 2)
    with pytest.raises(InternalError):
        share_spec(query_of(plan, SUMS["gram"], s, NoiseDistribution.LAPLACE).priced, plan.study, 3)
